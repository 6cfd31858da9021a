"""A group with members changes its protocol: to the consumer protocol with its first member of that, back with the last."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from broker.groups.coordination import Cluster
from broker.groups.scenario import DELAY_MS, REBALANCE_MS, SESSION_MS

from kafkalake.broker.coordination.fields import string
from kafkalake.broker.groups.records import GroupRecord
from kafkalake.broker.groups.requests import GroupProtocol, JoinResult, LeavingMember, SyncRequest
from kafkalake.broker.groups.subscription import (
    encode_assignment,
    read_assignment,
    read_subscription,
)
from kafkalake.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)

PARTITIONS = 4
"""Of "clicks"."""


def subscription(*topics: str, owned: Iterable[int] = ()) -> bytes:
    """As version 1 of the embedded protocol says it."""
    parts = [struct.pack(">hi", 1, len(topics)), *map(string, topics), struct.pack(">i", -1)]
    indexes = list(owned)
    parts.append(struct.pack(">i", bool(indexes)))
    if indexes:
        parts += [string("clicks"), struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)]
    return b"".join(parts)


def says(owned: Iterable[int] = (), assignor: str = "range") -> dict[str, object]:
    return {"protocols": (GroupProtocol(assignor, subscription("clicks", owned=owned)),)}


class Rolling(Cluster):
    """A cluster with a group `g` of the classic protocol, and one consumer that does what real ones do."""

    def classic(self) -> str:
        """The one member of a stable classic group, with all partitions."""
        member_id = self.join("g", **says())[0].member_id
        joined = self.join("g", member_id, **says())
        self.advance(DELAY_MS)
        assignment = encode_assignment(1, {"clicks": list(range(PARTITIONS))})
        request = SyncRequest(member_id, joined[0].generation_id, {member_id: assignment})
        assert self.sync("g", request)[0].error is None
        return member_id

    def rejoin(self, member_id: str, owned: Iterable[int] = ()) -> JoinResult:
        (joined,) = self.join("g", member_id, **says(owned))
        return joined

    def assigned(self, member_id: str, generation: int) -> list[int]:
        (synced,) = self.sync("g", SyncRequest(member_id, generation))
        assert synced.error is None, synced
        return sorted(partition for _, partition in read_assignment(synced.assignment).partitions)

    def told_to_rejoin(self, member_id: str, generation: int) -> bool:
        try:
            self.coordinator.heartbeat("g", member_id, generation)
        except RebalanceInProgressError:
            return True
        return False

    def kind(self) -> tuple[str, str]:
        (listed,) = self.list_groups()
        return listed.group_type, listed.state


def test_the_embedded_protocol_is_read_in_all_versions() -> None:
    data = subscription("a", "b")
    assert read_subscription(data).topics == ("a", "b")
    later = struct.pack(">h", 9) + data[2:] + struct.pack(">i", 7) + string("rack") + b"what comes later"
    found = read_subscription(later)
    assert (found.version, found.rack_id, found.owned) == (9, "rack", frozenset())
    assert read_subscription(subscription("clicks", owned=[2, 0])).owned == {("clicks", 0), ("clicks", 2)}
    assigned = read_assignment(encode_assignment(1, {"a": [1, 2], "b": [0]}))
    assert assigned.partitions == {("a", 1), ("a", 2), ("b", 0)}
    assert read_subscription(data[:-8] + struct.pack(">i", 2) + b"hi" + data[-4:]).user_data == b"hi"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rolling_deploy_there_and_back(restarts: bool) -> None:
    c = Rolling()

    def next_step() -> None:
        if restarts:
            c.start()

    old = c.classic()
    # The first member of the consumer protocol comes: the group is one of that, with the member that was there.
    new = c.beat("g", "new", 0)[0]
    assert (new.error, new.member_epoch, new.assignment) == (None, 2, frozenset())
    next_step()
    assert c.kind() == ("consumer", "Reconciling")
    assert c.told_to_rejoin(old, 1)
    joined = c.rejoin(old)  # it has given everything up, as assignors do that are not cooperative
    assert (joined.error, joined.generation_id, joined.leader) == (None, 2, "")
    kept = c.assigned(old, 2)
    assert len(kept) in (1, 2)
    next_step()
    assert not c.told_to_rejoin(old, 2)
    taken = c.beat("g", "new", 2, owned=frozenset())[0].assignment
    assert taken is not None
    assert sorted(kept + [partition for _, partition in taken]) == list(range(PARTITIONS))
    assert c.kind() == ("consumer", "Stable")
    next_step()
    # The last member of the consumer protocol goes: the group is a classic one, which shares its partitions anew.
    assert c.beat("g", "new", -1)[0].error is None
    assert c.kind()[0] == "classic"
    assert c.told_to_rejoin(old, 2)
    again = c.join("g", old, **says())
    c.advance(DELAY_MS)
    assert (again[0].error, again[0].generation_id, again[0].leader) == (None, 3, old)
    next_step()
    if not restarts:
        assert c.coordinator.describe_group("g").state == "CompletingRebalance"


def test_a_cooperative_member_gives_up_before_another_takes() -> None:
    c = Rolling()
    old = c.classic()
    c.beat("g", "new", 0)
    joined = c.rejoin(old, owned=range(PARTITIONS))
    assert joined.generation_id == 1, "it has something to give up first"
    kept = c.assigned(old, 1)
    assert 0 < len(kept) < PARTITIONS
    assert c.beat("g", "new", 2, owned=frozenset())[0].assignment is None
    assert c.told_to_rejoin(old, 1)
    joined = c.rejoin(old, owned=kept)
    assert joined.generation_id == 2
    assert c.assigned(old, 2) == kept
    assert len(c.beat("g", "new", 2, owned=frozenset())[0].assignment or ()) == PARTITIONS - len(kept)


def test_a_member_that_does_not_join_or_sync_in_time_is_out() -> None:
    for joins in (False, True):
        c = Rolling()
        old = c.classic()
        c.beat("g", "new", 0)
        assert c.told_to_rejoin(old, 1)
        generation = c.rejoin(old).generation_id if joins else 1
        for _ in range(REBALANCE_MS // 1_000 + 2):
            c.advance(1_000)
            c.beat("g", "new", 2, owned=frozenset())
            try:
                c.told_to_rejoin(old, generation)
            except UnknownMemberIdError:
                break
        else:
            pytest.fail("it is still there")
        (described,) = c.consumers.describe("g").members
        assert described.member_id == "new"


def test_a_silent_member_is_out_after_its_own_session() -> None:
    c = Rolling(group_consumer_session_timeout_ms=10 * SESSION_MS)
    c.classic()
    c.beat("g", "new", 0)
    c.advance(SESSION_MS + 1_000)
    assert [member.member_id for member in c.consumers.describe("g").members] == ["new"]


def test_members_of_the_classic_protocol_join_a_group_of_the_other() -> None:
    c = Rolling()
    c.beat("g", "new", 0)
    given = c.join("g", **says())[0]
    assert given.error is MemberIdRequiredError
    joined = c.rejoin(given.member_id)
    assert (joined.error, joined.generation_id) == (None, 2)
    assert c.assigned(given.member_id, 2) == []
    assert {member.member_id: member.is_classic for member in c.consumers.describe("g").members} == {
        "new": False,
        given.member_id: True,
    }
    assert c.join("g", **says(assignor="other"))[0].error is InconsistentGroupProtocolError
    assert c.join("g", protocols=(GroupProtocol("range", b"\0"),))[0].error is InconsistentGroupProtocolError
    assert c.sync("g", SyncRequest(given.member_id, 1))[0].error is IllegalGenerationError
    assert c.sync("g", SyncRequest("new", 1))[0].error is UnknownMemberIdError
    with pytest.raises(UnknownMemberIdError):
        c.coordinator.heartbeat("g", "new", 1)
    (left,) = c.leave("g", LeavingMember(given.member_id))[0]
    assert left.error is None
    assert c.kind() == ("consumer", "Assigning")


def test_a_static_member_takes_its_own_place() -> None:
    c = Rolling()
    c.beat("g", "new", 0)
    static = {**says(), "group_instance_id": "i"}
    first = c.join("g", **static)[0]
    second = c.join("g", **static)[0]
    assert first.error is second.error is None
    assert first.member_id != second.member_id
    assert len(c.consumers.describe("g").members) == 2


def test_commits_say_the_generation() -> None:
    from broker.groups.test_group_coordinator import KEY, one

    c = Rolling()
    old = c.classic()
    c.beat("g", "new", 0)
    assert c.commit("g", one(5), member_id=old, generation_id=1) == [{KEY: None}]
    assert c.commit("g", one(6), member_id=old, generation_id=7) == [{KEY: IllegalGenerationError}]
    assert c.commit("g", one(6), member_id="new", generation_id=7) == [{KEY: StaleMemberEpochError}]
    assert c.fetched("g") == {KEY: 5}
    c.beat("g", "new", -1)
    assert c.fetched("g") == {KEY: 5}


def test_a_change_that_cannot_be_written_leaves_the_group_as_it_was() -> None:
    c = Rolling()
    old = c.classic()
    c.journal.fail_next = KafkaStorageError()
    assert c.beat("g", "new", 0)[0].error is not None
    assert c.kind() == ("classic", "Stable")
    assert not c.told_to_rejoin(old, 1)
    assert c.beat("g", "new", 0)[0].error is None
    c.journal.fail_next = KafkaStorageError()
    assert c.beat("g", "new", -1)[0].error is not None
    assert c.kind()[0] == "consumer"
    c.start()
    assert c.kind()[0] == "consumer"
    assert c.beat("g", "new", -1)[0].error is None
    assert c.kind()[0] == "classic"


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "not written"])
def test_a_change_that_is_not_made_leaves_nothing_in_memory(is_refused: bool) -> None:
    c = Rolling(group_consumer_max_size=1 if is_refused else 2)
    c.classic()
    before = c.coordinator.table.memory.bytes
    for _ in range(2):
        c.journal.fail_next = None if is_refused else KafkaStorageError()
        assert c.beat("g", "new", 0)[0].error is not None
        assert c.kind() == ("classic", "Stable")
    assert c.coordinator.table.memory.bytes == before


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [("bidirectional", True, True), ("upgrade", True, False), ("downgrade", False, True), ("disabled", False, False)],
)
def test_the_policy_says_which_way(policy: str, up: bool, down: bool) -> None:
    c = Rolling(group_consumer_migration_policy=policy)  # type: ignore[arg-type]
    c.classic()
    assert c.beat("g", "new", 0)[0].error is (None if up else GroupIdNotFoundError)
    c = Rolling(group_consumer_migration_policy=policy)  # type: ignore[arg-type]
    c.beat("g", "new", 0)
    c.rejoin(c.join("g", **says())[0].member_id)
    c.beat("g", "new", -1)
    assert c.kind()[0] == ("classic" if down else "consumer")


def test_a_group_whose_assignor_has_data_of_its_own_does_not_change() -> None:
    c = Rolling()
    data = struct.pack(">hi", 0, 1) + string("clicks") + struct.pack(">i", 1) + b"x"
    sticky = {"protocols": (GroupProtocol("sticky", data),)}
    member_id = c.join("g", **sticky)[0].member_id
    c.join("g", member_id, **sticky)
    c.advance(DELAY_MS)
    assert c.beat("g", "new", 0)[0].error is GroupIdNotFoundError
    assert c.kind() == ("classic", "CompletingRebalance")


@pytest.mark.parametrize(("metadata", "changes"), [(struct.pack(">hi", 1, 2_021_161_080), True), (b"", False)])
def test_a_subscription_that_cannot_be_read_does_no_harm(metadata: bytes, changes: bool) -> None:
    """One of a protocol that the group did not choose: a member that does not join again is answered in its version."""
    c = Rolling()
    protocols = {"protocols": (GroupProtocol("mine", metadata), GroupProtocol("range", subscription("clicks")))}
    member_id = c.join("g", **protocols)[0].member_id
    old = c.join("g", member_id, **protocols)
    other = c.join("g", c.join("g", **says())[0].member_id, **says())
    c.advance(2 * DELAY_MS)  # a member that joins has the round wait once more
    assert (old[0].protocol_name, other[0].protocol_name) == ("range", "range")
    assert c.beat("g", "new", 0)[0].error is (None if changes else GroupIdNotFoundError)
    if changes:
        assert c.kind()[0] == "consumer"
        assert c.join("g", member_id, **protocols)[0].error is InconsistentGroupProtocolError
        assert c.beat("g", "new", -1)[0].error is None
    assert c.kind()[0] == "classic"


def test_groups_of_others_than_consumers_do_not_change() -> None:
    c = Rolling()
    first = c.join("g", protocol_type="connect")[0]
    c.join("g", first.member_id, protocol_type="connect")
    c.advance(DELAY_MS)
    assert c.beat("g", "new", 0)[0].error is GroupIdNotFoundError


@pytest.mark.parametrize("restarts", [False, True])
def test_a_member_that_joins_while_the_classic_groups_end_is_on_its_way(restarts: bool) -> None:
    c = Rolling()
    old = c.classic()
    c.journal.hold = True
    c.leave("g", LeavingMember(old))
    joined = c.beat("g", "new", 0)
    assert joined == []
    c.journal.hold = False
    c.journal.release()
    assert joined[0].error is None
    if restarts:
        c.start()
    assert c.kind()[0] == "consumer"
    records = list(c.coordinator.table.records_before(c.coordinator.table.check("g"), 1 << 40))
    assert records and not any(isinstance(one, GroupRecord) for one in records)
    assert c.beat("g", "new", 1)[0].error is None
