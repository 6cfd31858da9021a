"""Groups of the consumer protocol (KIP-848) over the wire: what a broker answers, the same from kafkalake and Apache Kafka."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from contract.test_bad_commits_contract import ILLEGAL_GENERATION, Transaction, offsets_after, transaction
from contract.test_groups_contract import enter, group, join, sync
from contract.wire_client import WireClient, code, create_topic
from kafka_reference import QUICK_GROUPS

__all__ = ["group", "transaction"]

TIMEOUT_S = 20
NONE, INVALID_REQUEST, UNKNOWN_MEMBER, REBALANCE, GROUP_NOT_FOUND, NON_EMPTY = 0, 42, 25, 27, 69, 68
INCONSISTENT_PROTOCOL, UNSUPPORTED_VERSION, FENCED_INSTANCE, MEMBER_ID_REQUIRED = 23, 35, 82, 79
FENCED_EPOCH, UNRELEASED_INSTANCE, UNSUPPORTED_ASSIGNOR, STALE_EPOCH, INVALID_REGEX = 110, 111, 112, 113, 128
SUBSCRIBED, UNKNOWN_TOPIC, INVALID_GROUP_ID, GROUP_MAX_SIZE = 86, 3, 24, 81


def beat(client: WireClient, group: str, member: str, epoch: int, *, version: int = 1, **values: Any) -> Any:
    asked: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch, "topic_partitions": None}
    return client.call("ConsumerGroupHeartbeat", version, **asked | values)


def enter_consumer(client: WireClient, group: str, topic: str, member: str = "one", **values: Any) -> Any:
    joining: dict[str, Any] = {"rebalance_timeout": 60_000, "topic_partitions": [], "subscribed_topic_names": [topic]}
    answer = beat(client, group, member, 0, **joining | values)
    assert code(answer.error_code) == NONE, answer
    return answer


def create_assignable(client: WireClient, group: str, topic: str, count: int) -> uuid.UUID:
    """Create a topic, its id. Apache Kafka's group coordinator may learn of it after the broker that leads it does.

    The group is as if it had never been.
    """
    topic_id: uuid.UUID = create_topic(client, topic, count)
    deadline = time.monotonic() + TIMEOUT_S
    while not partitions(enter_consumer(client, group, topic, "early").assignment):
        assert time.monotonic() < deadline
        beat(client, group, "early", -1)
    beat(client, group, "early", -1)
    (deleted,) = client.call("DeleteGroups", 2, groups_names=[group]).results
    assert code(deleted.error_code) == NONE
    return topic_id


def describe(client: WireClient, group: str, version: int = 1) -> Any:
    (answer,) = client.call("ConsumerGroupDescribe", version, group_ids=[group]).groups
    return answer


def partitions(assignment: Any) -> list[tuple[uuid.UUID, int]]:
    return sorted((topic.topic_id, index) for topic in assignment.topic_partitions for index in topic.partitions)


def commit(client: WireClient, group: str, topic: str, member: str, epoch: int, version: int = 9) -> int:
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]}]
    answer = client.call(
        "OffsetCommit", version, group_id=group, generation_id_or_member_epoch=epoch, member_id=member, topics=topics
    )
    return code(answer.topics[0].partitions[0].error_code)


def committed(client: WireClient, group: str, topic: str, member: str | None = None, epoch: int = -1) -> int:
    """The committed offset of partition 0; an error as a negative number below -1."""
    asked = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    (answer,) = client.call("OffsetFetch", 9, groups=[asked], require_stable=True).groups
    if code(answer.error_code):
        return -1000 - code(answer.error_code)
    return int(answer.topics[0].partitions[0].committed_offset)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_is_shown_and_leaves(client: WireClient, group: str, topic: str, version: int) -> None:
    topic_id = create_assignable(client, group, topic, 3)
    answer = enter_consumer(client, group, topic, version=version, rack_id="r", instance_id="i")
    assert (answer.member_id, answer.member_epoch, answer.error_message) == ("one", 1, None)
    assert answer.heartbeat_interval == 200
    assert partitions(answer.assignment) == [(topic_id, index) for index in range(3)]

    shown = describe(client, group, version)
    assert (shown.error_message, shown.group_state, shown.group_epoch) == (None, "Stable", 1)
    assert (shown.assignment_epoch, shown.assignor_name, shown.authorized_operations) == (1, "uniform", -(2**31))
    (member,) = shown.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("one", "i", "r", 1)
    assert (member.client_id, member.client_host) == ("wire-client", "/127.0.0.1")
    assert member.subscribed_topic_names == [topic]
    assert not member.subscribed_topic_regex
    assert partitions(member.assignment) == partitions(member.target_assignment) == partitions(answer.assignment)
    assert member.assignment.topic_partitions[0].topic_name == topic
    if version >= 1:
        assert member.member_type == 1

    assert beat(client, group, "one", 1, version=version).assignment is None
    left = beat(client, group, "one", -1, version=version, instance_id="i")
    assert (code(left.error_code), left.member_id, left.member_epoch) == (NONE, "one", -1)
    shown = describe(client, group)
    assert (shown.group_state, shown.group_epoch, shown.members) == ("Empty", 2, [])


def test_an_old_client_is_given_its_member_id(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic)
    answer = enter_consumer(client, group, topic, "", version=0)
    assert len(answer.member_id) >= 22
    assert code(beat(client, group, answer.member_id, 1, version=0).error_code) == NONE
    refused = beat(client, group, "", 1, version=0)
    assert (code(refused.error_code), refused.error_message) == (INVALID_REQUEST, "MemberId can't be empty.")


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"member_id": ""}, INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": ""}, INVALID_REQUEST, "GroupId can't be empty."),
        ({"instance_id": ""}, INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": " "}, INVALID_REQUEST, "RackId can't be empty."),
        ({"rebalance_timeout": -1}, INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -3}, INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, INVALID_REQUEST, "InstanceId can't be null."),
        (
            {"server_assignor": "odd"},
            UNSUPPORTED_ASSIGNOR,
            "ServerAssignor odd is not supported. Supported assignors: uniform, range.",
        ),
        ({"subscribed_topic_regex": "("}, INVALID_REGEX, None),
        ({"member_epoch": 1}, GROUP_NOT_FOUND, None),
        ({"member_epoch": -1}, GROUP_NOT_FOUND, None),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    client: WireClient, group: str, topic: str, values: dict[str, Any], error: int, message: str | None
) -> None:
    create_topic(client, topic)
    asked: dict[str, Any] = {"group_id": group, "member_id": "one", "member_epoch": 0, "rebalance_timeout": 1000}
    asked |= {"topic_partitions": [], "subscribed_topic_names": [topic]}
    answer = client.call("ConsumerGroupHeartbeat", 1, **asked | values)
    assert code(answer.error_code) == error
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    if message is not None:
        assert answer.error_message == message
    else:
        assert answer.error_message
    assert code(describe(client, group).error_code) == GROUP_NOT_FOUND
    groups = client.call("ListGroups", 5).groups
    assert group not in [each.group_id for each in groups]


def test_members_that_are_not_known_or_late_are_told_so(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic, 2)
    enter_consumer(client, group, topic)
    assert code(beat(client, group, "two", 1).error_code) == UNKNOWN_MEMBER
    assert code(beat(client, group, "two", -1).error_code) == UNKNOWN_MEMBER
    assert code(beat(client, group, "one", 5).error_code) == FENCED_EPOCH
    assert code(beat(client, group, "one", 1).error_code) == NONE
    enter_consumer(client, group, topic, "three", instance_id="i")
    answer = beat(
        client,
        group,
        "four",
        0,
        instance_id="i",
        rebalance_timeout=1000,
        topic_partitions=[],
        subscribed_topic_names=[topic],
    )
    assert code(answer.error_code) == UNRELEASED_INSTANCE
    assert code(beat(client, group, "four", 1, instance_id="i").error_code) == FENCED_INSTANCE


def test_a_topic_that_gains_partitions_or_goes_changes_the_assignment(
    client: WireClient, group: str, topic: str
) -> None:
    topic_id = create_assignable(client, group, topic, 1)
    answer = enter_consumer(client, group, topic)
    client.call("CreatePartitions", 3, topics=[{"name": topic, "count": 3}], timeout=10_000, validate_only=False)

    def await_assignment(epoch: int, wanted: list[tuple[uuid.UUID, int]]) -> int:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = beat(client, group, "one", epoch)
            assert code(answer.error_code) == NONE
            epoch = answer.member_epoch
            if answer.assignment is not None and partitions(answer.assignment) == wanted:
                return epoch
            assert time.monotonic() < deadline
            time.sleep(0.05)

    epoch = await_assignment(answer.member_epoch, [(topic_id, index) for index in range(3)])
    assert epoch == 2
    client.call("DeleteTopics", 6, topics=[{"name": topic, "topic_id": None}], timeout=10_000)
    # The topic's partitions are to be given up, as the member then says it has.
    await_assignment(epoch, [])


def test_a_regular_expression_finds_topics_that_come_later(client: WireClient, group: str, topic: str) -> None:
    first = create_topic(client, f"{topic}-a", 1)
    create_topic(client, f"other-{topic}-a", 1)
    enter_consumer(client, group, topic, subscribed_topic_names=None, subscribed_topic_regex=f"{topic}-[ab]")

    def await_topics(epoch: int, wanted: set[uuid.UUID]) -> int:
        """Kafka looks for matching topics in the background, when a member's expression comes and now and then."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = beat(client, group, "one", epoch)
            assert code(answer.error_code) == NONE
            epoch = answer.member_epoch
            (member,) = describe(client, group).members
            if {topic_id for topic_id, _ in partitions(member.assignment)} == wanted:
                return epoch
            assert time.monotonic() < deadline
            time.sleep(0.05)

    epoch = await_topics(1, {first})
    assert describe(client, group).members[0].subscribed_topic_regex == f"{topic}-[ab]"
    second = create_topic(client, f"{topic}-b", 1)
    await_topics(epoch, {first, second})


def test_a_group_has_no_more_members_than_the_setting_says(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic)
    size = int(QUICK_GROUPS["group.consumer.max.size"])
    for number in range(size):
        enter_consumer(client, group, topic, f"member-{number}")
    values: dict[str, Any] = {"rebalance_timeout": 1000, "topic_partitions": [], "subscribed_topic_names": [topic]}
    refused = beat(client, group, "one too many", 0, **values)
    assert code(refused.error_code) == GROUP_MAX_SIZE
    assert refused.error_message == f"The consumer group has reached its maximum capacity of {size} members."
    assert len(describe(client, group).members) == size
    assert code(beat(client, group, "member-0", 1).error_code) == NONE


def test_offsets_are_committed_and_fetched_by_members_in_their_epoch(
    client: WireClient, group: str, topic: str
) -> None:
    create_topic(client, topic)
    enter_consumer(client, group, topic)
    assert commit(client, group, topic, "one", 1) == NONE
    assert commit(client, group, topic, "one", 2) == STALE_EPOCH
    assert commit(client, group, topic, "one", 0) == STALE_EPOCH
    assert commit(client, group, topic, "two", 1) == UNKNOWN_MEMBER
    assert commit(client, group, topic, "", -1) == UNKNOWN_MEMBER
    assert commit(client, group, topic, "one", 1, version=8) == UNSUPPORTED_VERSION
    assert commit(client, group, topic, "two", 1, version=8) == UNKNOWN_MEMBER
    assert commit(client, group, topic, "one", 5, version=8) == UNSUPPORTED_VERSION
    assert committed(client, group, topic, "one", 1) == 7
    assert committed(client, group, topic) == 7
    assert committed(client, group, topic, "", -1) == -1000 - UNKNOWN_MEMBER
    assert committed(client, group, topic, "one", 2) == -1000 - STALE_EPOCH
    assert committed(client, group, topic, "two", 1) == -1000 - UNKNOWN_MEMBER
    assert code(beat(client, group, "one", -1).error_code) == NONE
    assert commit(client, group, topic, "one", 1) == UNKNOWN_MEMBER
    assert commit(client, group, topic, "", -1) == NONE


def test_offsets_of_a_group_that_is_not_there(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic)
    assert committed(client, group, topic, "one", 1) == -1
    assert commit(client, group, topic, "one", 1) == GROUP_NOT_FOUND


def test_members_commit_in_transactions_in_their_epoch(transaction: Transaction) -> None:
    """A zombie of an older epoch of the group is refused as one of the classic protocol is."""
    client, group = transaction.client, transaction.group
    enter_consumer(client, group, transaction.topic)
    assert transaction.add_group() == NONE
    assert transaction.commit_offset(generation_id=2, member_id="one") == ILLEGAL_GENERATION
    assert transaction.commit_offset(generation_id=0, member_id="one") == ILLEGAL_GENERATION
    assert transaction.commit_offset(generation_id=1, member_id="two") == UNKNOWN_MEMBER
    assert transaction.commit_offset(generation_id=1, member_id="one") == NONE
    assert offsets_after(transaction, committed=True)[0] == (99, "other")
    assert committed(client, group, transaction.topic, "one", 1) == 99


def test_offsets_of_topics_that_are_read_stay_and_groups_with_members_too(
    client: WireClient, group: str, topic: str
) -> None:
    create_topic(client, topic)
    create_topic(client, f"{topic}-other")
    enter_consumer(client, group, topic)
    assert commit(client, group, f"{topic}-other", "one", 1) == NONE

    def delete_offset(name: str) -> int:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]}]
        answer = client.call("OffsetDelete", 0, group_id=group, topics=topics)
        assert code(answer.error_code) == NONE
        return code(answer.topics[0].partitions[0].error_code)

    def delete_group() -> int:
        return code(client.call("DeleteGroups", 2, groups_names=[group]).results[0].error_code)

    assert delete_offset(topic) == SUBSCRIBED
    assert delete_offset(f"{topic}-other") == NONE
    assert committed(client, group, f"{topic}-other") == -1
    assert delete_group() == NON_EMPTY
    assert code(beat(client, group, "one", -1).error_code) == NONE
    assert delete_group() == NONE
    assert delete_group() == GROUP_NOT_FOUND
    assert code(describe(client, group).error_code) == GROUP_NOT_FOUND


def test_groups_are_listed_by_type_and_state(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic)
    enter_consumer(client, group, topic)

    def listed(**filters: Any) -> list[tuple[str, str, str]]:
        groups = client.call("ListGroups", 5, **filters).groups
        return [(each.protocol_type, each.group_state, each.group_type) for each in groups if each.group_id == group]

    here = [("consumer", "Stable", "consumer")]
    assert listed() == here
    assert listed(types_filter=["consumer"]) == listed(types_filter=["Consumer"]) == here
    assert listed(types_filter=["classic"]) == []
    assert listed(states_filter=["stable"]) == here
    assert listed(states_filter=["Empty"], types_filter=["consumer"]) == []
    assert code(beat(client, group, "one", -1).error_code) == NONE
    assert listed(states_filter=["Empty"], types_filter=["consumer"]) == [("consumer", "Empty", "consumer")]


def test_each_description_is_for_groups_of_its_protocol(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic)
    found = describe(client, group)
    assert (code(found.error_code), found.error_message) == (GROUP_NOT_FOUND, f"Group {group} not found.")
    enter_consumer(client, group, topic)
    (old,) = client.call("DescribeGroups", 5, groups=[group]).groups
    assert (code(old.error_code), old.group_state, old.members) == (NONE, "Dead", [])
    (new,) = client.call("DescribeGroups", 6, groups=[group]).groups
    assert (code(new.error_code), new.group_state) == (GROUP_NOT_FOUND, "Dead")
    assert new.error_message == f"Group {group} is not a classic group."
    classic = f"{group}-classic"
    enter(client, classic)
    found = describe(client, classic)
    assert (code(found.error_code), found.error_message) == (
        GROUP_NOT_FOUND,
        f"Group {classic} is not a consumer group.",
    )
    empty = describe(client, "")
    assert code(empty.error_code) == INVALID_GROUP_ID


def test_a_group_moves_to_the_other_protocol_while_it_is_empty_and_keeps_its_offsets(
    client: WireClient, group: str, topic: str
) -> None:
    create_topic(client, topic)
    member = enter(client, group)
    assert commit(client, group, topic, member.member_id, member.generation_id) == NONE
    left = client.call("LeaveGroup", 5, group_id=group, members=[{"member_id": member.member_id}])
    assert code(left.error_code) == NONE

    assert enter_consumer(client, group, topic).member_epoch == 1
    assert describe(client, group).group_state == "Stable"
    assert committed(client, group, topic, "one", 1) == 7
    assert code(beat(client, group, "one", -1).error_code) == NONE

    assert code(join(client, group, member_id="nobody").error_code) == UNKNOWN_MEMBER
    again = enter(client, group)
    assert again.generation_id == 1
    assert committed(client, group, topic) == 7
    assert code(describe(client, group).error_code) == GROUP_NOT_FOUND
    (shown,) = client.call("DescribeGroups", 6, groups=[group]).groups
    assert shown.group_state == "Stable"


def test_a_simple_group_becomes_one_of_the_consumer_protocol(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic)
    assert commit(client, group, topic, "", -1) == NONE
    enter_consumer(client, group, topic)
    assert committed(client, group, topic, "one", 1) == 7


def test_requests_of_the_classic_protocol_do_not_reach_a_consumer_group(
    client: WireClient, group: str, topic: str
) -> None:
    create_topic(client, topic)
    enter_consumer(client, group, topic)
    enter_consumer(client, group, topic, "two", instance_id="i")
    odd = join(client, group, protocol_type="connect")
    assert code(odd.error_code) == INCONSISTENT_PROTOCOL
    assert code(join(client, group, protocols=[]).error_code) == INCONSISTENT_PROTOCOL
    beaten = client.call("Heartbeat", 4, group_id=group, generation_id=1, member_id="one")
    assert code(beaten.error_code) == UNKNOWN_MEMBER
    synced = sync(client, group, type("Joined", (), {"generation_id": 1, "member_id": "one"}))
    assert code(synced.error_code) == UNKNOWN_MEMBER
    leaving = [
        {"member_id": "nobody"},
        {"member_id": "one", "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "unknown"},
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": "one"},
        {"member_id": "two", "group_instance_id": "i"},
        {"member_id": "one"},
    ]
    left = client.call("LeaveGroup", 5, group_id=group, members=leaving)
    errors = [code(each.error_code) for each in left.members]
    assert errors == [UNKNOWN_MEMBER, FENCED_INSTANCE, UNKNOWN_MEMBER, NONE, NONE, NONE, NONE]
    assert describe(client, group).group_state == "Empty"


def test_the_broker_says_that_it_speaks_the_protocol(client: WireClient) -> None:
    for version in (3, 4):
        answer = client.call("ApiVersions", version, client_software_name="a", client_software_version="1")
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        assert finalized["group.version"] == (1, 1)
        assert answer.finalized_features_epoch >= 0
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        assert supported.get("group.version") == (None if version < 4 else (0, 1))
    keys = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert (keys[68], keys[69]) == ((0, 1), (0, 1))
