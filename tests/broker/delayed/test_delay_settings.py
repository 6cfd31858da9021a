"""The settings of a topic change between a try and its retry: each record is in the log or waits, never both and never neither."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from leaderships import THREE, LedPartition
from record_batches import Row, record_batch, rows_of
from storage.partition_logs import open_log

from kafkalake.broker.delayed.delaying_append import Done, HandIn, Received, begin_append
from kafkalake.broker.delayed.doubles import Doubles
from kafkalake.broker.partitions.append_queue import ProduceRequest
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import ACKS_ALL, PendingAppend
from kafkalake.config.topic_rules import DelayRules
from kafkalake.delayed_headers import DELAY_ID, DELAY_MS, DELIVER_AT
from kafkalake.delayed_journal import HandInKey
from kafkalake.errors import KafkaError, NotEnoughReplicasError
from kafkalake.record import layout as at
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import COMMIT, EndMarker
from kafkalake.topic_partition import PartitionId

NOW_MS = 1_000
PRODUCER = 7
HEADERS: dict[str, list[tuple[str, bytes | None]]] = {
    "now": [],
    "delay": [(DELAY_MS, b"100")],
    "long delay": [(DELAY_MS, b"5000")],
    "past": [(DELIVER_AT, b"5")],
    "cancel": [(DELAY_ID, b"id")],
    "wrong": [(DELAY_MS, b"soon")],
}
BY_HEADERS = (None, DelayRules(1_000), DelayRules(10_000))
BY_LEVEL = (DelayRules(1_000, 500, "orders"), DelayRules(10_000, 500, "orders"))


class Fate(Enum):
    """What becomes of a hand-in, or of a batch before it."""

    NOT_REPLICATED = 0
    REFUSED = 1
    ANSWER_LOST = 2
    DONE = 3


class Event(Enum):
    """What happens before a try."""

    NOTHING = 0
    RESTART = 1
    KILL = 2
    LEADER_CHANGE = 3


class Try(NamedTuple):
    rules: DelayRules | None
    event: Event
    fate: Fate


class Batch(NamedTuple):
    """The records of a batch, by their headers, the tries of which some may fail, and one more."""

    kinds: list[str]
    tries: list[Try]
    last: Try


class Journal:
    """The gate, and the coordinator behind it, which keeps the keys of the records that wait."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.fate = Fate.DONE
        self._doubles = Doubles()

    def target_of(self, partition: Partition, rules: DelayRules, batch: object) -> PartitionId[UUID]:
        return partition.replica

    def hand_in(self, hand_in: HandIn, done: Done) -> None:
        if self.fate is Fate.REFUSED:
            done(NotEnoughReplicasError())
            return
        header = hand_in.split.immediate.header
        key = HandInKey(
            hand_in.source,
            *(int(header[each]) for each in (at.PRODUCER_ID, at.PRODUCER_EPOCH)),
            int(header[at.BASE_SEQUENCE]),
        )
        if not self._doubles.has(key):
            self._doubles.add(key)
            self.waiting += hand_in.split.rows.column("key").to_pylist()
        done(NotEnoughReplicasError() if self.fate is Fate.ANSWER_LOST else None)


class Source:
    """A partition with a follower, which leads after a change of leader."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._epoch = THREE.leader_epoch
        self.journal = Journal()
        self.led = self._lead()
        self.follower = self._follow()

    def _lead(self) -> LedPartition:
        led = LedPartition(self._directory / str(self._epoch), replace(THREE, leader_epoch=self._epoch))
        led.log.take_over(self._epoch)
        return led

    def _follow(self) -> Log:
        return open_log(self._directory / str(self._epoch + 1), self.led.clock, is_replicated=True)

    def happen(self, event: Event) -> None:
        match event:
            case Event.RESTART | Event.KILL:
                if event is Event.RESTART:
                    self.led.log.close()
                self.led = self._lead()
            case Event.LEADER_CHANGE:
                self.follower.close()
                self._epoch += 1
                self.led, self.follower = self._lead(), self._follow()
                self._copy()  # else it is not in the ISR, and cannot lead

    def send(self, rows: Sequence[Row], sequence: int, one: Try, *, transactional: bool) -> str | None:
        """Send a batch once, and return the error's label."""
        self.happen(one.event)
        led, self.journal.fate = self.led, one.fate
        received = Received("t" if transactional else None, NOW_MS, 30_000)
        pending = begin_append(self.journal, led.partition, one.rules, received, ACKS_ALL)
        batch = record_batch(rows, producer_id=PRODUCER, epoch=0, sequence=sequence, transactional=transactional)
        try:
            pending.decoded(batch, None)
        except KafkaError as error:
            return error.label
        answers: list[str | None] = []

        def answered(produced: ProduceRequest) -> None:
            result = produced.batches[0].result
            answers.append(None if isinstance(result, AppendResult) else getattr(result, "label", "no result"))

        ProduceRequest([pending], answered).start(led.queue)
        led.turn()
        if one.fate is Fate.NOT_REPLICATED:
            led.pass_time(30_001)
        else:
            self.replicate()
        assert len(answers) == 1
        return answers[0]

    def _copy(self) -> None:
        leader, follower = self.led.log, self.follower
        while follower.log_end_offset < leader.log_end_offset:
            read = leader.read_replica(follower.log_end_offset, 1 << 20)
            follower.append_replica(read.messages, read.segment_base_offset, ends_segment=read.ends_segment)

    def replicate(self) -> None:
        self._copy()
        for broker in (1, 2):
            self.led.fetch(broker, self.led.log.log_end_offset)

    def commit(self) -> None:
        """End the producer's transaction."""
        self.led.queue.add(PendingAppend(self.led.partition, None, None, marker=EndMarker(PRODUCER, 0, COMMIT, 0)))
        self.led.turn()
        self.replicate()

    def readable(self) -> list[bytes]:
        """Return the keys of the records in the log."""
        log, offset, found = self.led.log, 0, []
        while offset < log.log_end_offset:
            messages = log.read(offset, 1 << 20, log.log_end_offset)
            found += [row[1] or b"" for _, row in rows_of(messages)]
            offset = messages.next_offset
        return found


def tries(rules: Sequence[DelayRules | None]) -> st.SearchStrategy[list[Try]]:
    return st.lists(st.builds(Try, st.sampled_from(rules), st.sampled_from(Event), st.sampled_from(Fate)), max_size=3)


def batches(kinds: Sequence[str], rules: Sequence[DelayRules | None]) -> st.SearchStrategy[list[Batch]]:
    last = st.builds(Try, st.sampled_from(rules), st.sampled_from(Event), st.just(Fate.DONE))
    records = st.lists(st.sampled_from(kinds), min_size=1, max_size=3)
    return st.lists(st.builds(Batch, records, tries(rules), last), max_size=4)


@pytest.mark.exhaustive
@examples(100)
@given(
    st.one_of(batches(tuple(HEADERS), BY_HEADERS), batches(("now", "cancel"), BY_LEVEL)),
    st.booleans(),
)
def test_a_record_is_in_the_log_or_waits_whatever_changes_between_tries(sent: list[Batch], transactional: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source = Source(Path(directory))
        sequence = 0
        acknowledged: list[bytes] = []
        for number, each in enumerate(sent):
            rows: list[Row] = [
                (5, b"%d-%d" % (number, place), None if kind == "cancel" else b"v", HEADERS[kind])
                for place, kind in enumerate(each.kinds)
            ]
            for one in (*each.tries, each.last):
                answer = source.send(rows, sequence, one, transactional=transactional)
                if answer is None:
                    acknowledged += [row[1] or b"" for row in rows]
                    sequence += len(rows)
                    break
            else:
                assert answer in ("INVALID_RECORD", "INVALID_TIMESTAMP"), "nothing else lasts"
                assert not any(row[1] in source.readable() for row in rows), "its first try was refused, too"
            if transactional:
                source.commit()
        every = sorted(source.readable() + source.journal.waiting)
        assert every == sorted(acknowledged), "each once"
