"""Administration of more names and partitions than a request may have, and what checking them costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from client.test_administration_calls import Simulated

from kafkalake.client.administration import (
    brokers,
    configs,
    group_offsets,
    partition_offsets,
    reassignments,
    topics,
)
from kafkalake.client.administration.partition_offsets import LATEST
from kafkalake.client.checked_call import checked
from kafkalake.client.request_parts import COMMITTED_AT_ONCE, NAMED_AT_ONCE, cut
from kafkalake.client.requests import (
    ALTER_PARTITION_REASSIGNMENTS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
)
from kafkalake.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    GroupSubscribedToTopicError,
    NotLeaderOrFollowerError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages import cluster, controller
from kafkalake.wire.messages.groups import FindCoordinatorResponse
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetDeleteResponse,
    PartitionResult,
    TopicResult,
)
from kafkalake.wire.messages.reading import ELEMENTS_MAX
from kafkalake.wire.messages.records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkalake.wire.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsResponse,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

pytestmark = pytest.mark.exhaustive

MANY = ELEMENTS_MAX + 1
PLACES = [("clicks", number) for number in range(MANY)]


def listed(name: str, numbers: list[int]) -> Message:
    found = [ListOffsetsPartitionResponse(partition_index=each, offset=each) for each in numbers]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=name, partitions=found)])


def deleted(name: str, numbers: list[int]) -> Message:
    found = [DeleteRecordsPartitionResult(partition_index=each, low_watermark=each) for each in numbers]
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name=name, partitions=found)])


def forgotten(name: str, numbers: list[int]) -> Message:
    found = [PartitionResult(partition_index=each) for each in numbers]
    return OffsetDeleteResponse(topics=[TopicResult(name=name, partitions=found)])


@pytest.mark.parametrize(
    ("api", "answer", "operation", "arguments"),
    [
        (LIST_OFFSETS, listed, partition_offsets.list_offsets, [dict.fromkeys(PLACES, LATEST)]),
        (DELETE_RECORDS, deleted, partition_offsets.delete_records, [dict.fromkeys(PLACES, 5)]),
        (OFFSET_DELETE, forgotten, group_offsets.delete_offsets, ["g", PLACES]),
    ],
)
def test_more_partitions_than_a_request_may_name_are_asked_for_in_several(
    api: Any, answer: Callable[[str, list[int]], Message], operation: Any, arguments: list[Any]
) -> None:
    admin = Simulated()
    admin.topics.leaders["clicks"] = [each % 2 for each in range(MANY)]
    seen: list[list[int]] = []

    def respond(request: Any) -> Message:
        (topic,) = request.topics
        seen.append([each.partition_index for each in topic.partitions])
        return answer(topic.name, seen[-1])

    for broker in admin.brokers:
        broker.handlers[api] = respond
        broker.handlers[FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(node_id=0)
    found = admin.run(operation, *arguments)
    assert sorted(number for numbers in seen for number in numbers) == list(range(MANY))
    assert max(map(len, seen)) < ELEMENTS_MAX // 2
    if operation is partition_offsets.list_offsets:
        assert [found[place].offset for place in PLACES] == list(range(MANY))


NAMES = [f"n{number:06}" for number in range(MANY)]


def everywhere(admin: Simulated, api: Any, respond: Callable[[Any], Message]) -> None:
    for broker in admin.brokers:
        broker.handlers[api] = respond
        broker.handlers[FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(node_id=0)


def described(request: Any) -> Message:
    names = [each.resource_name for each in request.resources]
    return DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, resource_name=n) for n in names])


def with_no_leader_beside_the_isr(request: Any) -> Message:
    """As a broker: from the cursor on, as many partitions as are wanted."""
    names = [each.name for each in request.topics]
    first = names.index(request.cursor.topic_name) if request.cursor else 0
    last = first + request.response_partition_limit
    part = [cluster.PartitionMetadata(eligible_leader_replicas=[], last_known_elr=[])]
    return cluster.DescribeTopicPartitionsResponse(
        topics=[cluster.TopicMetadata(name=name, partitions=part) for name in names[first:last]],
        next_cursor=cluster.Cursor(topic_name=names[last]) if last < len(names) else None,
    )


def metadata(request: Any) -> Message:
    found = [cluster.PartitionMetadata(partition_index=0, leader_id=1)]
    return cluster.MetadataResponse(
        brokers=[cluster.NodeEndpoint(node_id=each, host=f"b{each}", port=9092) for each in range(3)],
        topics=[cluster.TopicMetadata(name=each.name, partitions=found) for each in request.topics],
    )


def in_directory(request: Any) -> Message:
    found = [
        cluster.DescribeLogDirsTopic(
            name=each.topic,
            partitions=[cluster.DescribeLogDirsPartition(partition_index=n) for n in each.partitions],
        )
        for each in request.topics
    ]
    return cluster.DescribeLogDirsResponse(results=[cluster.DescribeLogDirsResult(log_dir="/d", topics=found)])


def elected(request: Any) -> Message:
    found = [
        controller.ReplicaElectionResult(
            topic=each.topic,
            partition_result=[controller.ElectLeadersPartitionResult(partition_id=n) for n in each.partitions],
        )
        for each in request.topic_partitions
    ]
    return controller.ElectLeadersResponse(replica_election_results=found)


def moved(request: Any) -> Message:
    found = [
        controller.ReassignableTopicResponse(
            name=each.name,
            partitions=[
                controller.ReassignablePartitionResponse(partition_index=part.partition_index, error_code=3)
                for part in each.partitions
            ],
        )
        for each in request.topics
    ]
    return controller.AlterPartitionReassignmentsResponse(responses=found)


def gone(request: Any) -> Message:
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=each, error_code=3) for each in request.topic_names]
    )


@pytest.mark.parametrize(
    ("api", "respond", "operation", "arguments", "results"),
    [
        (DESCRIBE_CONFIGS, described, configs.describe_configs, [configs.TOPIC_RESOURCE, NAMES], NAMES),
        (
            DESCRIBE_TOPIC_PARTITIONS,
            with_no_leader_beside_the_isr,
            brokers.eligible_leaders,
            [NAMES],
            [(name, 0) for name in NAMES],
        ),
        (DELETE_TOPICS, gone, topics.delete_topics, [NAMES], NAMES),
        (ELECT_LEADERS, elected, reassignments.elect_leaders, [reassignments.Election.PREFERRED, PLACES], PLACES),
        (
            ALTER_PARTITION_REASSIGNMENTS,
            moved,
            reassignments.alter_reassignments,
            [dict.fromkeys(PLACES[:20_000], (0, 1, 2))],
            PLACES[:20_000],
        ),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_more_names_than_a_request_may_have_go_in_several(
    api: Any, respond: Callable[[Any], Message], operation: Any, arguments: list[Any], results: list[Any]
) -> None:
    admin = Simulated()
    everywhere(admin, api, respond)
    assert list(admin.run(operation, *arguments)) == results


def test_leaders_of_more_topics_than_a_request_may_name_are_found() -> None:
    admin = Simulated()
    everywhere(admin, METADATA, metadata)
    wanted = [(name, 0) for name in NAMES]
    assert admin.run(topics.find_leaders, wanted) == {1: wanted}


def test_log_directories_are_described_once_with_all_replicas_of_several_requests() -> None:
    admin = Simulated()
    everywhere(admin, DESCRIBE_LOG_DIRS, in_directory)
    (directory,) = admin.run(brokers.describe_log_dirs, [1], PLACES)[1]
    assert list(directory.replicas) == PLACES


def test_parts_have_no_more_elements_than_a_request_may_have() -> None:
    assert cut([]) == [[]]
    assert cut(range(5), 2) == [[0, 1], [2, 3], [4]]
    assert cut([1, 1, 9, 1, 3, 1], 4, elements=int) == [[1, 1], [9], [1, 3], [1]]


def refusing(kind: Any, refused: dict[TopicPartition, int]) -> Callable[[Any], Message]:
    """Return what answers with an error code for some partitions."""

    def respond(request: Any) -> Message:
        asked = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
        results = {each: PartitionResult(partition_index=each[1], error_code=refused.get(each, 0)) for each in asked}
        found = [
            TopicResult(name=name, partitions=[results[name, each] for each in of])
            for name, of in by_topic(asked).items()
        ]
        return kind(topics=found)

    return respond


@pytest.mark.parametrize(
    ("api", "kind", "operation", "arguments", "error", "done"),
    [
        (
            OFFSET_DELETE,
            OffsetDeleteResponse,
            group_offsets.delete_offsets,
            list,
            GroupSubscribedToTopicError,
            "deleted",
        ),
        (
            OFFSET_COMMIT,
            OffsetCommitResponse,
            group_offsets.alter_offsets,
            lambda places: dict.fromkeys(places, 7),
            UnknownTopicOrPartitionError,
            "committed",
        ),
    ],
)
def test_offsets_behind_a_partition_that_is_refused_are_done_and_counted(
    api: Any, kind: Any, operation: Any, arguments: Callable[..., Any], error: type[Exception], done: str
) -> None:
    places = PLACES[: 3 * COMMITTED_AT_ONCE]
    admin = Simulated()
    everywhere(admin, api, refusing(kind, {("clicks", 1): error.code}))  # type: ignore[attr-defined]
    text = rf"clicks-1: .*; the offsets of {len(places) - 1} other partitions were {done}$"
    with pytest.raises(error, match=text):
        admin.run(operation, "g", arguments(places))
    asked = [each for broker in admin.brokers for each in broker.requests if isinstance(each, api.request)]
    assert sum(len(topic.partitions) for each in asked for topic in each.topics) == len(places)


def test_a_group_that_refuses_later_deletions_says_how_many_were_done() -> None:
    admin = Simulated()
    answers = iter([{}, dict.fromkeys(PLACES, 0)])

    def respond(request: Any) -> Message:
        if next(answers, None) is None:
            return OffsetDeleteResponse(error_code=GroupAuthorizationError.code)
        return refusing(OffsetDeleteResponse, {})(request)

    everywhere(admin, OFFSET_DELETE, respond)
    text = f"; the offsets of {2 * COMMITTED_AT_ONCE} other partitions were deleted$"
    with pytest.raises(GroupAuthorizationError, match=text):
        admin.run(group_offsets.delete_offsets, "g", PLACES[: 5 * COMMITTED_AT_ONCE])


def test_an_election_that_is_refused_later_keeps_its_first_results() -> None:
    admin = Simulated()
    answers = iter([elected, elected])

    def respond(request: Any) -> Message:
        answer = next(answers, None)
        return controller.ElectLeadersResponse(error_code=31) if answer is None else answer(request)

    everywhere(admin, ELECT_LEADERS, respond)
    results = admin.run(reassignments.elect_leaders, reassignments.Election.PREFERRED, PLACES)
    assert [place for place, error in results.items() if error is None] == PLACES[: 2 * NAMED_AT_ONCE]
    assert {type(error) for error in results.values()} == {type(None), ClusterAuthorizationError}
    with pytest.raises(ClusterAuthorizationError):
        admin.run(reassignments.elect_leaders, reassignments.Election.PREFERRED, PLACES)


def test_records_are_deleted_behind_a_partition_that_is_refused() -> None:
    """Partition 0 keeps its records, partition 1 gets another leader."""
    admin = Simulated()
    count = NAMED_AT_ONCE + 5
    admin.topics.leaders["clicks"] = [0] * count
    codes = {0: PolicyViolationError.code, 1: NotLeaderOrFollowerError.code}
    done: set[int] = set()

    def respond(request: Any) -> Message:
        numbers = [each.partition_index for topic in request.topics for each in topic.partitions]
        found = [DeleteRecordsPartitionResult(partition_index=each, error_code=codes.get(each, 0)) for each in numbers]
        if 1 in numbers:
            codes.pop(1, None)
        done.update(each.partition_index for each in found if not each.error_code)
        return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="clicks", partitions=found)])

    everywhere(admin, DELETE_RECORDS, respond)
    with pytest.raises(PolicyViolationError, match=r"delete\.protected"):
        admin.run(partition_offsets.delete_records, {("clicks", each): 5 for each in range(count)})
    assert done == set(range(1, count))


def test_each_broker_is_asked_about_its_own_settings() -> None:
    admin = Simulated()
    asked = {}
    for broker in admin.brokers:

        def respond(request: Any, node_id: int = broker.node_id) -> Message:
            asked[node_id] = [each.resource_name for each in request.resources]
            return described(request)

        broker.handlers[DESCRIBE_CONFIGS] = respond
    assert list(admin.run(configs.describe_configs, configs.BROKER_RESOURCE, ["1", "2"])) == ["1", "2"]
    assert asked == {1: ["1"], 2: ["2"]}


def test_the_partitions_of_a_call_are_checked_without_a_text_for_each() -> None:
    operation = checked(partition_offsets.list_offsets)
    times = {("clicks", number): LATEST for number in range(20_000)}
    admin = Simulated()

    def cost_s(work: Callable[[], object]) -> float:
        began_s = time.process_time()
        work()
        return time.process_time() - began_s

    alone_s = min(cost_s(lambda: {each: repr(each) for each in times}) for _ in range(3))
    assert min(cost_s(lambda: operation(admin.core.begin(), times)) for _ in range(3)) < 12 * alone_s
