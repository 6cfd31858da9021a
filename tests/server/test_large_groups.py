"""Groups of very many members, and very many groups: describing them holds nobody up, and shows one moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from contract.test_groups_contract import await_coordinator
from contract.wire_client import WireClient, create_topic
from longest_turn import longest_turn
from node_in_thread import NodeInThread

from kafkalake.broker.broker import Broker
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.consumer_records import (
    Current,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    Subscription,
    SubscriptionRecord,
    TargetEpochRecord,
    TargetRecord,
)
from kafkalake.broker.groups.records import GroupRecord, MemberRecord

pytestmark = pytest.mark.process

MEMBERS, GROUPS = 20_000, 1_000
LISTED_MS_MAX = 30
"""All groups are listed in one turn: 7 ms of processor time, more than 20 on a slow machine."""
METADATA, ASSIGNMENT = b"m" * 500, b"a" * 1_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    """A broker with groups of which only the members are real: no client sends their heartbeats, and no timer waits for these."""
    settings = {"offsets.topic.num.partitions": "1"}
    with NodeInThread(tmp_path_factory.mktemp("groups") / "lake", settings) as broker:
        with WireClient(broker.servers) as client:
            create_topic(client, "t", 4)
            await_coordinator(client, "g")
        broker.on_loop(lambda: _fill(broker.broker))
        yield broker


def _fill(broker: Broker) -> None:
    table = broker.groups.coordinator.table
    classic = table.find_or_create("classic", 0).group
    assert isinstance(classic, ClassicGroup)
    _restore(classic, MEMBERS)
    for number in range(GROUPS):
        group = table.find_or_create(f"small-{number}", 0).group
        assert isinstance(group, ClassicGroup)
        _restore(group, 3)
    consumers = table.become_consumer_group(table.find_or_create("consumers", 0))
    topic_id = broker.topics.topic("t").topic_id
    consumers.state.follow(EpochRecord("consumers", GroupEpoch(7)))
    consumers.state.follow(TargetEpochRecord("consumers", 7))
    for number in range(MEMBERS):
        assigned = frozenset({(topic_id, number % 4), (topic_id, (number + 1) % 4)})
        one = Subscription(None, None, f"client-{number}", "/127.0.0.1", ("t", f"t-{number}"), None, 60_000, "uniform")
        consumers.state.follow(SubscriptionRecord("consumers", f"m{number}", one))
        consumers.state.follow(TargetRecord("consumers", f"m{number}", assigned))
        consumers.state.follow(CurrentRecord("consumers", f"m{number}", Current(epoch=7, assigned=assigned)))


def _restore(group: ClassicGroup, members: int) -> None:
    named = [f"m{number}" for number in range(members)]
    recorded = tuple(
        MemberRecord(name, None, f"client of {name}", "/127.0.0.1", 60_000, 60_000, METADATA, ASSIGNMENT)
        for name in named
    )
    group.restore(GroupRecord(group.group_id, "consumer", 5, "range", named[0], 0, recorded))


def test_the_description_of_a_large_classic_group_holds_nobody_up(broker: NodeInThread) -> None:
    with WireClient(broker.servers) as client:

        def describe() -> None:
            (group,) = client.call("DescribeGroups", 5, groups=["classic"], include_authorized_operations=False).groups
            assert (group.group_state, len(group.members)) == ("Stable", MEMBERS)
            last = group.members[-1]
            assert (last.member_id, last.client_id) == (f"m{MEMBERS - 1}", f"client of m{MEMBERS - 1}")
            assert (bytes(last.member_metadata), bytes(last.member_assignment)) == (METADATA, ASSIGNMENT)

        assert longest_turn(broker, describe).is_short


def test_the_description_of_a_large_group_of_the_consumer_protocol_holds_nobody_up(broker: NodeInThread) -> None:
    with WireClient(broker.servers) as client:

        def describe() -> None:
            asked: dict[str, Any] = {"group_ids": ["consumers"], "include_authorized_operations": False}
            (group,) = client.call("ConsumerGroupDescribe", 1, **asked).groups
            assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 7, "uniform")
            assert len(group.members) == MEMBERS
            last = group.members[-1]
            assert (last.member_id, last.member_epoch) == (f"m{MEMBERS - 1}", 7)
            assert [list(each.partitions) for each in last.assignment.topic_partitions] == [[0, 3]]

        assert longest_turn(broker, describe).is_short


def test_many_groups_are_listed_and_described_and_hold_nobody_up(broker: NodeInThread) -> None:
    names = [f"small-{number}" for number in range(GROUPS)]
    with WireClient(broker.servers) as client:

        def list_groups() -> None:
            listed = client.call("ListGroups", 5, states_filter=[], types_filter=[]).groups
            assert {each.group_id for each in listed} >= {*names, "classic", "consumers"}

        def describe() -> None:
            groups = client.call("DescribeGroups", 5, groups=names, include_authorized_operations=True).groups
            assert [len(group.members) for group in groups] == [3] * GROUPS

        assert longest_turn(broker, list_groups, LISTED_MS_MAX).is_short
        assert longest_turn(broker, describe).is_short


def test_a_description_shows_the_moment_at_which_it_was_asked_for(broker: NodeInThread) -> None:
    """Its members are described while it is encoded, when they may have changed."""

    def look() -> tuple[list[Any], list[Any]]:
        groups = broker.broker.groups
        groups.coordinator.table.find_or_create("changing", 0)
        classic, consumers = (
            groups.coordinator.table.find_or_create(name, 0).group for name in ("small-0", "consumers")
        )
        described = groups.coordinator.describe_group("small-0").members, groups.consumers.describe("consumers").members
        before = described[0][0], described[1][0]
        classic.roster.get("m0").assignment = b"later"
        classic.roster.remove(classic.roster.get("m1"))
        consumers.state.follow(CurrentRecord("consumers", "m0", None))
        consumers.state.follow(SubscriptionRecord("consumers", "m1", None))
        assert (described[0][0], described[1][0]) == before
        return [each.member_id for each in described[0]], [each.member_id for each in described[1]]

    of_classic, of_consumers = broker.on_loop(look)
    assert of_classic == ["m0", "m1", "m2"]
    assert of_consumers == [f"m{number}" for number in range(MEMBERS)]
