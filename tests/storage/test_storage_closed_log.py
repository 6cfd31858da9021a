"""A log that was closed touches nothing any more: its paths may be those of the next topic of that name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from faulty_files import ActsInSync, FaultyFiles
from manual_clock import ManualClock
from partition_logs import accepted, append, open_log, read_all
from record_batches import simple_batch

from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.errors import KafkaError, KafkaStorageError
from kafkalake.storage.config import LogConfig
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.replica_read import SegmentRef
from kafkalake.storage.retention import RetentionRule
from kafkalake.storage.state import read_state
from kafkalake.storage.verify import verify_partition

CALLS: dict[str, Callable[[Log], Any]] = {
    "append": lambda log: log.append([simple_batch([b"late"])], 0),
    "append_control": lambda log: log.append_control(EndMarker(4, 0, ABORT, 0), 0),
    "advance_high_watermark": lambda log: log.advance_high_watermark(log.log_end_offset + 1),
    "read": lambda log: log.read(0, 100, log.log_end_offset),
    "scan": lambda log: list(log.scan(0, 100, 1)),
    "read_behind_damage": lambda log: log.read_behind_damage(0, 100),
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(0),
    "max_timestamp": lambda log: log.max_timestamp(),
    "aborted_transactions": lambda log: log.aborted_transactions(0, 100),
    "sealed_segments": lambda log: log.sealed_segments(),
    "delete_records_before": lambda log: log.delete_records_before(log.high_watermark),
    "raise_start": lambda log: log.raise_start(log.high_watermark),
    "forget_cut": lambda log: log.forget_cut(),
    "enforce_retention": lambda log: log.enforce_retention(RetentionRule(True, 1, -1), {}),
    "adopt_rewritten": lambda log: log.adopt_rewritten([RewrittenSegment(0, 10, 1)]),
    "remove_deleted_files": lambda log: log.remove_deleted_files(),
    "read_replica": lambda log: log.read_replica(log.replica_start_offset, 100),
    "append_replica": lambda log: log.append_replica(b"", log.log_end_offset),
    "read_segment_file": lambda log: log.read_segment_file(SegmentRef(5, 6, 0, 100, 0), 0, 100),
    "has_file": lambda log: log.has_file(RewrittenSegment(0, 10, 1)),
    "segment_reference": lambda log: log.segment_reference(5, 0),
    "install_segment": lambda log: log.install_segment(SegmentRef(5, 6, 0, 100, 0), f"{log.directory}/copied.tmp"),
    "restart_at": lambda log: log.restart_at(100),
    "take_over": lambda log: log.take_over(7),
    "list_messages": lambda log: log.list_messages(),
    "roll": lambda log: log.roll(),
    "flush": lambda log: log.flush(),
    "flush_sealed": lambda log: log.flush_sealed(),
    "truncate_to": lambda log: log.truncate_to(log.high_watermark),
    "close": lambda log: log.close(),
    "discard": lambda log: log.discard(),
}
"""Every method that reaches the directory."""
SILENT = {"remove_deleted_files", "close", "discard"}
"""Those that simply do nothing."""
IN_MEMORY = {
    "append_seals_many",
    "append_reads_segment",
    "begin_copy",
    "configure",
    "open",
    "offline",
    "generation_of",
    "active_producers",
    "producer",
    "producers",
    "epoch_for_offset",
    "end_offset_for_epoch",
    "expire_producers",
    "find_repeated",
    "flush_due",
    "has_unsynced_segments",
}


def content_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def written(directory: Path, **config: object) -> Log:
    """A log with sealed segments, an active one, files that wait to be unlinked, and records nobody has been shown."""
    log = open_log(directory, segment_bytes=2_000, **config)
    for number in range(20):
        append(log, simple_batch([b"%d" % number], producer_id=4, epoch=0, sequence=number, transactional=True))
    log.delete_records_before(5)
    log.append([simple_batch([b"unseen"])], 0)
    return log


def test_the_table_has_every_method() -> None:
    methods = {name for name in dir(Log) if not name.startswith("_") and not isinstance(getattr(Log, name), property)}
    assert methods == CALLS.keys() | IN_MEMORY


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("end", ["close", "discard"])
def test_no_method_touches_the_directory_of_a_closed_log(tmp_path: Path, name: str, end: str) -> None:
    clock = ManualClock()
    log = written(tmp_path / "t", clock=clock, file_delete_delay_ms=1_000)
    getattr(log, end)()
    before = content_of(tmp_path / "t")
    clock.advance(10_000)
    if name in SILENT:
        CALLS[name](log)
    elif name == "append":
        (answer,) = CALLS[name](log)
        assert isinstance(answer, KafkaStorageError)
    else:
        with pytest.raises(KafkaStorageError, match="closed"):
            CALLS[name](log)
    assert content_of(tmp_path / "t") == before


def test_a_log_that_cannot_be_closed_is_closed_and_recovered(tmp_path: Path) -> None:
    files = FaultyFiles()
    open_files = OpenFiles(files, 64)
    log = Log.open(tmp_path / "t", LogConfig(segment_bytes=2_000), ManualClock(), files, open_files)
    for number in range(20):
        append(log, simple_batch([b"%d" % number]))
    files.fail_at_call = 0
    with pytest.raises(KafkaStorageError):
        log.close()
    assert len(open_files) == 0
    files.fail_at_call = None
    assert isinstance(log.append([simple_batch([b"late"])], 0)[0], KafkaStorageError)
    log.close()
    again = open_log(tmp_path / "t")
    assert [row[2] for _, row in read_all(again)] == [b"%d" % number for number in range(20)]
    again.close()
    assert verify_partition(tmp_path / "t") == []


class Topics:
    """Topics of one name, one after the other, on a disk with faults."""

    def __init__(self, root: Path) -> None:
        self.files = FaultyFiles()
        self.root = root
        self.open_files = OpenFiles(self.files, 64)
        self.logs = LogDirectory(root, ManualClock(), self.open_files)
        self.created: list[tuple[Any, Log]] = []

    def create(self) -> Log:
        topic_id = uuid4()
        log = self.logs.open("t", 0, topic_id, LogConfig())
        self.created.append((topic_id, log))
        return log

    def delete(self) -> list[Path]:
        """As `TopicAdmin` does it: the broker goes on whatever the disk says."""
        topic_id, log = self.created[-1]
        log.discard()
        return self.logs.retire("t", topic_id, [0])

    def killed(self) -> Topics:
        """The broker that is started after a SIGKILL: nothing was closed."""
        again = Topics(self.root)
        again.created = [self.created[-1]]
        return again


def values(log: Log) -> list[bytes | None]:
    return [row[2] for _, row in read_all(log)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fault", ["no space", "nothing can be written", "not even renamed", "cannot be closed"])
@pytest.mark.parametrize("killed", [False, True])
def test_records_of_a_topic_created_again_are_in_its_own_files(
    tmp_path: Path, times: int, fault: str, *, killed: bool
) -> None:
    topics = Topics(tmp_path)
    for turn in range(times):
        log = topics.create()
        for number in range(30):
            append(log, simple_batch([b"old %d.%d" % (turn, number)], producer_id=7, epoch=0, sequence=number))
        if fault == "no space":
            topics.files.capacity_bytes = 0
        else:
            topics.files.fail_at_call = 0
        if fault == "cannot be closed":  # what a broker did that closes logs before it retires them
            with pytest.raises(KafkaStorageError):
                log.close()
            topics.files.fail_at_call = None
        topics.delete()
        if fault == "not even renamed":
            with pytest.raises(KafkaStorageError):
                topics.create()
        topics.files.capacity_bytes = topics.files.fail_at_call = None
        if killed:
            topics = topics.killed()
    log = topics.create()
    assert (log.log_start_offset, log.log_end_offset, log.active_producers()) == (0, 0, 0)
    for number in range(30):
        answer = append(log, simple_batch([b"new %d" % number], producer_id=7, epoch=0, sequence=number))[0]
        assert not isinstance(answer, KafkaError) and accepted(answer).base_offset == number
    expected: list[bytes | None] = [b"new %d" % number for number in range(30)]
    assert values(log) == expected
    topic_id = topics.created[-1][0]
    again = topics.killed().logs.open("t", 0, topic_id, LogConfig())
    assert values(again) == expected
    again.close()
    assert verify_partition(tmp_path / "t-0") == []


def test_a_late_unlink_of_a_deleted_log_spares_the_next_one(tmp_path: Path) -> None:
    clock = ManualClock()
    logs = LogDirectory(tmp_path, clock, OpenFiles())
    config, topic_id = LogConfig(file_delete_delay_ms=1_000), uuid4()
    old = logs.open("t", 0, topic_id, config)
    append(old, simple_batch([b"old"]))
    old.roll()
    append(old, simple_batch([b"old"]))
    old.delete_records_before(1)  # 0.arrow is to be unlinked in a second
    old.discard()
    logs.retire("t", topic_id, [0])
    new = logs.open("t", 0, uuid4(), config)
    append(new, simple_batch([b"new"]))  # in a file of that very name
    clock.advance(5_000)
    old.remove_deleted_files()
    new.remove_deleted_files()
    assert values(new) == [b"new"]
    assert (tmp_path / "t-0" / f"{0:020d}.arrow").exists()


def test_a_flush_that_fails_after_its_log_was_discarded_leaves_the_state_of_the_next_topic(tmp_path: Path) -> None:
    """That of a follower is counted for what it discards, and would say so in `state`."""
    directory, files = tmp_path / "t-0", ActsInSync()
    old = open_log(directory, files=files, is_replicated=True)
    for value in (b"a", b"b", b"c"):
        append(old, simple_batch([value]))
    old.append([simple_batch([b"d"])], 0)

    def replace() -> None:
        old.discard()
        directory.rename(tmp_path / "retired")
        append(open_log(directory, is_replicated=True), simple_batch([b"new"]))
        files.failing_syncs = 1

    files.act = replace
    with pytest.raises(KafkaStorageError):
        old.flush(old.log_end_offset)
    state = read_state(directory)
    assert (state.log_end_offset, state.high_watermark, state.was_cut) == (1, 1, False)
