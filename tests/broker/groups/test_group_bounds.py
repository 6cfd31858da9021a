"""What grows in the memory of the group coordinator has a limit: for each member, for a group, and in sum."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from broker.groups.coordination import Cluster
from broker.groups.scenario import DELAY_MS
from steps import count_steps

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.coordination.table import MetadataMemory
from kafkalake.broker.groups.consumer_checks import REGEXES_MAX
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.offset_requests import OffsetToCommit
from kafkalake.broker.groups.offsets import GroupOffsets, offset_bytes
from kafkalake.broker.groups.records import CommittedOffset
from kafkalake.broker.groups.requests import GroupProtocol, LeavingMember, SyncRequest
from kafkalake.broker.groups.roster import Member, Roster
from kafkalake.broker.groups.table import Group
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    MemberIdRequiredError,
)
from kafkalake.server.handlers import offset_fetch
from kafkalake.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup

NOT_REQUIRED = {"member_id_required": False}


def saying(size: int) -> dict[str, object]:
    """The changes to a join whose member says so many bytes of itself."""
    return {"protocols": (GroupProtocol("range", bytes(size - len("range"))),), "member_id_required": False}


def test_a_member_says_no_more_of_itself_than_is_allowed() -> None:
    c = Cluster(group_member_metadata_max_bytes=1_000)
    assert c.join("g", **saying(1_001))[0].error is InvalidRequestError
    assert len(c.coordinator.table) == 0
    c.join("g", **saying(1_000))
    c.advance(DELAY_MS)
    assert c.coordinator.describe_group("g").state == "CompletingRebalance"


def test_the_members_of_a_group_and_of_all_groups_have_a_limit_before_they_sync() -> None:
    c = Cluster(group_metadata_max_bytes=250_000, group_coordinator_metadata_max_bytes=405_000)
    for _ in range(2):
        c.join("g", **saying(100_000))
    assert c.join("g", **saying(100_000))[0].error is GroupMaxSizeReachedError
    c.join("other", **saying(100_000))
    assert c.join("third", **saying(105_000))[0].error is CoordinatorNotAvailableError
    c.join("third", **saying(99_000))
    c.advance(600_000)  # nobody syncs: all are gone, and so is what they said
    for group in ("fourth", "fifth"):
        assert c.join(group, **saying(200_000)) == []


def test_a_member_that_comes_again_counts_once() -> None:
    c = Cluster(group_coordinator_metadata_max_bytes=3_000)
    joined = c.join("g", **saying(1_000))
    c.advance(DELAY_MS)
    member_id = joined[0].member_id
    for size in (900, 1_000, 950):
        again = c.join("g", member_id, **saying(size))
        c.advance(DELAY_MS)
        assert again[0].error is None


@pytest.mark.exhaustive
def test_members_that_were_given_an_id_and_never_come_have_a_limit() -> None:
    c = Cluster()
    for _ in range(10_000):
        assert c.join("g")[0].error is MemberIdRequiredError
    assert c.join("g")[0].error is GroupMaxSizeReachedError


def test_groups_have_a_limit() -> None:
    c = Cluster(group_coordinator_groups_max=2)
    c.stable_member("one")
    c.join("two")
    assert c.join("three")[0].error is CoordinatorNotAvailableError
    assert c.beat("four", "m", 0)[0].error is CoordinatorNotAvailableError
    assert c.beat("two", "m", 0)[0].error is None


def test_a_subscription_of_the_consumer_protocol_is_bounded() -> None:
    c = Cluster(group_member_metadata_max_bytes=1_000)
    assert c.beat("g", "m", 0, topics=("t" * 249,) * 5)[0].error is InvalidRequestError
    assert c.beat("g", "m", 0, regex="(a|" * 300 + ")" * 300)[0].error is InvalidRequestError
    assert c.beat("g", "m", 0, topics=("clicks",))[0].error is None


def test_the_members_of_a_group_have_few_different_regular_expressions() -> None:
    """Each is matched against all topics whenever a member joins, leaves or subscribes to something else."""
    c = Cluster()
    for number in range(REGEXES_MAX):
        assert c.beat("g", f"m{number}", 0, regex=f"clicks-{number}.*")[0].error is None
    (refused,) = c.beat("g", "new", 0, regex="views.*")
    assert refused.error is InvalidRequestError
    assert str(REGEXES_MAX) in refused.message
    assert c.beat("g", "same", 0, regex="clicks-7.*")[0].error is None
    assert c.beat("g", "names", 0, topics=("clicks",))[0].error is None
    assert c.beat("other", "new", 0, regex="views.*")[0].error is None
    assert c.beat("g", "m0", -1)[0].error is None
    assert c.beat("g", "new", 0, regex="views.*")[0].error is None
    assert c.beat("g", "m1", 2, regex="more.*")[0].error is None, "in the place of its own"
    assert c.beat("g", "names", REGEXES_MAX + 2, regex="beside.*")[0].error is InvalidRequestError


def test_a_list_of_groups_is_made_in_steps_also_of_those_that_are_left_out() -> None:
    c = Cluster()
    for number in range(50):
        c.commit(f"g{number}", OffsetToCommit("clicks", 0, 1))
    for states, count in (((), 50), (("Stable",), 0)):
        steps, found = count_steps(c.coordinator.list_groups(states))
        assert (steps, len(found)) == (50, count)


def test_the_offsets_of_a_group_are_answered_in_steps() -> None:
    c = Cluster()
    c.topics["wide"] = TopicOfGroup(uuid.uuid4(), 1_000)
    c.commit("g", OffsetToCommit("clicks", 1, 7), *(OffsetToCommit("wide", 999 - each, each) for each in range(1_000)))
    broker = SimpleNamespace(groups=SimpleNamespace(offsets=c.offsets))
    asked: Any = SimpleNamespace(
        version=8,
        body=OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        context=SimpleNamespace(broker=broker),
        allows=lambda *_: True,
    )
    steps, answer = count_steps(offset_fetch.handle(asked))
    assert steps >= 10
    clicks, wide = answer.groups[0].topics
    assert [(each.partition_index, each.committed_offset) for each in clicks.partitions] == [(1, 7)]
    assert [(each.partition_index, each.committed_offset) for each in wide.partitions] == [
        (index, 999 - index) for index in range(1_000)
    ]


def group(c: Cluster, group_id: str) -> Group:
    entry = c.coordinator.table.find(group_id)
    assert entry is not None
    return entry.group


class TopicsLookedAt(dict[str, TopicOfGroup]):
    """Topics that count how often somebody looks at all of them, as the match of a regular expression does."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()


def test_a_new_topic_and_a_load_cost_groups_with_regular_expressions_no_match_each() -> None:
    """There may be thousands of groups that subscribe by a pattern, and the event loop has to go on."""
    c = Cluster()
    topics = c.topics = TopicsLookedAt(c.topics)
    for number in range(50):
        assert c.beat(f"g{number}", "m", 0, regex=f"clicks-{number}.*")[0].error is None
    c.topics["clicks-7-new"] = TopicOfGroup(uuid.uuid4(), 1)
    topics.looks = 0
    c.consumers.topics_changed(["clicks-7-new"])
    assert topics.looks == 0
    assert [name for name in map("g{}".format, range(50)) if group(c, name).reads("clicks-7-new")] == ["g7"]
    topics.looks = 0
    c.start()
    assert topics.looks == 0
    assert group(c, "g7").reads("clicks-7-new") and not group(c, "g8").reads("clicks-7-new")


def test_members_of_the_consumer_protocol_have_the_same_limits() -> None:
    c = Cluster(group_metadata_max_bytes=250_000, group_coordinator_metadata_max_bytes=410_000)
    for member in ("a", "b"):
        assert c.beat("g", member, 0, topics=("t" * 100_000,))[0].error is None
    assert c.beat("g", "c", 0, topics=("t" * 100_000,))[0].error is GroupMaxSizeReachedError
    c.join("classic", **saying(150_000))
    assert c.beat("other", "a", 0, topics=("t" * 60_000,))[0].error is CoordinatorNotAvailableError
    assert c.beat("g", "a", -1)[0].error is None
    assert c.beat("other", "a", 0, topics=("t" * 60_000,))[0].error is None
    c.start()
    assert c.beat("third", "a", 0, topics=("t" * 236_000,))[0].error is None
    assert c.beat("fourth", "a", 0, topics=("t" * 236_000,))[0].error is CoordinatorNotAvailableError


def test_the_partitions_that_are_assigned_in_the_consumer_protocol_have_a_limit_in_sum() -> None:
    c = Cluster(group_coordinator_metadata_max_bytes=1_000_000)
    c.topics = {name: TopicOfGroup(uuid.uuid4(), 3_000) for name in ("clicks", "views")}
    c.start()
    assert c.beat("g", "a", 0)[0].error is None
    refused = c.beat("other", "a", 0)[0]
    assert refused.error is CoordinatorNotAvailableError and "group.coordinator.metadata.max.bytes" in str(
        refused.message
    )
    assert c.coordinator.table.find("other") is None
    assert c.beat("g", "b", 0)[0].error is None, "as many partitions as before"
    assert c.beat("g", "b", 2, topics=("clicks", "views"), owned=frozenset())[0].error is CoordinatorNotAvailableError
    assert c.beat("g", "b", 2, owned=frozenset())[0].error is None
    c.start()
    assert c.beat("other", "a", 0)[0].error is CoordinatorNotAvailableError
    for member in ("a", "b"):
        assert c.beat("g", member, -1)[0].error is None
    assert c.beat("other", "a", 0)[0].error is None
    assert c.beat("other", "a", -1)[0].error is None
    assert c.coordinator.table.memory.bytes == len("g") + len("other")


def test_a_group_whose_topics_have_grown_goes_on_beyond_the_limit() -> None:
    c = Cluster(group_coordinator_metadata_max_bytes=1_000_000)
    assert c.beat("g", "a", 0)[0].error is None
    c.topics["clicks"] = c.topics["clicks"]._replace(partitions=5_000)
    c.consumers.topics_changed(["clicks"])
    grown = c.beat("g", "a", 1)[0]
    assert grown.error is None and grown.member_epoch == 2 and len(grown.assignment or ()) == 5_000
    assert c.beat("other", "a", 0)[0].error is CoordinatorNotAvailableError


def test_the_names_of_members_count_too_also_of_those_that_have_not_come_back_with_their_id() -> None:
    c = Cluster(group_metadata_max_bytes=250_000, group_coordinator_metadata_max_bytes=400_000)
    long = {"client_id": "c" * 30_000}
    for _ in range(4):
        assert c.join("g", **long)[0].error is MemberIdRequiredError
    assert c.join("g", **long)[0].error is GroupMaxSizeReachedError
    for _ in range(2):
        assert c.join("other", member_id_required=False, **long) == []
    assert c.join("other", **long)[0].error is CoordinatorNotAvailableError
    c.advance(600_000)
    assert c.coordinator.table.memory.bytes == len("g") + len("other")


@pytest.mark.exhaustive
def test_the_names_of_groups_have_a_limit_in_sum() -> None:
    c = Cluster(group_coordinator_metadata_max_bytes=10_000_000)
    names = [f"{number}".rjust(30_000, "g") for number in range(1_000)]
    errors = [c.commit(name, OffsetToCommit("clicks", 0, 1))[0]["clicks", 0] for name in names]
    assert set(errors[:333]) == {None}
    assert set(errors[333:]) == {CoordinatorNotAvailableError}
    assert c.join("more", client_id="c" * 30_000)[0].error is CoordinatorNotAvailableError
    c.delete_groups(*names[:10])
    assert c.commit(names[-1], OffsetToCommit("clicks", 0, 1))[0]["clicks", 0] is None


def test_assignments_count_as_long_as_they_are_kept() -> None:
    c = Cluster(group_coordinator_metadata_max_bytes=100_000)
    member = c.join("g", member_id_required=False)
    c.advance(DELAY_MS)
    generation, member_id = member[0].generation_id, member[0].member_id
    refused = c.sync("g", SyncRequest(member_id, generation, {member_id: bytes(100_000)}))
    assert refused[0].error is CoordinatorNotAvailableError
    assert c.sync("g", SyncRequest(member_id, generation, {member_id: bytes(90_000)}))[0].error is None
    other = c.join("other", member_id_required=False, client_id="c" * 5_000)
    assert other[0].error is CoordinatorNotAvailableError
    c.leave("g", LeavingMember(member_id))
    assert c.coordinator.table.memory.bytes == len("g")


@pytest.mark.exhaustive
def test_a_group_whose_members_know_many_protocols_goes_as_fast_as_it_came() -> None:
    """Each member that goes takes its own protocols with it; it does not look at those of all others."""
    roster, members = Roster(), 2_000
    for number in range(members):
        own = tuple(GroupProtocol(f"{number}-{each}", b"") for each in range(50))
        protocols = (*own, GroupProtocol("range", b""))
        roster.add(Member(str(number), None, "", "", 10_000, 10_000, protocols), "consumer")
    begin_s = time.thread_time()
    assert roster.select_protocol() == "range"
    for member in list(roster):
        roster.remove(member)
    assert time.thread_time() - begin_s < 2.0  # a tenth of a second; with all names looked at each time, five minutes
    assert roster.bytes == 0


def test_committed_offsets_have_a_limit_in_sum_and_those_that_are_there_go_on() -> None:
    c = Cluster(group_coordinator_offsets_max_bytes=10_000)
    full = {("clicks", 0): CoordinatorNotAvailableError}

    def commit(group: str, offset: int, metadata: int = 3_000) -> object:
        return c.commit(group, OffsetToCommit("clicks", 0, offset, metadata="m" * metadata))[0]

    for group in ("a", "b"):
        assert commit(group, 1) == {("clicks", 0): None}
    assert commit("c", 1) == full
    assert commit("c", 1, 4_096) == full
    for offset in range(2, 10):
        assert commit("b", offset) == {("clicks", 0): None}
    assert commit("b", 10, 4_000) == full
    assert commit("b", 11, 10) == {("clicks", 0): None}
    assert commit("c", 2) == {("clicks", 0): None}
    assert commit("d", 1) == full
    c.start()  # loaded again, they count again
    assert commit("d", 1) == full
    assert c.delete_groups("a") == [{"a": None}]
    assert commit("d", 2) == {("clicks", 0): None}


def test_beyond_the_limit_an_offset_goes_on_in_one_transaction_at_a_time() -> None:
    """Each transaction that is open keeps an offset of its own beside the committed one."""
    c = Cluster(group_coordinator_offsets_max_bytes=4_000)
    key = ("clicks", 0)

    def commit(producer_id: int, metadata: int = 3_000) -> object:
        offset = OffsetToCommit(*key, producer_id, metadata="m" * metadata)
        return c.commit("g", offset, producer=None if producer_id < 0 else ProducerIdAndEpoch(producer_id, 0))[0]

    assert commit(-1) == {key: None}
    for _ in range(3):
        assert commit(1) == {key: None}
    used = c.coordinator.table.offset_memory.bytes
    for producer_id in range(2, 10):
        assert commit(producer_id) == {key: CoordinatorNotAvailableError}
    assert commit(1, 3_001) == {key: CoordinatorNotAvailableError}
    assert commit(-1) == {key: None}
    assert c.coordinator.table.offset_memory.bytes == used
    c.end_transaction("g", ProducerIdAndEpoch(1, 0), committed=True)
    assert commit(2) == {key: None}
    assert commit(3) == {key: CoordinatorNotAvailableError}


def test_offsets_of_transactions_count_until_they_end() -> None:
    memory = MetadataMemory()
    offsets = GroupOffsets(memory)
    key = ("clicks", 0)
    for position in (1, 2):
        offsets.commit_pending(7, key, CommittedOffset(position, metadata="m" * 100), position)
    assert memory.bytes == offset_bytes(key[0], "m" * 100)
    offsets.complete(7, committed=True)
    assert memory.bytes == offset_bytes(key[0], "m" * 100)
    offsets.commit_pending(8, key, CommittedOffset(3), 3)
    offsets.complete(8, committed=False)
    offsets.commit_pending(9, key, CommittedOffset(4), 4)
    offsets.remove(key)
    assert memory.bytes == 0
    offsets.commit(key, CommittedOffset(5), 5)
    for _ in range(2):
        offsets.release()
    assert memory.bytes == 0
