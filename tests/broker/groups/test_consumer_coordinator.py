"""Groups of the consumer protocol at the coordinator: durable before answered, restarts, moves between the protocols, deletion."""

from __future__ import annotations

import pytest
from broker.groups.coordination import Cluster
from broker.groups.test_group_coordinator import KEY, one

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.requests import LeavingMember
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    KafkaStorageError,
    MemberIdRequiredError,
    NotCoordinatorError,
    UnknownMemberIdError,
)


def listed(c: Cluster) -> list[tuple[str, str, str]]:
    return [(each.group_id, each.group_type, each.state) for each in c.list_groups()]


def journal_is_empty(c: Cluster) -> bool:
    return not any(c.journal.batches.values())


def test_a_heartbeat_is_answered_when_the_journal_has_it_and_the_next_one_waits() -> None:
    c = Cluster()
    c.journal.hold = True
    first, second = c.beat("g", "a", 0), c.beat("g", "b", 0)
    assert (first, second) == ([], [])
    c.journal.release()
    assert first[0].member_epoch == 1 and second == []
    c.journal.release()
    assert second[0].member_epoch == 2


def test_a_restart_keeps_members_epochs_and_assignments() -> None:
    c = Cluster()
    c.beat("g", "a", 0)
    c.beat("g", "b", 0)
    c.beat("h", "c", 0, topics=("clicks", "views"), group_instance_id="i", rack_id="r")
    before = [c.consumers.describe(name) for name in ("g", "h")]
    c.start()
    assert [c.consumers.describe(name) for name in ("g", "h")] == before
    assert c.beat("h", "c", 1, group_instance_id="i")[0].member_epoch == 1
    c.advance(c.config.group_consumer_session_timeout_ms + 1)
    assert listed(c) == [("g", "consumer", "Empty"), ("h", "consumer", "Empty")], "nobody came back"


def test_a_first_member_that_is_refused_leaves_the_group_as_it_was() -> None:
    c = Cluster(group_consumer_max_size=1)
    assert c.beat("g", "a", 0, regex="(", topics=None)[0].error is not None
    assert c.beat("g", "a" * 40_000, 0)[0].error is InvalidRequestError
    assert c.beat("g", "a", 7)[0].error is GroupIdNotFoundError
    assert len(c.coordinator.table) == 0
    c.journal.fail_next = KafkaStorageError()
    assert c.beat("g", "a", 0)[0].error is NotCoordinatorError
    assert len(c.coordinator.table) == 0 and journal_is_empty(c)
    c.commit("g", one(5))
    c.journal.fail_next = KafkaStorageError()
    assert c.beat("g", "a", 0)[0].error is NotCoordinatorError
    assert listed(c) == [("g", "classic", "Empty")]
    assert c.fetched("g") == {KEY: 5}
    assert c.beat("g", "a", 0)[0].error is None
    assert c.beat("g", "b", 0)[0].error is GroupMaxSizeReachedError


@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_moves_between_the_protocols_while_it_is_empty_and_keeps_its_offsets(restarts: bool) -> None:
    c = Cluster()

    def next_step() -> None:
        if restarts:
            c.start()

    member = c.stable_member("g")
    assert c.beat("g", "a", 0)[0].error is GroupIdNotFoundError, "it has a member"
    c.leave("g", LeavingMember(member.member_id))
    c.commit("g", one(5))
    next_step()
    assert c.beat("g", "a", 0)[0].member_epoch == 1
    next_step()
    assert listed(c) == [("g", "consumer", "Stable")]
    assert c.fetched("g") == {KEY: 5}
    assert c.join("g")[0].error is InconsistentGroupProtocolError
    assert c.beat("g", "a", -1)[0].error is None
    next_step()
    assert c.join("g", "somebody")[0].error is UnknownMemberIdError
    assert listed(c) == [("g", "consumer", "Empty")]
    assert c.join("g")[0].error is MemberIdRequiredError
    next_step()
    assert listed(c) == [("g", "classic", "Empty")]
    assert c.fetched("g") == {KEY: 5}
    c.stable_member("g")
    next_step()
    assert listed(c) == [("g", "classic", "Stable")]


def test_a_move_that_cannot_be_written_changes_nothing() -> None:
    c = Cluster()
    c.beat("g", "a", 0)
    c.beat("g", "a", -1)
    c.journal.fail_next = KafkaStorageError()
    assert c.join("g")[0].error is NotCoordinatorError
    assert listed(c) == [("g", "consumer", "Empty")]
    assert c.beat("g", "a", 0)[0].error is None


def test_who_comes_during_a_move_is_asked_to_come_again() -> None:
    c = Cluster()
    c.beat("g", "a", 0)
    c.beat("g", "a", -1)
    c.journal.hold = True
    joined = c.join("g")
    assert c.join("g")[0].error is CoordinatorNotAvailableError
    assert c.beat("g", "a", 0)[0].error is CoordinatorNotAvailableError
    assert c.commit("g", one(1))[0] == {KEY: CoordinatorNotAvailableError}
    c.journal.release()
    assert joined[0].error is MemberIdRequiredError


def test_an_offset_of_an_open_transaction_survives_a_move() -> None:
    c = Cluster()
    producer = ProducerIdAndEpoch(7, 0)
    c.commit("g", one(9), producer=producer)
    assert c.beat("g", "a", 0)[0].error is None
    c.end_transaction("g", producer, committed=True)
    assert c.fetched("g") == {KEY: 9}
    c.start()
    assert c.fetched("g") == {KEY: 9}


def test_a_deleted_group_is_gone_after_a_restart_too() -> None:
    c = Cluster()
    c.beat("g", "a", 0)
    c.commit("g", one(1), member_id="a", generation_id=1)
    c.beat("g", "a", -1)
    assert c.delete_groups("g") == [{"g": None}]
    assert [row.committed for row in c.coordinator.table.take_changes().rows] == [None]
    for _ in range(2):
        assert listed(c) == []
        with pytest.raises(GroupIdNotFoundError):
            c.consumers.describe("g")
        c.start()


def test_an_empty_group_goes_with_its_last_offset() -> None:
    c = Cluster(offsets_retention_ms=1_000)
    c.beat("g", "a", 0)
    c.commit("g", one(1), member_id="a", generation_id=1)
    c.advance(2_000)
    c.removal.expire()
    assert c.fetched("g") == {KEY: 1}, "its topic is read"
    c.beat("g", "a", -1)
    c.removal.expire()
    assert listed(c) == []


def test_records_older_than_a_trim_are_named_and_can_be_written_again() -> None:
    c = Cluster()
    c.beat("g", "a", 0)
    c.beat("g", "b", 0)
    before = c.consumers.describe("g")
    table = c.coordinator.table
    partition = table.check("g")
    end = c.journal.ends[partition]
    old = list(table.records_before(partition, end))
    assert len({type(record) for record in old}) == 5
    errors: list[object] = []
    c.coordinator.write(partition, old, errors.append)
    assert (errors, list(table.records_before(partition, end))) == ([None], [])
    c.journal.batches[partition] = [batch for batch in c.journal.batches[partition] if batch.position >= end]
    c.start()
    assert c.consumers.describe("g") == before


def test_an_administrator_sends_members_away() -> None:
    c = Cluster()
    c.beat("g", "a", 0)
    c.beat("g", "b", 0, group_instance_id="i")
    leaving = [LeavingMember("x"), LeavingMember("a", "i"), LeavingMember("", "i"), LeavingMember("a")]
    errors = [None if each.error is None else each.error.label for each in c.leave("g", *leaving)[0]]
    assert errors == ["UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", None, None]
    assert listed(c) == [("g", "consumer", "Empty")]


@pytest.mark.parametrize("fails", [False, True])
def test_members_are_sent_away_once_the_journal_has_it(fails: bool) -> None:
    c = Cluster()
    for each in "abc":
        c.beat("g", each, 0)
    c.journal.hold = True
    left = c.leave("g", LeavingMember("x"), LeavingMember("a"), LeavingMember("b"))
    assert left == [], "a broker that is killed now has the members after its start"
    c.journal.fail_next = KafkaStorageError() if fails else None
    c.journal.release()
    c.journal.release()
    (results,) = left
    assert [each.error for each in results] == [UnknownMemberIdError, NotCoordinatorError if fails else None, None]
    c.journal.hold = False
    c.start()
    assert {each.member_id for each in c.consumers.describe("g").members} == ({"a", "c"} if fails else {"c"})
    assert c.leave("g") == [[]]


def test_members_that_are_sent_away_while_the_group_is_unloaded_are_answered() -> None:
    c = Cluster()
    c.beat("g", "a", 0)
    c.journal.hold = True
    left = c.leave("g", LeavingMember("a"))
    c.coordinator.journaled.unload(c.coordinator.table.check("g"))
    assert [each.error for each in left[0]] == [NotCoordinatorError]


def test_news_of_topics_reaches_the_groups_that_may_read_them() -> None:
    c = Cluster()
    c.beat("names", "a", 0)
    c.beat("pattern", "a", 0, topics=None, regex="view.*")
    c.topics |= {name: TopicOfGroup(c.topics[name].topic_id, 5) for name in ("clicks", "views")}
    c.consumers.topics_changed(["views"])
    assert c.beat("names", "a", 1)[0].member_epoch == 1, "it does not read it"
    assert c.beat("pattern", "a", 1)[0].member_epoch == 2
    c.consumers.topics_changed(["clicks"])
    changed = c.beat("names", "a", 1)[0]
    assert (changed.member_epoch, len(changed.assignment or ())) == (2, 5)
