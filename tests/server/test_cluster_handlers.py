"""What a broker answers about the cluster: the reassignments under way and the quorum, as its image has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from contract.wire_client import WireClient, create_topic
from node_in_thread import NodeInThread

from kafkalake.cluster.image import BrokerRegistration, Endpoint
from kafkalake.errors import InvalidReplicaAssignmentError, KafkaError, NoReassignmentInProgressError

pytestmark = pytest.mark.process

OTHER = BrokerRegistration(7, 3, UUID(int=70), (Endpoint("PLAINTEXT", "other", 9092),), is_fenced=True)
ELSEWHERE = replace(OTHER, broker_id=8, endpoints=(Endpoint("INSIDE", "elsewhere", 9092),))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    """A client of a broker whose image has two more brokers, and a topic of which one partition moves."""
    with (
        NodeInThread(tmp_path_factory.mktemp("cluster") / "lake") as node,
        WireClient(node.servers) as client,
    ):
        create_topic(client, "moving", partitions=3)
        create_topic(client, "still")
        topics = node.broker.topics

        def join() -> None:
            topic_id = topics.topic("moving").topic_id
            first, second, third = topics.image.partitions[topic_id]
            second = replace(second, replicas=(7, 0), adding=(7,), removing=(0,))
            image = topics.image.with_broker(OTHER).with_broker(ELSEWHERE)
            topics.apply(replace(image.with_topics({topic_id: (first, second, third)}), controller_epoch=9))

        node.on_loop(join)
        yield client


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, {"moving": [1]}),
        ([("moving", [0, 1, 2, 3, -1])], {"moving": [1]}),
        ([("moving", [0]), ("still", [0]), ("unknown", [0])], {}),
        ([], {}),
    ],
)
def test_partitions_that_move_are_listed(
    client: WireClient, asked: list[tuple[str, list[int]]] | None, found: dict[str, list[int]]
) -> None:
    topics = None if asked is None else [{"name": name, "partition_indexes": indexes} for name, indexes in asked]
    answer = client.call("ListPartitionReassignments", 0, timeout=1000, topics=topics)
    assert {each.name: [partition.partition_index for partition in each.partitions] for each in answer.topics} == found
    for topic in answer.topics:
        (moving,) = topic.partitions
        assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([7, 0], [7], [0])


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([0], None),
        ([], InvalidReplicaAssignmentError),
        ([0, 0], InvalidReplicaAssignmentError),
        ([9], InvalidReplicaAssignmentError),
        (None, NoReassignmentInProgressError),
    ],
)
def test_moves_that_cannot_be_are_refused(
    client: WireClient, replicas: list[int] | None, error: type[KafkaError] | None
) -> None:
    asked = [{"name": "still", "partitions": [{"partition_index": 0, "replicas": replicas}]}]
    answer = client.call("AlterPartitionReassignments", 0, timeout=1000, topics=asked)
    (found,) = answer.responses[0].partitions
    assert found.error_code == (0 if error is None else error.code)
    assert (found.error_message is None) == (error is None)


def test_every_registered_broker_has_a_vote(client: WireClient) -> None:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]
    answer = client.call("DescribeQuorum", 2, topics=asked)
    quorum, unknown = answer.topics[0].partitions
    assert (quorum.leader_id, quorum.leader_epoch, quorum.error_code, unknown.error_code) == (0, 9, 0, 3)
    assert [each.replica_id for each in quorum.current_voters] == [0, 7, 8]
    assert [each.log_end_offset for each in quorum.current_voters] == [quorum.high_watermark, -1, -1]
    assert [each.last_fetch_timestamp > 0 for each in quorum.current_voters] == [True, False, False]
    assert [(node.node_id, node.listeners[0].host) for node in answer.nodes][1:] == [(7, "other")]
