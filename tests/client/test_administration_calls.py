"""What administration asks again, whom, and until when: operations against simulated brokers, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Concatenate, ParamSpec, TypeVar

import pytest
from simulated_network import SimulatedBroker, SimulatedNetwork, SimulatedTopics

from kafkalake.broker.groups.offset_requests import OFFSETS_MAX
from kafkalake.client.administration import (
    configs,
    group_offsets,
    groups,
    partition_offsets,
    reassignments,
    topics,
    transactions,
)
from kafkalake.client.administration.call import AdminCall, AdminCore
from kafkalake.client.administration.configs import BROKER_RESOURCE
from kafkalake.client.administration.partition_offsets import LATEST
from kafkalake.client.administration.settings import AdminSettings
from kafkalake.client.checked_call import checked
from kafkalake.client.network.client import FIRST_CONTACT_MS
from kafkalake.client.network.script import Script
from kafkalake.client.requests import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    ClientApi,
)
from kafkalake.client.settings import parse_settings
from kafkalake.errors import (
    BrokerUnavailableError,
    CoordinatorNotAvailableError,
    GroupAuthorizationError,
    InvalidCommitOffsetSizeError,
    NotControllerError,
    NotLeaderOrFollowerError,
    ResponseTimedOutError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkalake.topic_partition import by_topic
from kafkalake.wire.messages.cluster import MetadataRequest
from kafkalake.wire.messages.groups import FindCoordinatorResponse, ListedGroup, ListGroupsResponse
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchResponse,
    PartitionResult,
    TopicResult,
)
from kafkalake.wire.messages.records import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkalake.wire.messages.topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafkalake.wire.messages.transactions import ListTransactionsResponse, ListTransactionsTransactionState

P = ParamSpec("P")
T = TypeVar("T")


class Simulated:
    """Three brokers, the first of them the controller, with a topic of two partitions; and an administration client."""

    def __init__(self, first_contact_ms: int = FIRST_CONTACT_MS, **settings: object) -> None:
        self.brokers = [SimulatedBroker(number) for number in range(3)]
        self.topics = SimulatedTopics(self.brokers, {"clicks": [0, 1]})
        given = {"bootstrap.servers": "b0:9092,b1:9092", **settings}
        self.core = AdminCore(parse_settings(AdminSettings, given), self, Random(1), first_contact_ms)  # type: ignore[arg-type]
        self.network = SimulatedNetwork(self.core.network, self.brokers)

    def monotonic_ms(self) -> int:
        return self.network.now_ms

    def answers(self, api: ClientApi, *responses: Message, of: int = 0) -> list[Message]:
        """Have a broker give these responses in turn, the last one again and again. Return the requests as they come."""
        came: list[Message] = []

        def answer(request: Message) -> Message:
            came.append(request)
            return responses[min(len(came), len(responses)) - 1]

        self.brokers[of].handlers[api] = answer
        return came

    def run(self, operation: Callable[Concatenate[AdminCall, P], Script[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation as an edge does."""
        self.network.settle()
        script = operation(self.core.begin(), *args, **kwargs)
        try:
            while True:
                until_ms = next(script)
                self.network.settle()
                deadline_ms = self.core.network.next_deadline_ms(self.network.now_ms)
                self.network.run(max(min(until_ms, deadline_ms or until_ms) - self.network.now_ms, 1))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def created(code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="new", error_code=code, num_partitions=1)])


def deleted(**codes: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time=500, responses=[DeletableTopicResult(name=name, error_code=code) for name, code in codes.items()]
    )


def test_topics_that_a_quota_refuses_behind_others_are_deleted_once_it_allows() -> None:
    admin = Simulated()
    quota = ThrottlingQuotaExceededError.code
    came = admin.answers(
        DELETE_TOPICS,
        deleted(a=0, b=quota, c=3, d=quota),
        deleted(b=quota, d=quota),
        deleted(b=0, d=quota),
        deleted(d=0),
    )
    began_ms = admin.monotonic_ms()
    errors = admin.run(topics.delete_topics, ["a", "b", "c", "d"])
    assert {name: type(error) for name, error in errors.items()} == {"c": UnknownTopicOrPartitionError}
    asked = [tuple(each.topic_names) for each in came if isinstance(each, DeleteTopicsRequest)]
    assert asked == [("a", "b", "c", "d"), ("b", "d"), ("b", "d"), ("d",)]
    assert admin.monotonic_ms() >= began_ms + 500


def test_topics_that_a_quota_refuses_until_the_time_is_over_are_returned() -> None:
    admin = Simulated(default_api_timeout_ms=2_000)
    quota = ThrottlingQuotaExceededError.code
    admin.answers(DELETE_TOPICS, deleted(a=0, b=quota), deleted(b=quota))
    errors = admin.run(topics.delete_topics, ["a", "b"])
    assert {name: type(error) for name, error in errors.items()} == {"b": ThrottlingQuotaExceededError}


def offsets(*partitions: tuple[int, int, int]) -> ListOffsetsResponse:
    """A response of (partition, error code, offset)."""
    each = [
        ListOffsetsPartitionResponse(partition_index=at, error_code=code, offset=end) for at, code, end in partitions
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="clicks", partitions=each)])


def test_a_controller_that_has_moved_is_asked_again_and_a_refusal_is_raised_once() -> None:
    admin = Simulated()
    came = admin.answers(CREATE_TOPICS, created(NotControllerError.code), created(NotControllerError.code), created())
    assert admin.run(topics.create_topic, "new").partitions == 1
    assert len(came) == 3
    came = admin.answers(CREATE_TOPICS, created(TopicAlreadyExistsError.code))
    with pytest.raises(TopicAlreadyExistsError):
        admin.run(topics.create_topic, "new")
    assert len(came) == 1


def test_offsets_of_very_many_partitions_are_committed_in_several_requests() -> None:
    admin = Simulated()
    admin.answers(FIND_COORDINATOR, FindCoordinatorResponse(node_id=0))
    admin.answers(FIND_COORDINATOR, FindCoordinatorResponse(node_id=0), of=1)
    done: list[tuple[str, int]] = []

    def commit(request: Message) -> Message:
        assert isinstance(request, OffsetCommitRequest)
        asked = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
        code = InvalidCommitOffsetSizeError.code if len(asked) > OFFSETS_MAX else 0
        done.extend(asked)
        results = {
            name: [PartitionResult(partition_index=index, error_code=code) for index in at]
            for name, at in by_topic(asked).items()
        }
        return OffsetCommitResponse(topics=[TopicResult(name=name, partitions=each) for name, each in results.items()])

    admin.brokers[0].handlers[OFFSET_COMMIT] = commit
    many = {(topic, number): number for topic in ("clicks", "views") for number in range(OFFSETS_MAX // 2 + 1)}
    admin.run(group_offsets.alter_offsets, "g", many)
    assert done == sorted(many)
    done.clear()
    admin.run(group_offsets.alter_offsets, "g", {})
    assert done == []


def committed(*codes: int) -> OffsetCommitResponse:
    results = [PartitionResult(partition_index=index, error_code=code) for index, code in enumerate(codes)]
    return OffsetCommitResponse(topics=[TopicResult(name="clicks", partitions=results)])


@pytest.mark.parametrize("codes", [(3, 0), (0, 3), (3, 3)])
def test_offsets_of_a_topic_that_is_missing_are_refused_at_once(codes: tuple[int, int]) -> None:
    admin = Simulated()
    admin.answers(FIND_COORDINATOR, FindCoordinatorResponse(node_id=0))
    came = admin.answers(OFFSET_COMMIT, committed(*codes))
    with pytest.raises(UnknownTopicOrPartitionError, match=f"partition clicks-{codes.index(3)}"):
        admin.run(group_offsets.alter_offsets, "g", {("clicks", 0): 1, ("clicks", 1): 2})
    assert len(came) == 1


@pytest.mark.parametrize("codes", [(14, 14), (0, 14), (3, 14)])
def test_offsets_are_committed_again_while_a_coordinator_loads_whatever_partition_says_so(
    codes: tuple[int, int],
) -> None:
    admin = Simulated()
    admin.answers(FIND_COORDINATOR, FindCoordinatorResponse(node_id=0))
    came = admin.answers(OFFSET_COMMIT, committed(*codes), committed(0, 0))
    admin.run(group_offsets.alter_offsets, "g", {("clicks", 0): 1, ("clicks", 1): 2})
    assert len(came) == 2


def test_a_coordinator_is_looked_up_until_there_is_one() -> None:
    admin = Simulated()
    missing, found = (
        FindCoordinatorResponse(error_code=CoordinatorNotAvailableError.code),
        FindCoordinatorResponse(node_id=2),
    )
    for broker in range(3):
        admin.answers(FIND_COORDINATOR, missing, found, of=broker)
    came = admin.answers(OFFSET_FETCH, OffsetFetchResponse(error_code=16), OffsetFetchResponse(), of=2)
    assert admin.run(group_offsets.committed_offsets, "g") == {}
    assert len(came) == 2  # the first one was no longer the coordinator
    admin.answers(OFFSET_FETCH, OffsetFetchResponse(error_code=GroupAuthorizationError.code), of=2)
    with pytest.raises(GroupAuthorizationError, match="group 'g'"):
        admin.run(group_offsets.committed_offsets, "g")


def test_leaders_are_asked_at_once_and_looked_up_again_when_one_has_moved() -> None:
    admin = Simulated()
    moved = NotLeaderOrFollowerError.code
    first = admin.answers(LIST_OFFSETS, offsets((0, 0, 10)), offsets((0, 0, 10), (1, 0, 20)))
    second = admin.answers(LIST_OFFSETS, offsets((1, moved, -1)), of=1)
    answer = admin.brokers[1].handlers[LIST_OFFSETS]

    def moves(request: Message) -> Message | None:
        admin.topics.move("clicks", 1, 0)
        return answer(request)

    admin.brokers[1].handlers[LIST_OFFSETS] = moves
    found = admin.run(partition_offsets.list_offsets, {("clicks", 0): LATEST, ("clicks", 1): LATEST})
    assert {partition: each.offset for (_, partition), each in found.items()} == {0: 10, 1: 20}
    assert (len(first), len(second)) == (2, 1)
    for missing in ("clicks", 9), ("click", 0):
        with pytest.raises(UnknownTopicOrPartitionError, match=r"has no partition 9|did you mean 'clicks'"):
            admin.run(partition_offsets.list_offsets, {missing: LATEST})


def test_all_brokers_are_asked_one_that_is_down_again_until_the_time_is_over() -> None:
    admin = Simulated(default_api_timeout_ms=10_000)
    for broker in range(3):
        admin.answers(LIST_GROUPS, ListGroupsResponse(groups=[ListedGroup(group_id=f"g{broker}")]), of=broker)
        named = [ListTransactionsTransactionState(transactional_id=each, producer_id=7) for each in ("t", f"t{broker}")]
        admin.answers(LIST_TRANSACTIONS, ListTransactionsResponse(transaction_states=named), of=broker)
    assert [each.group_id for each in admin.run(groups.list_groups)] == ["g0", "g1", "g2"]
    moved = ListGroupsResponse(groups=[ListedGroup(group_id="g1"), ListedGroup(group_id="g2")])
    admin.answers(LIST_GROUPS, moved, of=2)
    assert [each.group_id for each in admin.run(groups.list_groups)] == ["g0", "g1", "g2"], "each once"
    found = admin.run(transactions.list_transactions)
    assert [each.transactional_id for each in found] == ["t", "t0", "t1", "t2"]
    admin.brokers[2].is_up = False
    admin.network.cut(admin.brokers[2])
    began_ms = admin.network.now_ms
    with pytest.raises(BrokerUnavailableError, match="nothing listens at b2"):
        admin.run(groups.list_groups)
    assert 8_000 <= admin.network.now_ms - began_ms <= 10_100
    admin.brokers[2].is_up = True
    assert len(admin.run(groups.list_groups)) == 3
    with pytest.raises(UnsupportedVersionError, match="CreateTopics"):
        admin.run(topics.create_topic, "new")


def test_retries_can_be_bounded() -> None:
    admin = Simulated(retries=2)
    came = admin.answers(CREATE_TOPICS, created(NotControllerError.code))
    with pytest.raises(NotControllerError):
        admin.run(topics.create_topic, "new")
    assert len(came) == 3


def test_a_broker_that_does_not_answer_is_given_up_in_time() -> None:
    admin = Simulated(default_api_timeout_ms=20_000, request_timeout_ms=8_000)
    admin.brokers[0].handlers[CREATE_TOPICS] = lambda request: None
    admin.run(topics.list_topics)
    began_ms = admin.network.now_ms
    with pytest.raises(ResponseTimedOutError, match="did not answer a CreateTopics request"):
        admin.run(topics.create_topic, "new")
    assert 13_000 <= admin.network.now_ms - began_ms <= 20_100
    admin.answers(CREATE_TOPICS, created())
    assert admin.run(topics.create_topic, "new").partitions == 1


@pytest.mark.parametrize(("first_contact_ms", "at_least_ms"), [(0, 0), (FIRST_CONTACT_MS, FIRST_CONTACT_MS)])
def test_addresses_at_which_nobody_is_are_said(first_contact_ms: int, at_least_ms: int) -> None:
    admin = Simulated(first_contact_ms)
    for broker in admin.brokers:
        broker.is_up = False
    began_ms = admin.network.now_ms
    with pytest.raises(BrokerUnavailableError, match="nothing listens at b0:9092; nothing listens at b1:9092"):
        admin.run(topics.list_topics)
    assert at_least_ms <= admin.network.now_ms - began_ms <= at_least_ms + 1_500


WRONG: list[tuple[Callable[..., Script[object]], tuple[object, ...], str]] = [
    (topics.delete_topics, ("clicks",), "delete_topics: names is a list or another collection, not 'clicks'"),
    (topics.delete_topics, ([5],), "each of delete_topics: names is of type str, not 5"),
    (topics.delete_topics, (), "delete_topics: missing a required argument: 'names'"),
    (topics.create_topic, (5,), "create_topic: name is of type str, not 5"),
    (configs.describe_configs, (2, "clicks"), "names is a list"),
    (configs.describe_configs, (BROKER_RESOURCE, ["clicks"]), "a broker is named by its id, as '0', not 'clicks'"),
    (partition_offsets.list_offsets, ({"clicks": LATEST},), "a partition is a tuple"),
    (partition_offsets.delete_records, ([("clicks", 0)],), "before is a dictionary"),
    (group_offsets.alter_offsets, ("g", {("clicks", 0): "5"}), "is of type int, not '5'"),
    (group_offsets.delete_offsets, ("g", "clicks"), "partitions is a list"),
    (reassignments.elect_leaders, ("preferd", None), "election is one of 'preferred', 'unclean', not 'preferd'"),
]


@pytest.mark.parametrize(("call", "given", "match"), WRONG)
def test_wrong_arguments_are_refused_before_a_broker_is_asked(
    call: Callable[..., Script[object]], given: tuple[object, ...], match: str
) -> None:
    """A single name of topics to delete would be those of its letters."""
    admin = Simulated()
    with pytest.raises((TypeError, ValueError), match=match):
        admin.run(checked(call), *given)
    assert all(isinstance(each, MetadataRequest) for broker in admin.brokers for each in broker.requests)
