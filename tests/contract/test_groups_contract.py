"""Groups and committed offsets: what a broker answers, the same from kafkalake and Apache Kafka."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from contract.wire_client import WireClient, code, create_topic
from waiting import wait_until

UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE, MEMBER_ID_REQUIRED = 25, 22, 27, 79
TIMEOUT_S = 20

SUBSCRIPTION = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
"""A consumer's subscription to no topic: Kafka looks into it."""


@pytest.fixture
def group(client: WireClient) -> str:
    """The name of a group that no other test uses, whose coordinator is there."""
    name = f"group-{uuid.uuid4().hex[:10]}"
    await_coordinator(client, name)
    return name


def await_coordinator(client: WireClient, group: str) -> None:
    """Wait until the broker coordinates the group."""

    def is_there() -> bool:
        found = client.call("FindCoordinator", 4, key_type=0, coordinator_keys=[group]).coordinators[0]
        if code(found.error_code):
            return False
        answer = client.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)
        return not code(answer.error_code)

    wait_until(is_there, timeout_s=TIMEOUT_S)


def join(client: WireClient, group: str, version: int = 9, member_id: str = "", **values: Any) -> Any:
    asked = {
        "group_id": group,
        "session_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }
    if version >= 1:
        asked["rebalance_timeout"] = 5_000
    return client.call("JoinGroup", version, **{**asked, **values})


def sync(client: WireClient, group: str, joined: Any, assignment: bytes = b"mine", version: int = 5) -> Any:
    values = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": assignment}],
    }
    if version >= 5:
        values.update(protocol_type="consumer", protocol_name="range")
    return client.call("SyncGroup", version, **values)


def enter(client: WireClient, group: str, **values: Any) -> Any:
    """The join of a lone member, synced."""
    first = join(client, group, **values)
    joined = join(client, group, member_id=first.member_id, **values)
    assert code(joined.error_code) == 0
    assert code(sync(client, group, joined).error_code) == 0
    return joined


def commit(client: WireClient, group: str, topic: str, *, version: int = 8, **values: Any) -> list[int]:
    partitions = values.pop("partitions", {0: 5})
    asked: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "committed_offset": offset, "committed_metadata": "note"}
                    for index, offset in partitions.items()
                ],
            }
        ],
        **values,
    }
    if version < 5:
        asked["retention_time"] = -1
    answer = client.call("OffsetCommit", version, **asked)
    partitions = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    return [code(each.error_code) for each in partitions]


def fetch(client: WireClient, group: str, topic: str, partitions: list[int]) -> list[tuple[int, str | None]]:
    answer = client.call(
        "OffsetFetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": partitions}],
        require_stable=True,
    )
    assert code(answer.error_code) == 0
    return [(each.committed_offset, each.metadata) for each in answer.topics[0].partitions]


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_leads_into_the_group(client: WireClient, group: str, version: int) -> None:
    joined = join(client, group, version)
    if version >= 4:
        assert code(joined.error_code) == MEMBER_ID_REQUIRED
        assert joined.member_id
        joined = join(client, group, version, member_id=joined.member_id)
    assert code(joined.error_code) == 0
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, SUBSCRIPTION)]


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_brings_the_assignment(client: WireClient, group: str, version: int) -> None:
    first = join(client, group)
    joined = join(client, group, member_id=first.member_id)
    answer = sync(client, group, joined, version=version)
    assert code(answer.error_code) == 0
    assert answer.assignment == b"mine"


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_says_what_is_wrong(client: WireClient, group: str, version: int) -> None:
    member = enter(client, group)

    def beat(generation: int, member_id: str) -> int:
        answer = client.call("Heartbeat", version, group_id=group, generation_id=generation, member_id=member_id)
        return code(answer.error_code)

    assert beat(1, member.member_id) == 0
    assert beat(2, member.member_id) == ILLEGAL_GENERATION
    assert beat(1, "someone else") == UNKNOWN_MEMBER


def test_a_second_member_makes_a_new_generation(client: WireClient, group: str) -> None:
    first = enter(client, group)
    with WireClient(":".join(map(str, client.socket.getpeername()))) as other:
        newcomer = join(other, group)
        other_id = other.send(
            "JoinGroup",
            9,
            group_id=group,
            session_timeout=10_000,
            rebalance_timeout=5_000,
            member_id=newcomer.member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
        )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = client.call("Heartbeat", 4, group_id=group, generation_id=1, member_id=first.member_id)
            if code(answer.error_code) == REBALANCE:
                break
            assert time.monotonic() < deadline
        again = join(client, group, member_id=first.member_id)
        second = other.receive("JoinGroup", 9, other_id)
        assert (again.generation_id, second.generation_id) == (2, 2)
        assert len(again.members) == 2
        assert second.members == []


@pytest.mark.parametrize("version", range(6))
def test_leaving_leaves_an_empty_group(client: WireClient, group: str, version: int) -> None:
    member = enter(client, group)
    values: dict[str, Any] = {"group_id": group}
    if version >= 3:
        values["members"] = [{"member_id": member.member_id, "group_instance_id": None}]
    else:
        values["member_id"] = member.member_id
    assert code(client.call("LeaveGroup", version, **values).error_code) == 0
    again = client.call("LeaveGroup", version, **values)
    error = again.members[0].error_code if version >= 3 else again.error_code
    assert code(error) == UNKNOWN_MEMBER
    described = client.call("DescribeGroups", 5, groups=[group], include_authorized_operations=False).groups[0]
    assert (described.group_state, described.members) == ("Empty", [])


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_described(client: WireClient, group: str, version: int) -> None:
    member = enter(client, group)
    (described,) = client.call("DescribeGroups", version, groups=[group]).groups
    assert code(described.error_code) == 0
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member.member_id, "wire-client", "/127.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (SUBSCRIPTION, b"mine")
    (missing,) = client.call("DescribeGroups", version, groups=[group + "-other"]).groups
    assert (code(missing.error_code), missing.group_state) == (69 if version >= 6 else 0, "Dead")
    if version >= 3:
        (asked,) = client.call("DescribeGroups", version, groups=[group], include_authorized_operations=True).groups
        assert asked.authorized_operations == 3400


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(client: WireClient, group: str, version: int) -> None:
    enter(client, group)
    listed = {each.group_id: each for each in client.call("ListGroups", version).groups}
    assert listed[group].protocol_type == "consumer"
    if version >= 4:
        assert listed[group].group_state == "Stable"
        others = client.call("ListGroups", version, states_filter=["Empty"]).groups
        assert group not in {each.group_id for each in others}


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_commits_offsets(client: WireClient, group: str, topic: str, version: int) -> None:
    create_topic(client, topic, 2)
    assert commit(client, group, topic, version=version, partitions={0: 7, 1: 8}) == [0, 0]
    assert fetch(client, group, topic, [0]) == [(7, "note")]


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_fetches_offsets(client: WireClient, group: str, topic: str, version: int) -> None:
    create_topic(client, topic, 2)
    commit(client, group, topic, partitions={1: 8})
    asked = [{"name": topic, "partition_indexes": [0, 1]}]
    values: dict[str, Any] = {"group_id": group, "topics": asked}
    if version >= 8:
        values = {"groups": [values]}
    if version >= 7:
        values["require_stable"] = True
    answer = client.call("OffsetFetch", version, **values)
    found = answer.groups[0].topics[0] if version >= 8 else answer.topics[0]
    offsets = {each.partition_index: (each.committed_offset, each.metadata) for each in found.partitions}
    assert offsets == {0: (-1, ""), 1: (8, "note")}
    assert [code(each.error_code) for each in found.partitions] == [0, 0]


def test_all_offsets_of_a_group_are_fetched_without_naming_topics(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic, 3)
    commit(client, group, topic, partitions={0: 1, 2: 3})
    answer = client.call("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}], require_stable=False)
    (found,) = answer.groups[0].topics
    assert found.name == topic
    assert sorted((each.partition_index, each.committed_offset) for each in found.partitions) == [(0, 1), (2, 3)]
    empty = client.call("OffsetFetch", 8, groups=[{"group_id": group + "-other", "topics": None}], require_stable=False)
    assert (code(empty.groups[0].error_code), empty.groups[0].topics) == (0, [])


def test_wrong_commits_change_nothing(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic, 1)
    assert commit(client, group, topic, partitions={0: 5, 9: 5}) == [0, 3]
    assert commit(client, group, topic + "-other") == [3]
    member = enter(client, group)
    wrong = {
        ILLEGAL_GENERATION: {"generation_id_or_member_epoch": 7, "member_id": member.member_id},
        UNKNOWN_MEMBER: {"generation_id_or_member_epoch": 1, "member_id": "someone else"},
    }
    for error, values in wrong.items():
        assert commit(client, group, topic, partitions={0: 99}, **values) == [error]
    assert commit(client, group, topic, partitions={0: 99}) == [UNKNOWN_MEMBER]
    too_long = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 5_000}]
    answer = client.call(
        "OffsetCommit",
        8,
        group_id=group,
        generation_id_or_member_epoch=1,
        member_id=member.member_id,
        topics=[{"name": topic, "partitions": too_long}],
    )
    assert code(answer.topics[0].partitions[0].error_code) == 12
    assert fetch(client, group, topic, [0]) == [(5, "note")]


def test_a_commit_for_a_group_that_is_not_there(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic, 1)
    values = {"generation_id_or_member_epoch": 3, "member_id": "someone"}
    assert commit(client, group, topic, version=8, **values) == [ILLEGAL_GENERATION]
    assert commit(client, group, topic, version=9, **values) == [69]


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted(client: WireClient, group: str, topic: str, version: int) -> None:
    create_topic(client, topic, 1)
    member = enter(client, group)
    missing = group + "-other"

    def delete() -> dict[str, int]:
        answer = client.call("DeleteGroups", version, groups_names=[group, missing])
        return {each.group_id: code(each.error_code) for each in answer.results}

    assert delete() == {group: 68, missing: 69}
    client.call("LeaveGroup", 3, group_id=group, members=[{"member_id": member.member_id, "group_instance_id": None}])
    commit(client, group, topic)
    assert delete() == {group: 0, missing: 69}
    assert fetch(client, group, topic, [0]) == [(-1, "")]


def test_offsets_are_deleted_one_by_one(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic, 2)
    commit(client, group, topic, partitions={0: 1, 1: 2})
    topics = [{"name": topic, "partitions": [{"partition_index": 1}, {"partition_index": 5}]}]
    answer = client.call("OffsetDelete", 0, group_id=group, topics=topics)
    assert code(answer.error_code) == 0
    assert {each.partition_index: code(each.error_code) for each in answer.topics[0].partitions} == {1: 0, 5: 3}
    assert fetch(client, group, topic, [0, 1]) == [(1, "note"), (-1, "")]
    assert code(client.call("OffsetDelete", 0, group_id=group + "-other", topics=topics).error_code) == 69


def test_a_static_member_keeps_its_place(client: WireClient, group: str) -> None:
    first = join(client, group, group_instance_id="one")
    assert code(first.error_code) == 0
    assert code(sync(client, group, first).error_code) == 0
    again = join(client, group, group_instance_id="one")
    assert (code(again.error_code), again.generation_id) == (0, 1)
    assert again.member_id != first.member_id
    old = client.call(
        "Heartbeat", 4, group_id=group, generation_id=1, member_id=first.member_id, group_instance_id="one"
    )
    assert code(old.error_code) == 82


@pytest.mark.parametrize(("timeout_ms", "error"), [(10, 26), (10_000_000, 26), (10_000, MEMBER_ID_REQUIRED)])
def test_the_session_timeout_has_bounds(client: WireClient, group: str, timeout_ms: int, error: int) -> None:
    assert code(join(client, group, session_timeout=timeout_ms).error_code) == error


def test_nobody_joins_without_a_group_id(client: WireClient, group: str) -> None:
    assert code(join(client, "").error_code) == 24


def test_the_journal_is_an_internal_topic_that_clients_do_not_write_to(client: WireClient, group: str) -> None:
    from contract.wire_client import batch, produce

    (topic,) = client.call("Metadata", 9, topics=[{"name": "__consumer_offsets"}]).topics
    assert (code(topic.error_code), topic.is_internal) == (0, True)
    assert len(topic.partitions) == 4
    answer = produce(client, "__consumer_offsets", batch([(b"k", b"v")]))
    assert code(answer.error_code) == 17
    assert "__consumer_offsets" in {each.name for each in client.call("Metadata", 9, topics=None).topics}
