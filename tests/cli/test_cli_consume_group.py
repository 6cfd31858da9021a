"""A member of `consume --group` whose commit is refused: what it has printed is not printed again where it is still its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_reference import BrokerProcess, create_topic

from kafkalake.cli import consume_group
from kafkalake.cli.consume_group import GroupPositions
from kafkalake.client import group_member
from kafkalake.client.cluster import Cluster
from kafkalake.client.coordinators import GROUP, coordinator
from kafkalake.client.group_admin import commit_offsets, committed_offsets, describe_group
from kafkalake.client.requests import LEAVE_GROUP
from kafkalake.wire.messages.groups import LeaveGroupRequest


@pytest.fixture
def cluster(any_broker: BrokerProcess, topic: str) -> Iterator[Cluster]:
    create_topic(any_broker, topic)
    with Cluster(any_broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(autouse=True)
def everything_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_group, "COMMIT_INTERVAL_S", 0)
    monkeypatch.setattr(group_member, "HEARTBEAT_INTERVAL_MS", 0)


def member_of(cluster: Cluster, topic: str) -> GroupPositions:
    return GroupPositions(cluster, topic, f"g-{topic}", True, True, True, False)


def remove_members(cluster: Cluster, group: str) -> None:
    """As the coordinator does with members that it does not hear of."""
    for member in describe_group(cluster, group).members:
        values = LeaveGroupRequest(group_id=group, member_id=member.member_id)
        coordinator(cluster, GROUP, group)[1].request(LEAVE_GROUP, values)


def committed(cluster: Cluster, topic: str) -> int | None:
    found = committed_offsets(cluster, f"g-{topic}").get((topic, 0))
    return None if found is None else found.offset


@pytest.mark.parametrize("first", [None, 2])
def test_what_could_not_be_committed_is_when_the_partition_is_this_member_s_again(
    cluster: Cluster, topic: str, first: int | None
) -> None:
    reader = member_of(cluster, topic)
    if first is not None:
        reader.printed(0, first)
        reader.turn()
        assert committed(cluster, topic) == first
    reader.printed(0, 5)
    remove_members(cluster, f"g-{topic}")
    reader.turn()
    assert reader.fetcher.positions == {0: 5}
    assert committed(cluster, topic) == 5
    reader.close()


@pytest.mark.parametrize("theirs", [3, 7])
def test_what_others_have_committed_in_between_counts(cluster: Cluster, topic: str, theirs: int) -> None:
    reader = member_of(cluster, topic)
    reader.printed(0, 5)
    remove_members(cluster, f"g-{topic}")
    commit_offsets(cluster, f"g-{topic}", {(topic, 0): theirs})
    reader.turn()
    assert reader.fetcher.positions == {0: theirs}
    assert committed(cluster, topic) == theirs
    reader.close()


def test_a_partition_that_is_another_member_s_is_not_committed(
    cluster: Cluster, any_broker: BrokerProcess, topic: str
) -> None:
    reader = member_of(cluster, topic)
    reader.printed(0, 5)
    remove_members(cluster, f"g-{topic}")
    with Cluster(any_broker.bootstrap_servers) as another:
        member_of(another, topic)
        assert not reader._member.commit({0: 5})
        assert committed(cluster, topic) is None
