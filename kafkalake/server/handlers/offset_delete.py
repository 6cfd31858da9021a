"""OffsetDelete (47), version 0: forget a group's offsets of some partitions (KIP-496).

Topics that a member of the group reads get GROUP_SUBSCRIBED_TO_TOPIC. A group whose members are not consumers must be empty.
"""

from __future__ import annotations

from kafkalake.broker.groups.offset_requests import PartitionErrors
from kafkalake.errors import KafkaError, TopicAuthorizationError
from kafkalake.server.authorizer import Operation
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import allows_topic


def handle(request: Request) -> None:
    body = request.body
    allowed = {topic.name for topic in body.topics if allows_topic(request, Operation.READ, topic.name)}
    asked = [(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]

    def reply(errors: PartitionErrors) -> None:
        request.reply(
            {
                "error_code": 0,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": each.partition_index,
                                "error_code": code_of(
                                    errors.get((topic.name, each.partition_index), TopicAuthorizationError)
                                ),
                            }
                            for each in topic.partitions
                        ],
                    }
                    for topic in body.topics
                ],
            }
        )

    try:
        check_group(request, Operation.DELETE, body.group_id)
        request.context.broker.groups.offsets.delete(
            body.group_id, [key for key in asked if key[0] in allowed], request.guarded(reply)
        )
    except KafkaError as error:
        request.reply({"error_code": error.code})
