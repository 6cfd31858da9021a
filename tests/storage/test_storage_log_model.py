"""The log against a plain list, through any order of appends, rolls, restarts, crashes, deletions and reads."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from manual_clock import ManualClock
from partition_logs import open_log, read_all
from record_batches import Row, record_batch, rows_of

from kafkalake.errors import InvalidTxnStateError, OffsetOutOfRangeError
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.storage.state import read_state
from kafkalake.storage.verify import verify_partition

OPTIONAL_BYTES = st.none() | st.binary(max_size=40)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 500),
        OPTIONAL_BYTES,
        OPTIONAL_BYTES,
        st.lists(st.tuples(st.text(max_size=4), OPTIONAL_BYTES), max_size=2),
    ),
    min_size=1,
    max_size=5,
)
PRODUCERS = st.sampled_from([1, 2, 3])
TRANSACTIONAL = 3


class LogModel(RuleBasedStateMachine):
    """`rows[n]` is the record at offset n, None where a marker stands."""

    def __init__(self) -> None:
        super().__init__()
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalake-model-", dir=base))
        self.clock = ManualClock()
        self.rows: list[Row | None] = []
        self.start = 0
        self.acknowledged = 0
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.last_batch: dict[int, tuple[list[Row], int, int]] = {}
        self.open_transaction: int | None = None
        self.aborted: list[tuple[int, int, int]] = []
        self.log = self.open()

    def open(self) -> Log:
        return open_log(self.directory, self.clock, segment_bytes=6_000, index_interval_bytes=900, segment_ms=1_000_000)

    def teardown(self) -> None:
        self.log.close()
        assert verify_partition(self.directory) == []
        shutil.rmtree(self.directory, ignore_errors=True)

    def batch_of(self, producer: int, rows: list[Row], sequence: int) -> ProducerBatch:
        return record_batch(
            rows, producer_id=producer, epoch=0, sequence=sequence, transactional=producer == TRANSACTIONAL
        )

    @rule(batches=st.lists(ROWS, min_size=1, max_size=4))
    def append_plain(self, batches: list[list[Row]]) -> None:
        answers = self.log.append([record_batch(rows) for rows in batches], 0)
        for rows, answer in zip(batches, answers, strict=True):
            assert isinstance(answer, AppendResult)
            assert (answer.base_offset, answer.last_offset) == (len(self.rows), len(self.rows) + len(rows) - 1)
            self.rows += rows

    @rule(producer=PRODUCERS, rows=ROWS, acknowledge=st.booleans())
    def append_idempotent(self, producer: int, rows: list[Row], acknowledge: bool) -> None:
        sequence = self.sequences[producer]
        answer = self.log.append([self.batch_of(producer, rows, sequence)], 0)[0]
        assert isinstance(answer, AppendResult)
        assert (answer.base_offset, answer.duplicate) == (len(self.rows), False)
        self.last_batch[producer] = (rows, sequence, answer.base_offset)
        self.sequences[producer] += len(rows)
        if producer == TRANSACTIONAL and self.open_transaction is None:
            self.open_transaction = answer.base_offset
        self.rows += rows
        if acknowledge:
            self.acknowledge()

    @rule(producer=PRODUCERS)
    def send_again(self, producer: int) -> None:
        if producer in self.last_batch:
            rows, sequence, offset = self.last_batch[producer]
            answer = self.log.append([self.batch_of(producer, rows, sequence)], 0)[0]
            assert isinstance(answer, AppendResult)
            assert (answer.base_offset, answer.duplicate) == (offset, True)

    @rule(producer=PRODUCERS, rows=ROWS)
    def skip_a_sequence(self, producer: int, rows: list[Row]) -> None:
        if producer in self.last_batch:
            answer = self.log.append([self.batch_of(producer, rows, self.sequences[producer] + 1)], 0)[0]
            assert not isinstance(answer, AppendResult)
            assert answer.code == 45

    @precondition(lambda self: self.open_transaction is not None)
    @rule(kind=st.sampled_from([ABORT, COMMIT]))
    def end_transaction(self, kind: int) -> None:
        answer = self.log.append_control(EndMarker(TRANSACTIONAL, 0, kind, 0), 0)
        assert answer.base_offset == len(self.rows)
        assert self.open_transaction is not None
        if kind == ABORT:
            self.aborted.append((TRANSACTIONAL, self.open_transaction, len(self.rows)))
        self.open_transaction = None
        self.rows.append(None)

    @precondition(lambda self: self.open_transaction is not None)
    @rule()
    def leave_the_transaction(self) -> None:
        batch = record_batch(
            [(1, None, None, [])], producer_id=TRANSACTIONAL, epoch=0, sequence=self.sequences[TRANSACTIONAL]
        )
        assert isinstance(self.log.append([batch], 0)[0], InvalidTxnStateError)

    @rule()
    def acknowledge(self) -> None:
        self.log.advance_high_watermark(len(self.rows))
        self.acknowledged = len(self.rows)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == len(self.rows)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = self.open()

    @rule(garbage=st.binary(max_size=900), hint_lost=st.booleans())
    def crash(self, garbage: bytes, hint_lost: bool) -> None:
        """Garbage stands for a write that was cut through."""
        segments = sorted(self.directory.glob("*.arrow"))
        state = read_state(self.directory)
        if segments and not state.clean and int(segments[-1].stem) == state.active_base_offset:
            with segments[-1].open("ab") as file:
                file.write(garbage)
            if hint_lost:
                segments[-1].with_suffix(".index").unlink(missing_ok=True)
        self.log = self.open()

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = int(part * self.acknowledged)
        self.log.delete_records_before(offset)
        self.start = max(self.start, offset)

    @rule(part=st.floats(0, 1), max_bytes=st.sampled_from([1, 700, 100_000]))
    def read(self, part: float, max_bytes: int) -> None:
        offset = self.start + int(part * (len(self.rows) - self.start))
        messages = self.log.read(offset, max_bytes, len(self.rows))
        if offset == len(self.rows):
            assert len(messages) == 0
            return
        assert messages.base_offset <= offset < messages.next_offset
        for at, row in rows_of(messages):
            assert self.rows[at] == row

    @rule()
    def read_outside(self) -> None:
        for offset in (self.start - 1, len(self.rows) + 1):
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset, 1)

    @rule(timestamp=st.integers(0, 520))
    def find_a_time(self, timestamp: int) -> None:
        visible = enumerate(self.rows[self.start : self.acknowledged], self.start)
        expected = next(((row[0], at) for at, row in visible if row is not None and row[0] >= timestamp), None)
        assert self.log.offset_for_timestamp(timestamp) == expected

    @rule()
    def find_the_largest_time(self) -> None:
        left = [(row[0], -at) for at, row in enumerate(self.rows) if row is not None and at >= self.start]
        found = self.log.max_timestamp()
        assert found == ((max(left)[0], -max(left)[1]) if left else None)

    @rule()
    def read_everything(self) -> None:
        expected = [(at, row) for at, row in enumerate(self.rows) if row is not None and at >= self.start]
        assert read_all(self.log, self.start, len(self.rows)) == expected

    @rule()
    def list_aborted_transactions(self) -> None:
        found = [entry[:3] for entry in self.log.aborted_transactions(self.start, len(self.rows))]
        assert found == [entry for entry in self.aborted if entry[2] >= self.start]

    @invariant()
    def offsets_are_right(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
            self.start,
            self.acknowledged,
            len(self.rows),
        )
        assert self.start <= log.last_stable_offset <= self.acknowledged
        if self.open_transaction is not None:
            assert log.last_stable_offset <= max(self.start, self.open_transaction)
        state = read_state(self.directory)
        assert (state.log_start_offset, state.high_watermark) == (self.start, self.acknowledged)


LogModel.TestCase.settings = examples(60, stateful_step_count=40)
TestLogModel = pytest.mark.exhaustive(LogModel.TestCase)
