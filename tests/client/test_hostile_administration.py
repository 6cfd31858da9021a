"""Brokers that answer an administration client what no broker should: each call ends in its time, in a clear error or a result.

Responses say too little, too much, or something about others; errors are unknown ones or come in parts; bytes are cut and changed;
answers do not come. Once brokers answer as they should the next call returns what it did at first.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from client.test_administration_calls import Simulated
from client.test_hostile_brokers import CHANGES, Hostile, hostile
from long_runs import ALL

from kafkalake.client.administration import (
    brokers,
    configs,
    delayed,
    group_offsets,
    groups,
    partition_offsets,
    reassignments,
    topics,
    transactions,
)
from kafkalake.client.requests import (
    ALTER_PARTITION_REASSIGNMENTS,
    CONSUMER_GROUP_DESCRIBE,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DELETE_TOPICS_BY_ID,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELAYED,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    ELECT_LEADERS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    UNREGISTER_BROKER,
    WRITE_TXN_MARKERS,
    ClientApi,
)
from kafkalake.errors import KafkaLakeError
from kafkalake.wire.messages import cluster as of_cluster
from kafkalake.wire.messages import controller as of_controller
from kafkalake.wire.messages import delayed as of_delayed
from kafkalake.wire.messages import groups as of_groups
from kafkalake.wire.messages import offsets as of_offsets
from kafkalake.wire.messages import records as of_records
from kafkalake.wire.messages import topics as of_topics
from kafkalake.wire.messages import transactions as of_transactions
from kafkalake.wire.messages.codec import encode_response
from kafkalake.wire.messages.message import Message

__all__ = ["hostile"]

pytestmark = pytest.mark.exhaustive

TIMEOUT_MS = 10_000
SEEDS = range(200 if ALL else 4)
TOPIC, ID = "clicks", UUID(int=7)
P0, P1 = (TOPIC, 0), (TOPIC, 1)
CODES = (-1, 1, 3, 5, 6, 14, 15, 16, 25, 29, 35, 36, 41, 69, 84, 87, 999, 32_767)
NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 77, 32_767)


class Operation(NamedTuple):
    """A call, its arguments, and what brokers answer: by API."""

    call: Callable[..., Any]
    given: tuple[Any, ...]
    answers: dict[ClientApi[Any, Any], Message]


COORDINATOR = {FIND_COORDINATOR: of_groups.FindCoordinatorResponse(node_id=2)}
NO_CONSUMER_GROUP = of_groups.ConsumerGroupDescribeResponse(
    groups=[of_groups.ConsumerGroupDescribeDescribedGroup(group_id="g", error_code=69)]
)


def in_topic(kind: Any, parts: Sequence[Message], topic: str = "name", partitions: str = "partitions") -> list[Any]:
    return [kind(**{topic: TOPIC, partitions: list(parts)})]


def offsets_of(kind: Any, **offset: int) -> dict[int, Message]:
    return {each: kind(partition_index=each, **offset) for each in (0, 1)}


def listed(partition: int) -> of_records.ListOffsetsResponse:
    part = of_records.ListOffsetsPartitionResponse(partition_index=partition, offset=10, timestamp=5)
    return of_records.ListOffsetsResponse(topics=in_topic(of_records.ListOffsetsTopicResponse, [part]))


def deleted(partition: int) -> of_records.DeleteRecordsResponse:
    part = of_records.DeleteRecordsPartitionResult(partition_index=partition, low_watermark=3)
    return of_records.DeleteRecordsResponse(topics=in_topic(of_records.DeleteRecordsTopicResult, [part]))


def operations() -> Iterator[Operation]:
    cluster, controller = of_cluster, of_controller
    yield Operation(topics.list_topics, (), {})
    yield Operation(topics.describe_topic, (TOPIC,), {})
    yield Operation(brokers.list_brokers, (), {})
    yield Operation(brokers.cluster_id, (), {})
    created = of_topics.CreatableTopicResult(name="new", num_partitions=1, replication_factor=1, topic_id=ID)
    yield Operation(topics.create_topic, ("new",), {CREATE_TOPICS: of_topics.CreateTopicsResponse(topics=[created])})
    gone = [of_topics.DeletableTopicResult(name=each) for each in (TOPIC, "b")]
    yield Operation(
        topics.delete_topics, ([TOPIC, "b"],), {DELETE_TOPICS: of_topics.DeleteTopicsResponse(responses=gone)}
    )
    gone = [of_topics.DeletableTopicResult(name=TOPIC, topic_id=ID)]
    yield Operation(topics.delete_topic, (ID,), {DELETE_TOPICS_BY_ID: of_topics.DeleteTopicsResponse(responses=gone)})
    more = [of_topics.CreatePartitionsTopicResult(name=TOPIC)]
    yield Operation(
        topics.create_partitions, (TOPIC, 9), {CREATE_PARTITIONS: of_topics.CreatePartitionsResponse(results=more)}
    )
    entry = of_topics.DescribedConfig(name="retention.ms", value="1", config_source=1)
    described = [
        of_topics.DescribeConfigsResult(resource_type=2, resource_name=each, configs=[entry]) for each in (TOPIC, "b")
    ]
    yield Operation(
        configs.describe_configs,
        (configs.TOPIC_RESOURCE, [TOPIC, "b"]),
        {DESCRIBE_CONFIGS: of_topics.DescribeConfigsResponse(results=described)},
    )
    altered = of_topics.AlterConfigsResourceResponse(resource_type=4, resource_name="1")
    yield Operation(
        configs.alter_configs,
        (configs.BROKER_RESOURCE, "1"),
        {INCREMENTAL_ALTER_CONFIGS: of_topics.IncrementalAlterConfigsResponse(responses=[altered])},
    )
    yield Operation(partition_offsets.list_offsets, ({P0: -1, P1: 5},), {})
    yield Operation(partition_offsets.delete_records, ({P0: 3, P1: 3},), {})
    found = [of_groups.ListedGroup(group_id="g", protocol_type="consumer", group_state="Empty", group_type="classic")]
    yield Operation(groups.list_groups, (), {LIST_GROUPS: of_groups.ListGroupsResponse(groups=found)})
    member = of_groups.DescribedGroupMember(member_id="m", client_id="c", client_host="h", member_assignment=b"\0\1")
    group = of_groups.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member]
    )
    yield Operation(
        groups.describe_group,
        ("g",),
        COORDINATOR
        | {
            CONSUMER_GROUP_DESCRIBE: NO_CONSUMER_GROUP,
            DESCRIBE_GROUPS: of_groups.DescribeGroupsResponse(groups=[group]),
        },
    )
    assigned = of_groups.Assignment(
        topic_partitions=[of_groups.TopicPartitions(topic_id=ID, topic_name=TOPIC, partitions=[0, 1])]
    )
    newer = of_groups.ConsumerGroupDescribeDescribedGroup(
        group_id="g",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="uniform",
        members=[of_groups.Member(member_id="m", assignment=assigned, target_assignment=assigned)],
    )
    yield Operation(
        groups.describe_group,
        ("g",),
        COORDINATOR | {CONSUMER_GROUP_DESCRIBE: of_groups.ConsumerGroupDescribeResponse(groups=[newer])},
    )
    removed = of_groups.DeleteGroupsResponse(results=[of_groups.DeletableGroupResult(group_id="g")])
    yield Operation(groups.delete_group, ("g",), COORDINATOR | {DELETE_GROUPS: removed})
    yield Operation(groups.remove_member, ("g", "m"), COORDINATOR | {LEAVE_GROUP: of_groups.LeaveGroupResponse()})
    parts = offsets_of(of_offsets.OffsetFetchResponsePartition, committed_offset=5, committed_leader_epoch=1)
    committed = in_topic(of_offsets.OffsetFetchResponseTopic, list(parts.values()))
    yield Operation(
        group_offsets.committed_offsets,
        ("g",),
        COORDINATOR | {OFFSET_FETCH: of_offsets.OffsetFetchResponse(topics=committed)},
    )
    done = in_topic(of_offsets.TopicResult, list(offsets_of(of_offsets.PartitionResult).values()))
    yield Operation(
        group_offsets.alter_offsets,
        ("g", {P0: 1, P1: 2}),
        COORDINATOR | {OFFSET_COMMIT: of_offsets.OffsetCommitResponse(topics=done)},
    )
    yield Operation(
        group_offsets.delete_offsets,
        ("g", [P0, P1]),
        COORDINATOR | {OFFSET_DELETE: of_offsets.OffsetDeleteResponse(topics=done)},
    )
    transaction = of_transactions.ListTransactionsTransactionState(
        transactional_id="x", producer_id=5, transaction_state="Ongoing"
    )
    yield Operation(
        transactions.list_transactions,
        (),
        {LIST_TRANSACTIONS: of_transactions.ListTransactionsResponse(transaction_states=[transaction])},
    )
    state = of_transactions.TransactionState(
        transactional_id="x",
        transaction_state="Ongoing",
        producer_id=5,
        topics=[of_transactions.TopicData(topic=TOPIC, partitions=[0, 1])],
    )
    yield Operation(
        transactions.describe_transaction,
        ("x",),
        COORDINATOR | {DESCRIBE_TRANSACTIONS: of_transactions.DescribeTransactionsResponse(transaction_states=[state])},
    )
    producer = of_transactions.ProducerState(producer_id=5, producer_epoch=1)
    active = of_transactions.PartitionResponse(partition_index=0, active_producers=[producer])
    yield Operation(
        transactions.describe_producers,
        P0,
        {
            DESCRIBE_PRODUCERS: of_transactions.DescribeProducersResponse(
                topics=in_topic(of_transactions.TopicResponse, [active])
            )
        },
    )
    written = of_transactions.WritableTxnMarkerResult(
        producer_id=5,
        topics=in_topic(
            of_transactions.WritableTxnMarkerTopicResult,
            [of_transactions.WritableTxnMarkerPartitionResult(partition_index=0)],
        ),
    )
    yield Operation(
        lambda call: transactions.write_abort_marker(call, *P0, producer_id=5, producer_epoch=1, coordinator_epoch=0),
        (),
        {WRITE_TXN_MARKERS: of_transactions.WriteTxnMarkersResponse(markers=[written])},
    )
    yield Operation(
        lambda call: transactions.fence_producer(call, "x", timeout_ms=1_000),
        (),
        COORDINATOR | {INIT_PRODUCER_ID: of_transactions.InitProducerIdResponse(producer_id=5)},
    )
    journal = of_delayed.DescribedJournal(partition_index=0, is_loaded=True, waiting=3, next_due=5)
    yield Operation(
        delayed.delayed_metrics, (), {DESCRIBE_DELAYED: of_delayed.DescribeDelayedResponse(partitions=[journal])}
    )
    whole = cluster.DescribeClusterResponse(
        cluster_id="simulated",
        controller_id=0,
        brokers=[cluster.DescribeClusterBroker(broker_id=each, host=f"b{each}", port=9092) for each in range(3)],
    )
    yield Operation(brokers.describe_cluster, (), {DESCRIBE_CLUSTER: whole})
    voters = [controller.QuorumReplicaState(replica_id=each, log_end_offset=5) for each in range(3)]
    partition = controller.QuorumPartitionState(partition_index=0, leader_id=0, current_voters=voters)
    quorum = controller.QuorumTopicState(topic_name="__cluster_metadata", partitions=[partition])
    yield Operation(brokers.describe_quorum, (), {DESCRIBE_QUORUM: controller.DescribeQuorumResponse(topics=[quorum])})
    replica = cluster.DescribeLogDirsPartition(partition_index=0, partition_size=100)
    directory = cluster.DescribeLogDirsResult(log_dir="/d", topics=in_topic(cluster.DescribeLogDirsTopic, [replica]))
    yield Operation(
        brokers.describe_log_dirs, ([0, 1],), {DESCRIBE_LOG_DIRS: cluster.DescribeLogDirsResponse(results=[directory])}
    )
    yield Operation(brokers.unregister_broker, (9,), {UNREGISTER_BROKER: controller.UnregisterBrokerResponse()})
    ready = [
        cluster.PartitionMetadata(partition_index=each, leader_id=0, eligible_leader_replicas=[1], last_known_elr=[])
        for each in (0, 1)
    ]
    eligible = cluster.TopicMetadata(name=TOPIC, topic_id=ID, partitions=ready)
    cursor = cluster.Cursor(topic_name=TOPIC, partition_index=1)
    for next_cursor in (None, cursor):
        answer = cluster.DescribeTopicPartitionsResponse(topics=[eligible], next_cursor=next_cursor)
        yield Operation(brokers.eligible_leaders, ([TOPIC],), {DESCRIBE_TOPIC_PARTITIONS: answer})
    moving = controller.OngoingPartitionReassignment(partition_index=0, replicas=[0, 1], adding_replicas=[1])
    yield Operation(
        reassignments.list_reassignments,
        (),
        {
            LIST_PARTITION_REASSIGNMENTS: controller.ListPartitionReassignmentsResponse(
                topics=in_topic(controller.OngoingTopicReassignment, [moving])
            )
        },
    )
    moved = offsets_of(controller.ReassignablePartitionResponse).values()
    yield Operation(
        reassignments.alter_reassignments,
        ({P0: [0], P1: [1]},),
        {
            ALTER_PARTITION_REASSIGNMENTS: controller.AlterPartitionReassignmentsResponse(
                responses=in_topic(controller.ReassignableTopicResponse, list(moved))
            )
        },
    )
    elected = [controller.ElectLeadersPartitionResult(partition_id=each) for each in (0, 1)]
    yield Operation(
        reassignments.elect_leaders,
        (reassignments.Election.PREFERRED, [P0, P1]),
        {
            ELECT_LEADERS: controller.ElectLeadersResponse(
                replica_election_results=in_topic(
                    controller.ReplicaElectionResult, elected, "topic", "partition_result"
                )
            )
        },
    )


OPERATIONS = list(operations())


def sites(message: Message) -> list[tuple[Message, str]]:
    """The fields of a message and of the messages in it."""
    found = [(message, name) for name in message.defaults if name != "throttle_time"]
    for name in message.defaults:
        value = getattr(message, name)
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, Message):
                found += sites(each)
    return found


def other(value: Any, name: str, random: Random) -> Any:
    """Another value for a field."""
    if name.endswith("error_code"):
        return random.choice(CODES)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice(NUMBERS)
    if isinstance(value, list | tuple):
        shuffled = random.sample(list(value), len(value))
        return random.choice([[], shuffled[:-1], [*value, *copy.deepcopy(shuffled)], None])
    return random.choice([None, "another", ""])


def changed(response: Message, random: Random) -> Message:
    """A response some of whose fields say something else."""
    found = copy.deepcopy(response)
    for _ in range(random.randint(1, 3)):
        message, name = random.choice(sites(found))
        setattr(message, name, other(getattr(message, name), name, random))
    return found


class Brokers(Simulated):
    """Brokers that answer one operation, and while `random` is set, a part of their answers is none that they should give."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(default_api_timeout_ms=TIMEOUT_MS, request_timeout_ms=2_000, retry_backoff_max_ms=2_000)
        self.random: Random | None = None
        metadata = self.brokers[0].handlers[METADATA]
        for index, broker in enumerate(self.brokers):
            for api, response in operation.answers.items():
                broker.handlers[api] = self._answering(api, lambda request, response=response: response)
            if index < 2:
                broker.handlers[LIST_OFFSETS] = self._answering(LIST_OFFSETS, lambda _, index=index: listed(index))
                broker.handlers[DELETE_RECORDS] = self._answering(DELETE_RECORDS, lambda _, index=index: deleted(index))
            broker.handlers[METADATA] = self._answering(METADATA, metadata)
        if operation.call is brokers.eligible_leaders:
            (answer,) = operation.answers.values()
            self._page(answer)

    def _page(self, answer: Any) -> None:
        """Answer with a cursor once only."""
        last = of_cluster.DescribeTopicPartitionsResponse(topics=answer.topics)
        for broker in self.brokers:
            broker.handlers[DESCRIBE_TOPIC_PARTITIONS] = self._answering(
                DESCRIBE_TOPIC_PARTITIONS, lambda request: answer if request.cursor is None else last
            )

    def _answering(
        self, api: ClientApi[Any, Any], answer: Callable[[Any], Message | None]
    ) -> Callable[[Any], Message | None]:
        def found(request: Any) -> Message | None:
            response = answer(request)
            if self.random is None or response is None or self.random.random() < 0.4:
                return response
            if self.random.random() < 0.05:
                return None
            while True:
                wrong = changed(response, self.random)
                with contextlib.suppress(Exception):  # no bytes say this
                    for version in range(api.lowest, api.highest + 1):
                        encode_response(api.key, version, 0, wrong)
                    return wrong

        return found

    def connect_again(self) -> None:
        """A connection keeps the versions that the broker named at its begin, and metadata stay until they are asked for again."""
        for broker in self.brokers:
            self.network.cut(broker)
        self.network.run(3_000)

    def ask(self, operation: Operation) -> tuple[Any, int]:
        """The result or the error of a call, and the milliseconds that it took."""
        began_ms = self.network.now_ms
        try:
            found = self.run(operation.call, *operation.given)
        except KafkaLakeError as error:
            assert str(error), "an error says what it is"
            found = error
        return found, self.network.now_ms - began_ms


def name_of(operation: Operation) -> str:
    return "/".join([operation.call.__name__, *(api.name for api in operation.answers)])


@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_an_operation_ends_in_its_time_whatever_brokers_answer(hostile: Hostile, operation: Operation) -> None:
    admin = Brokers(operation)
    right, _ = admin.ask(operation)
    assert not isinstance(right, KafkaLakeError)
    for seed in SEEDS:
        for change in (None, *CHANGES):
            if change is None:
                admin.random = Random(seed)
            else:
                hostile.begin(change, seed)
            for _ in range(3):
                _, took_ms = admin.ask(operation)
                assert took_ms <= TIMEOUT_MS + 2_500, (seed, change)
            admin.random = None
            hostile.end()
            admin.connect_again()
            assert admin.ask(operation)[0] == right, (seed, change)


MAY_BE_EMPTY = {
    DESCRIBE_CLUSTER,
    DESCRIBE_DELAYED,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    INIT_PRODUCER_ID,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    OFFSET_FETCH,
    UNREGISTER_BROKER,
}
"""APIs whose response may have nothing in it."""


@pytest.mark.parametrize(
    "operation", [each for each in OPERATIONS if {*each.answers} - {*COORDINATOR} - MAY_BE_EMPTY], ids=name_of
)
def test_a_response_that_says_nothing_about_what_was_asked_is_no_success(operation: Operation) -> None:
    admin = Brokers(operation)
    api = list(operation.answers)[-1]
    for broker in admin.brokers:
        broker.handlers[api] = lambda request: api.response()
    found, _ = admin.ask(operation)
    if isinstance(found, dict):
        found = next(iter(found.values()), None)
    assert isinstance(found, KafkaLakeError), found
    assert TOPIC in str(found) or "says nothing about" in str(found)


def test_partitions_that_no_leader_answers_for_are_no_success() -> None:
    for call, given in (
        (partition_offsets.list_offsets, {P0: -1, P1: -1}),
        (partition_offsets.delete_records, {P0: 3, P1: 3}),
    ):
        admin = Brokers(Operation(call, (given,), {}))
        for api, wrong in ((LIST_OFFSETS, listed(0)), (DELETE_RECORDS, deleted(0))):
            admin.brokers[1].handlers[api] = lambda request, wrong=wrong: wrong
        found, _ = admin.ask(Operation(call, (given,), {}))
        assert isinstance(found, KafkaLakeError) and "clicks-1" in str(found)
