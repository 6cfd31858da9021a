"""A follower's log against its leader's, through any order of appends, takeovers, copies, restarts and truncations of both."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from manual_clock import ManualClock
from partition_logs import open_log
from record_batches import simple_batch
from replica_logs import data_of, reads_of

from kafkalake.errors import CorruptMessageError, OffsetOutOfRangeError
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.storage.segment_names import INDEX_SUFFIX, TXN_INDEX_SUFFIX

TRANSACTIONAL = 3
TIMESTAMPS = st.sampled_from([-1, 0, 1_000, 5_000, 900_000])


class Replicas(RuleBasedStateMachine):
    """`is_whole`: the follower has copied from the first record on, so it knows the transactions that began in removed segments."""

    def __init__(self) -> None:
        super().__init__()
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalake-replicas-", dir=base))
        self.clock = ManualClock()
        self.sequences = {1: 0, 2: 0, TRANSACTIONAL: 0}
        self.epoch = 1
        self.is_whole = True

    @initialize(
        codec=st.sampled_from(["none", "none", "lz4"]), timestamps=st.sampled_from(["CreateTime", "LogAppendTime"])
    )
    def begin(self, codec: str, timestamps: str) -> None:
        self.config = {"segment_compression": codec, "message_timestamp_type": timestamps}
        self.leader, self.follower = self.open("leader"), self.open("follower")
        self.leader.take_over(self.epoch)

    def open(self, name: str) -> Log:
        return open_log(
            self.directory / name,
            self.clock,
            is_replicated=True,
            segment_bytes=5_000,
            index_interval_bytes=900,
            segment_ms=600_000,
            **self.config,
        )

    def teardown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    @rule(
        producers=st.lists(st.sampled_from([None, 1, 2, TRANSACTIONAL]), min_size=1, max_size=4),
        size=st.integers(0, 600),
        timestamp=TIMESTAMPS,
    )
    def append(self, producers: list[int | None], size: int, timestamp: int) -> None:
        batches = []
        for number, producer in enumerate(producers):
            values = [bytes(size)] * (1 + number)
            if producer is None:
                batches.append(simple_batch(values, timestamp))
                continue
            sequence, of_transaction = self.sequences[producer], producer == TRANSACTIONAL
            self.sequences[producer] += len(values)
            state = {"producer_id": producer, "epoch": 0, "sequence": sequence, "transactional": of_transaction}
            batches.append(simple_batch(values, timestamp, **state))
        self.leader.append(batches, self.epoch)

    @rule(control=st.sampled_from([ABORT, COMMIT]))
    def end_transaction(self, control: int) -> None:
        self.leader.append_control(EndMarker(TRANSACTIONAL, 0, control, 0), self.epoch)

    @rule()
    def roll(self) -> None:
        self.leader.roll()

    @rule(ms=st.sampled_from([1, 400_000]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(ends=st.sampled_from([None, "close", "discard"]))
    def take_over(self, ends: str | None) -> None:
        if ends is not None:
            getattr(self.leader, ends)()
            self.leader = self.open("leader")
        self.epoch += 1
        self.leader.take_over(self.epoch)

    @rule()
    def acknowledge(self) -> None:
        self.leader.advance_high_watermark(self.leader.log_end_offset)

    @rule(part=st.floats(0, 1))
    def delete(self, part: float) -> None:
        self.leader.delete_records_before(int(part * self.leader.high_watermark))

    @rule(max_bytes=st.integers(1, 9_000))
    def copy(self, max_bytes: int) -> None:
        leader, follower = self.leader, self.follower
        if follower.log_end_offset < leader.replica_start_offset:
            self.start_anew()
        read = leader.read_replica(follower.log_end_offset, max_bytes)
        assert len(read.messages) > 0 or follower.log_end_offset == leader.log_end_offset
        follower.append_replica(read.messages, read.segment_base_offset, ends_segment=read.ends_segment)
        assert follower.log_end_offset == read.next_offset
        follower.advance_high_watermark(min(leader.high_watermark, follower.log_end_offset))
        follower.raise_start(leader.log_start_offset)

    @rule(max_bytes=st.integers(1, 9_000))
    def copy_all(self, max_bytes: int) -> None:
        self.copy(max_bytes)
        while self.follower.log_end_offset < self.leader.log_end_offset:
            self.copy(max_bytes)
        self.copy(max_bytes)
        self.assert_same()

    def assert_same(self) -> None:
        leader, follower = self.leader, self.follower
        ours, theirs = data_of(self.directory / "follower"), data_of(self.directory / "leader")
        bases = [base for base in leader.sealed_base_offsets if base >= follower.replica_start_offset]
        if follower.sealed_base_offsets[len(bases) :]:  # closed since, and nothing appended
            ours[max(ours)] = ours[max(ours)][: len(theirs[max(ours)])]
        assert follower.sealed_base_offsets[: len(bases)] == bases
        assert len(follower.sealed_base_offsets) <= len(bases) + 1
        assert {name: theirs.get(name) for name in ours} == ours
        start, end = max(leader.log_start_offset, follower.log_start_offset), leader.log_end_offset
        for offset in range(start, end):
            assert follower.epoch_for_offset(offset) == leader.epoch_for_offset(offset)
        if self.is_whole:
            self.assert_same_indexes(bases)
            assert [self.seen(follower, id) for id in self.sequences] == [
                self.seen(leader, id) for id in self.sequences
            ]
            assert follower.aborted_transactions(start, end) == leader.aborted_transactions(start, end)

    def assert_same_indexes(self, bases: list[int]) -> None:
        for base in bases:
            for suffix in (INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                assert self.bytes_of("follower", base, suffix) == self.bytes_of("leader", base, suffix)

    def bytes_of(self, name: str, base: int, suffix: str) -> bytes | None:
        path = self.directory / name / f"{base:020d}{suffix}"
        return path.read_bytes() if path.exists() else None

    def seen(self, log: Log, producer_id: int) -> object:
        """A producer's batches and open transaction."""
        found = log.producer(producer_id)
        return None if found is None else (found.epoch, found.batches, found.transaction_offset)

    @rule(ends=st.sampled_from(["close", "discard"]))
    def restart_follower(self, ends: str) -> None:
        end, mark = self.follower.log_end_offset, self.follower.high_watermark
        getattr(self.follower, ends)()
        self.follower = self.open("follower")
        assert (self.follower.log_end_offset, self.follower.high_watermark) == (end, mark)
        assert not self.follower.was_cut

    @rule(number=st.integers(0, 50))
    def truncate(self, number: int) -> None:
        borders = [read.first_offset for read in reads_of(self.follower)] or [self.follower.log_end_offset]
        offset = borders[number % len(borders)]
        self.follower.truncate_to(offset, below_high_watermark=True)
        assert self.follower.log_end_offset == offset
        assert self.follower.high_watermark <= offset

    @rule()
    def start_anew(self) -> None:
        self.follower.restart_at(self.leader.replica_start_offset)
        self.is_whole = self.leader.replica_start_offset == 0

    @rule(
        max_bytes=st.integers(1, 9_000),
        at=st.floats(0, 1, exclude_max=True),
        how=st.sampled_from(["flip", "cut", "again"]),
    )
    def copy_damaged(self, max_bytes: int, at: float, how: str) -> None:
        if not self.leader.replica_start_offset <= self.follower.log_end_offset < self.leader.log_end_offset:
            return
        read = self.leader.read_replica(self.follower.log_end_offset, max_bytes)
        data = bytearray(read.messages)
        place = int(at * len(data))
        if how == "flip":
            data[place] ^= 1
        elif how == "cut":
            del data[max(1, place) :]
        else:
            data += bytes(data)
        if len(data) == len(read.messages) and how == "cut":
            return
        before = (data_of(self.directory / "follower"), self.follower.log_end_offset, self.follower.latest_epoch)
        with pytest.raises((CorruptMessageError, OffsetOutOfRangeError)):
            self.follower.append_replica(bytes(data), read.segment_base_offset, ends_segment=read.ends_segment)
        assert (
            data_of(self.directory / "follower"),
            self.follower.log_end_offset,
            self.follower.latest_epoch,
        ) == before

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "follower"):
            log = self.follower
            assert log.replica_start_offset <= log.log_start_offset <= log.high_watermark <= log.log_end_offset


Replicas.TestCase.settings = examples(40, stateful_step_count=25)
TestReplicas = pytest.mark.exhaustive(Replicas.TestCase)
