"""The coordinator: dispatch and errors, durable before answered, restart from the journal, deletion, expiry."""

from __future__ import annotations

import uuid

import pytest
from broker.groups.coordination import Cluster
from broker.groups.scenario import DELAY_MS, SESSION_MS

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch, journal_partition
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.offset_requests import OffsetToCommit
from kafkalake.broker.groups.records import CommittedOffset, GroupTombstone, OffsetRecord, decode
from kafkalake.broker.groups.requests import LeavingMember, SyncRequest
from kafkalake.broker.partitions.purgatory import NoAlarm
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaError,
    KafkaStorageError,
    MemberIdRequiredError,
    MessageTooLargeError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)

HOUR_MS = 3_600_000
KEY = ("clicks", 0)


def one(offset: int, partition: int = 0, topic: str = "clicks", metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(topic, partition, offset, metadata=metadata)


@pytest.mark.parametrize(
    ("name", "of_4", "of_50"),
    # Where Apache Kafka 4.1.1 put g1, g2, g3; the others from Java's String.hashCode, one of them its smallest.
    [("g1", 2, 42), ("g2", 3, 43), ("g3", 0, 44), ("größe", 1, 7), ("🐝", 0, 16), ("polygenelubricants", 0, 0)],
)
def test_groups_live_where_kafka_puts_them(name: str, of_4: int, of_50: int) -> None:
    assert (journal_partition(name, 4), journal_partition(name, 50)) == (of_4, of_50)


def test_a_group_goes_from_the_first_join_to_its_assignment_and_back() -> None:
    c = Cluster()
    first = c.join("g")[0]
    assert first.error is MemberIdRequiredError
    joined = c.join("g", first.member_id)
    assert joined == []
    c.advance(DELAY_MS)
    assert joined[0].generation_id == 1
    synced = c.sync("g", SyncRequest(first.member_id, 1, {first.member_id: b"all"}))
    assert synced[0].assignment == b"all"
    c.coordinator.heartbeat("g", first.member_id, 1)
    assert c.coordinator.describe_group("g").state == "Stable"
    assert c.leave("g", LeavingMember(first.member_id))[0][0].error is None
    assert [(s.group_id, s.state, s.protocol_type) for s in c.list_groups()] == [("g", "Empty", "consumer")]


def test_a_sync_is_answered_when_the_journal_has_it() -> None:
    c = Cluster()
    first = c.join("g")[0]
    joined = c.join("g", first.member_id)
    c.advance(DELAY_MS)
    c.journal.hold = True
    synced = c.sync("g", SyncRequest(first.member_id, joined[0].generation_id, {first.member_id: b"all"}))
    assert synced == []
    c.journal.release()
    assert synced[0].assignment == b"all"


def test_a_sync_that_cannot_be_written_sends_the_member_away_and_the_group_recovers() -> None:
    c = Cluster()
    first = c.join("g")[0]
    joined = c.join("g", first.member_id)
    c.advance(DELAY_MS)
    c.journal.fail_next = KafkaStorageError("no space")
    synced = c.sync("g", SyncRequest(first.member_id, joined[0].generation_id, {first.member_id: b"all"}))
    assert synced[0].error is NotCoordinatorError
    again = c.join("g", first.member_id)
    assert again[0].generation_id == 2
    assert c.sync("g", SyncRequest(first.member_id, 2, {first.member_id: b"all"}))[0].assignment == b"all"


@pytest.mark.parametrize("group_id", ["", "x" * 40_000])
def test_members_need_a_legal_group_id(group_id: str) -> None:
    c = Cluster()
    assert c.join(group_id)[0].error is InvalidGroupIdError
    assert c.sync(group_id, SyncRequest("m", 1))[0].error is InvalidGroupIdError
    with pytest.raises(InvalidGroupIdError):
        c.coordinator.heartbeat(group_id, "m", 1)
    with pytest.raises(InvalidGroupIdError):
        c.leave(group_id, LeavingMember("m"))
    assert len(c.coordinator.table) == 0


def test_a_group_id_that_the_journal_cannot_hold_is_refused_everywhere() -> None:
    c = Cluster()
    group_id = "ä" * 20_000
    assert c.commit(group_id, one(1)) == [{KEY: InvalidGroupIdError}]
    assert c.delete_groups(group_id) == [{group_id: InvalidGroupIdError}]
    with pytest.raises(InvalidGroupIdError):
        c.coordinator.describe_group(group_id)
    with pytest.raises(InvalidGroupIdError):
        c.offsets.fetch(group_id, [KEY], require_stable=False)
    with pytest.raises(InvalidGroupIdError):
        c.offsets.delete(group_id, [KEY], print)


def test_a_refused_first_join_leaves_no_group_behind() -> None:
    c = Cluster()
    assert c.join("g", protocols=())[0].error is InconsistentGroupProtocolError
    assert len(c.coordinator.table) == 0


def test_the_empty_group_id_may_commit_and_fetch() -> None:
    c = Cluster()
    assert c.commit("", one(3)) == [{KEY: None}]
    assert c.fetched("") == {KEY: 3}


def test_an_unknown_group_is_refused_and_not_made() -> None:
    c = Cluster()
    assert c.join("g", "someone")[0].error is UnknownMemberIdError
    assert c.sync("g", SyncRequest("m", 1))[0].error is UnknownMemberIdError
    with pytest.raises(UnknownMemberIdError):
        c.coordinator.heartbeat("g", "m", 1)
    assert c.leave("g", LeavingMember("m"))[0][0].error is UnknownMemberIdError
    with pytest.raises(GroupIdNotFoundError):
        c.coordinator.describe_group("g")
    with pytest.raises(GroupIdNotFoundError):
        c.offsets.delete("g", [KEY], print)
    assert c.commit("g", one(1), member_id="m", generation_id=1) == [{KEY: GroupIdNotFoundError}]
    assert c.delete_groups("g") == [{"g": GroupIdNotFoundError}]
    assert c.offsets.fetch("g", [KEY], require_stable=True) == {KEY: None}
    assert len(c.coordinator.table) == 0


@pytest.mark.parametrize("session_timeout_ms", [-1, 0, 5_999, 1_800_001])
def test_a_session_timeout_out_of_range_is_refused(session_timeout_ms: int) -> None:
    assert Cluster().join("g", session_timeout_ms=session_timeout_ms)[0].error is InvalidSessionTimeoutError


@pytest.mark.parametrize("field", ["client_id", "group_instance_id", "protocol_type"])
def test_names_too_long_for_the_journal_are_refused(field: str) -> None:
    assert Cluster().join("g", **{field: "x" * 33_000})[0].error is InvalidRequestError


def test_requests_are_refused_while_the_journal_is_read_and_after_it_was_given_up() -> None:
    c = Cluster()
    member = c.stable_member("g")
    waiting = c.join("g", member.member_id, protocols=())
    partition = c.coordinator.table.check("g")
    newcomer = c.join("g", c.join("g")[0].member_id)
    assert newcomer == []
    c.coordinator.journaled.unload(partition)
    assert newcomer[0].error is NotCoordinatorError
    assert waiting[0].error is not None
    assert c.join("g")[0].error is NotCoordinatorError
    assert c.commit("g", one(1)) == [{KEY: NotCoordinatorError}]
    c.coordinator.journaled.begin_load(partition)
    assert c.join("g")[0].error is CoordinatorLoadInProgressError
    assert c.coordinator.table.is_loading
    c.advance(SESSION_MS)


# Committing


def test_a_commit_is_answered_and_seen_when_it_is_durable() -> None:
    c = Cluster()
    c.journal.hold = True
    answers = c.commit("g", one(5), one(7, 1))
    assert answers == []
    assert c.fetched("g") == {}
    c.journal.release()
    assert answers == [{KEY: None, ("clicks", 1): None}]
    assert c.fetched("g") == {KEY: 5, ("clicks", 1): 7}


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (KafkaStorageError("no space"), NotCoordinatorError),
        (MessageTooLargeError(), InvalidCommitOffsetSizeError),
        (InvalidProducerEpochError(), InvalidProducerEpochError),
    ],
)
def test_a_commit_that_cannot_be_written_changes_nothing(failure: KafkaError, told: type[KafkaError]) -> None:
    c = Cluster()
    c.commit("g", one(5))
    c.journal.fail_next = failure
    assert c.commit("g", one(6)) == [{KEY: told}]
    assert c.fetched("g") == {KEY: 5}


def test_partitions_that_do_not_exist_and_long_metadata_are_refused_by_themselves() -> None:
    c = Cluster()
    answers = c.commit("g", one(1), one(1, 4), one(1, -1), one(1, 0, "nothing"), one(1, 1, metadata="x" * 4097))
    assert answers == [
        {
            KEY: None,
            ("clicks", 4): UnknownTopicOrPartitionError,
            ("clicks", -1): UnknownTopicOrPartitionError,
            ("nothing", 0): UnknownTopicOrPartitionError,
            ("clicks", 1): OffsetMetadataTooLargeError,
        }
    ]
    assert c.fetched("g") == {KEY: 1}
    assert c.commit("g", one(1, 0, "nothing")) == [{("nothing", 0): UnknownTopicOrPartitionError}]


def test_only_members_of_the_generation_commit_to_a_group_with_members() -> None:
    c = Cluster()
    member = c.stable_member("g")
    assert c.commit("g", one(1)) == [{KEY: UnknownMemberIdError}]
    assert c.commit("g", one(1), member_id="other", generation_id=1) == [{KEY: UnknownMemberIdError}]
    assert c.commit("g", one(1), member_id=member.member_id, generation_id=0) == [{KEY: IllegalGenerationError}]
    assert c.fetched("g") == {}
    assert c.commit("g", one(1), member_id=member.member_id, generation_id=1) == [{KEY: None}]
    assert c.fetched("g") == {KEY: 1}


def test_a_simple_group_is_listed_and_described() -> None:
    c = Cluster()
    c.commit("g", one(1))
    assert [(s.group_id, s.protocol_type, s.state, s.group_type) for s in c.list_groups()] == [
        ("g", "", "Empty", "classic")
    ]
    assert c.list_groups(states=["stable"]) == []
    assert len(c.list_groups(states=["EMPTY"], group_types=["Classic"])) == 1
    assert c.list_groups(group_types=["consumer"]) == []
    assert c.coordinator.describe_group("g").state == "Empty"


# Transactions


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    c = Cluster()
    producer = ProducerIdAndEpoch(7, 0)
    c.commit("g", one(1))
    assert c.commit("g", one(2), producer=producer) == [{KEY: None}]
    assert c.fetched("g") == {KEY: 1}
    assert c.fetched("g", require_stable=True) == {KEY: UnstableOffsetCommitError}
    c.end_transaction("g", producer, committed=True)
    assert c.fetched("g", require_stable=True) == {KEY: 2}


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    c = Cluster()
    producer = ProducerIdAndEpoch(7, 0)
    c.commit("g", one(2), producer=producer)
    c.end_transaction("g", producer, committed=False)
    assert c.fetched("g", require_stable=True) == {}


def test_a_transactional_commit_of_a_member_to_an_unknown_group_has_an_illegal_generation() -> None:
    c = Cluster()
    answers = c.commit("g", one(2), member_id="m", generation_id=3, producer=ProducerIdAndEpoch(7, 0))
    assert answers == [{KEY: IllegalGenerationError}]


def test_an_open_transaction_survives_a_restart() -> None:
    c = Cluster()
    producer = ProducerIdAndEpoch(7, 0)
    c.commit("g", one(2), producer=producer)
    c.start()
    assert c.fetched("g", KEY, require_stable=True) == {KEY: UnstableOffsetCommitError}
    c.end_transaction("g", producer, committed=True)
    assert c.fetched("g", require_stable=True) == {KEY: 2}
    c.start()
    assert c.fetched("g", require_stable=True) == {KEY: 2}


# Restart and publishing


def test_members_and_offsets_are_there_after_a_restart() -> None:
    c = Cluster()
    member = c.stable_member("g")
    c.commit("g", one(5), member_id=member.member_id, generation_id=1)
    c.start()
    c.coordinator.heartbeat("g", member.member_id, 1)
    assert c.fetched("g") == {KEY: 5}
    assert c.sync("g", SyncRequest(member.member_id, 1))[0].assignment == b"all"
    c.advance(SESSION_MS + 500)
    assert c.coordinator.describe_group("g").state == "Empty"


def test_what_is_published_and_the_journal_after_it_make_the_whole() -> None:
    c = Cluster()
    c.commit("g", one(1), one(1, 1))
    changes = c.coordinator.table.take_changes()
    assert {(row.topic, row.partition, row.committed.offset if row.committed else None) for row in changes.rows} == {
        ("clicks", 0, 1),
        ("clicks", 1, 1),
    }
    assert c.coordinator.table.take_changes().rows == []
    c.commit("g", one(2))
    c.start(published=changes)
    assert c.fetched("g") == {KEY: 2, ("clicks", 1): 1}
    assert [
        (row.partition, row.committed and row.committed.offset) for row in c.coordinator.table.take_changes().rows
    ] == [(0, 2)]


def test_the_journal_is_kept_from_the_first_open_transaction_on() -> None:
    c = Cluster()
    producer = ProducerIdAndEpoch(7, 0)
    c.commit("g", one(1, 1))
    c.commit("g", one(2), producer=producer)
    c.commit("g", one(3, 1))
    changes = c.coordinator.table.take_changes()
    partition = c.coordinator.table.check("g")
    assert changes.resume_at[partition] == 1
    c.start(published=changes)
    assert c.coordinator.table.take_changes().rows == []  # all published already
    c.end_transaction("g", producer, committed=True)
    assert c.fetched("g") == {KEY: 2, ("clicks", 1): 3}
    assert c.coordinator.table.resume_at(partition) == c.journal.ends[partition]


def test_changes_that_were_not_published_come_again_with_the_newest_offset() -> None:
    c = Cluster()
    c.commit("g", one(1))
    changes = c.coordinator.table.take_changes()
    c.commit("g", one(2))
    c.coordinator.table.put_back(changes)
    rows = c.coordinator.table.take_changes().rows
    assert [row.committed.offset for row in rows if row.committed is not None] == [2]


def test_a_deleted_offset_is_published_as_gone() -> None:
    c = Cluster()
    c.commit("g", one(1))
    c.coordinator.table.take_changes()
    c.delete_groups("g")
    assert [(row.group_id, row.committed) for row in c.coordinator.table.take_changes().rows] == [("g", None)]


def test_group_records_older_than_a_trim_are_named() -> None:
    c = Cluster()
    c.stable_member("g")
    partition = c.coordinator.table.check("g")
    end = c.journal.ends[partition]
    assert [record.group_id for record in c.coordinator.table.records_before(partition, end)] == ["g"]
    assert list(c.coordinator.table.records_before(partition, 0)) == []


def test_a_group_record_that_has_to_be_kept_is_the_newest_by_its_turn() -> None:
    c = Cluster()
    names = [f"g{number}" for number in range(400)]
    partition = c.coordinator.table.check("g0")
    changed, deleted, made_anew, kept = [name for name in names if c.coordinator.table.check(name) == partition][:4]
    members = {name: c.stable_member(name) for name in (changed, deleted, made_anew, kept)}
    end = c.journal.ends[partition]
    old = c.coordinator.table.records_before(partition, end)
    assert next(old).group_id == changed
    for name in (deleted, made_anew):
        c.coordinator.leave_group(name, [LeavingMember(members[name].member_id)], lambda left: None)
        assert c.delete_groups(name) == [{name: None}]
    c.stable_member(made_anew)
    assert [record.group_id for record in old] == [kept]


# Deleting and expiry


def test_a_group_with_members_is_not_deleted() -> None:
    c = Cluster()
    c.stable_member("g")
    c.commit("simple", one(1))
    assert c.delete_groups("g", "simple", "nothing") == [
        {"g": NonEmptyGroupError, "simple": None, "nothing": GroupIdNotFoundError}
    ]
    assert c.fetched("simple") == {}
    c.start()
    assert c.fetched("simple") == {}
    assert [s.group_id for s in c.list_groups()] == ["g"]


def test_a_group_that_is_being_deleted_accepts_nothing_and_is_back_if_it_could_not_be() -> None:
    c = Cluster()
    c.commit("g", one(1))
    c.journal.hold = True
    answers = c.delete_groups("g")
    assert answers == []
    assert c.commit("g", one(2)) == [{KEY: CoordinatorNotAvailableError}]
    assert c.join("g")[0].error is CoordinatorNotAvailableError
    c.journal.fail_next = KafkaStorageError("no space")
    c.journal.release()
    assert answers == [{"g": NotCoordinatorError}]
    c.journal.hold = False
    assert c.commit("g", one(2)) == [{KEY: None}]


def test_many_offsets_are_deleted_in_several_batches_the_group_last() -> None:
    c = Cluster()
    partition = c.coordinator.table.check("g")
    records = [OffsetRecord("g", f"topic-{number}", 0, CommittedOffset(1)) for number in range(1200)]
    c.coordinator.write(partition, records, lambda error: None)
    before = len(c.journal.batches[partition])
    assert c.delete_groups("g") == [{"g": None}]
    batches = c.journal.batches[partition][before:]
    assert len(batches) == 3
    assert isinstance(decode(*batches[-1].records[-1]), GroupTombstone)
    assert c.fetched("g") == {}


def test_offsets_are_deleted_unless_they_are_being_read() -> None:
    c = Cluster()
    member = c.stable_member("g")
    c.commit("g", one(1), one(1, 0, "views"), member_id=member.member_id, generation_id=1)
    answers: list[object] = []
    c.offsets.delete("g", [KEY, ("views", 0), ("views", 1), ("nothing", 0)], answers.append)
    assert answers == [
        {
            KEY: GroupSubscribedToTopicError,
            ("views", 0): None,
            ("views", 1): None,
            ("nothing", 0): UnknownTopicOrPartitionError,
        }
    ]
    assert c.fetched("g") == {KEY: 1}


def test_offsets_of_a_deleted_topic_are_gone() -> None:
    c = Cluster()
    c.commit("g", one(1), one(1, 0, "views"))
    del c.topics["views"]
    c.removal.delete_stale(["views"])
    c.start()
    assert c.fetched("g") == {KEY: 1}


def test_a_topic_created_again_inherits_no_offset_of_the_one_before() -> None:
    c = Cluster()
    c.commit("g", one(7), one(7, 0, "views"))
    producer = ProducerIdAndEpoch(7, 0)
    c.commit("g", one(8, 1), producer=producer)
    for name in ("clicks", "views"):
        c.topics[name] = TopicOfGroup(uuid.uuid4(), c.topics[name].partitions)
    assert set(c.fetched("g").values()) == {None}  # at once, before the journal has it
    c.commit("g", one(9))
    c.journal.fail_next = KafkaStorageError()
    c.removal.delete_stale()
    assert c.fetched("g") == {KEY: 9, ("views", 0): None}
    c.advance(1_000)
    assert c.fetched("g") == {KEY: 9}
    c.end_transaction("g", producer, committed=True)
    c.start()
    assert c.fetched("g") == {KEY: 9}


def test_offsets_without_a_topic_id_count_unless_they_are_older_than_the_topic() -> None:
    c = Cluster()
    c.topics["views"] = c.topics["views"]._replace(created_at_ms=1_000)
    records = [OffsetRecord("g", topic, 0, CommittedOffset(5, committed_at_ms=999)) for topic in ("clicks", "views")]
    c.coordinator.write(c.coordinator.table.check("g"), records, lambda error: None)
    c.start()
    c.removal.delete_stale()
    assert c.fetched("g") == {KEY: 5}


def test_an_empty_groups_offsets_expire_with_the_group() -> None:
    c = Cluster(offsets_retention_ms=HOUR_MS)
    member = c.stable_member("g")
    c.commit("g", one(1), member_id=member.member_id, generation_id=1)
    c.advance(2 * SESSION_MS)
    assert c.coordinator.describe_group("g").state == "Empty"
    c.clock.advance(HOUR_MS - 2 * SESSION_MS)
    c.removal.expire()
    assert c.fetched("g") == {KEY: 1}
    c.clock.advance(2 * SESSION_MS)
    c.removal.expire()
    assert c.fetched("g") == {}
    assert c.list_groups() == []
    c.start()
    assert c.list_groups() == []


def test_an_active_groups_offsets_of_topics_it_reads_stay() -> None:
    c = Cluster(offsets_retention_ms=HOUR_MS)
    member = c.stable_member("g")
    c.commit("g", one(1), one(1, 0, "views"), member_id=member.member_id, generation_id=1)
    c.clock.advance(2 * HOUR_MS)
    c.removal.expire()
    assert c.fetched("g") == {KEY: 1}


def test_an_old_clients_retention_is_kept_through_a_restart() -> None:
    c = Cluster(offsets_retention_ms=100 * HOUR_MS)
    c.commit("g", one(1), retention_ms=HOUR_MS)
    c.start()
    c.clock.advance(HOUR_MS - 1)
    c.removal.expire()
    assert c.fetched("g") == {KEY: 1}
    c.clock.advance(1)
    c.removal.expire()
    assert c.fetched("g") == {}


def test_expiry_runs_by_itself_and_forgets_groups_that_nobody_joined() -> None:
    c = Cluster(offsets_retention_check_interval_ms=60_000)
    scheduler = Scheduler(c.clock, NoAlarm())
    c.removal.start_expiry(scheduler)
    c.join("g")
    assert len(c.coordinator.table) == 1
    for _ in range(2):
        c.advance(60_000)
        scheduler.ring()
    assert len(c.coordinator.table) == 0
    assert all(batches == [] for batches in c.journal.batches.values())


def test_heartbeats_wait_for_others_and_commits_do_not() -> None:
    c = Cluster(group_coordinator_append_linger_ms=5)
    answers = [c.beat("g", "a", 0), c.beat("h", "b", 0)]
    assert answers == [[], []]
    assert c.commit("other", one(1)) == [{KEY: None}]
    c.advance(4, step_ms=1)
    assert answers == [[], []]
    c.advance(1, step_ms=1)
    assert [each[0].member_epoch for each in answers] == [1, 1]
    third = c.beat("i", "c", 0)
    c.coordinator.flush()  # as a stop does
    assert third[0].error is None
    left = c.leave("i", LeavingMember("c"))
    c.coordinator.flush()
    assert left[0][0].error is None
    assert c.consumers.describe("i").members == ()


def test_changes_are_collected_in_turns_and_a_collection_that_is_overtaken_or_given_up_loses_none() -> None:
    c = Cluster()
    for number in range(20):
        c.commit(f"g{number}", one(1), one(1, 1))
    table = c.coordinator.table
    overtaken, given_up = table.collect_changes(), table.collect_changes()
    for _ in range(5):
        next(overtaken)
    c.commit("g0", one(2))
    for _ in range(30):
        next(given_up)
    with pytest.raises(StopIteration) as nothing:
        next(overtaken)
    assert (nothing.value.value.rows, nothing.value.value.resume_at) == ((), {})
    given_up.close()
    assert table.has_changes
    c.commit("g1", one(3))
    changes = table.take_changes()
    assert len(changes.rows) == 40
    assert changes.resume_at == c.journal.ends
    c.start(published=changes)
    assert [c.fetched(f"g{number}")[KEY] for number in range(3)] == [2, 3, 1]


def test_a_row_of_a_collection_is_never_ahead_of_its_position() -> None:
    c = Cluster()
    c.commit("g", one(1), one(1, 1))
    table = c.coordinator.table
    steps = table.collect_changes()
    next(steps)
    c.commit("g", one(2), one(2, 1))
    with pytest.raises(StopIteration) as collected:
        while True:
            next(steps)
    changes = collected.value.value
    assert {row.committed.offset for row in changes.rows if row.committed is not None} == {1}
    assert all(row.journal_offset < changes.resume_at[row.journal_partition] for row in changes.rows)
    assert [row.committed.offset for row in table.take_changes().rows if row.committed is not None] == [2, 2]


def test_changes_of_a_partition_that_is_given_away_while_they_are_collected_are_left_to_its_next_leader() -> None:
    c = Cluster()
    c.commit("g", one(1), one(1, 1))
    table = c.coordinator.table
    partition = table.check("g")
    steps = table.collect_changes()
    next(steps)
    c.coordinator.journaled.unload(partition)
    with pytest.raises(StopIteration) as collected:
        while True:
            next(steps)
    assert collected.value.value.rows == []
    assert partition not in collected.value.value.resume_at
