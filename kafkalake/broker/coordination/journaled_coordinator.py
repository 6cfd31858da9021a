"""The common part of the coordinators of groups and transactions: automata whose state is what the journal has.

It loads them from the journal, carries out their decisions, and writes their records. Records that the journal acknowledged are
applied before requests are answered, so a response never runs ahead of the journal. Needs no event loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.automata import EffectRunner, MachineSlot
from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import Journal, JournalRecord, ProducerIdAndEpoch, coordinator_error
from kafkalake.broker.coordination.table import Changed, JournaledTable
from kafkalake.clock import Clock
from kafkalake.errors import KafkaError, NotCoordinatorError
from kafkalake.record.build import ReadBatch

logger = logging.getLogger(__name__)

E = TypeVar("E", bound=MachineSlot)
C = TypeVar("C", bound=Changed)
R = TypeVar("R")

OnWritten = Callable[[ErrorClass | None], None]


@dataclass(frozen=True, slots=True)
class JournalFormat(Generic[R]):
    """The records of a journal.

    decode: None for an unused type of record; it raises `JournalFormatError` if the record is malformed. is_published: whether
    Delta has the records of this key, up to its position. filler: a record that means nothing. is_limited: whether
    `max.message.bytes` limits the record. One that ends what an earlier record began is written whatever its length.
    """

    encode: Callable[[R], JournalRecord]
    decode: Callable[[bytes, bytes | None], R | None]
    is_published: Callable[[bytes], bool]
    filler: R
    is_limited: Callable[[R], bool] = lambda record: True


class JournaledCoordinator(Generic[E, R, C]):
    """Loads the entries of `table` from the journal and writes their records. `effects` carries out their decisions."""

    def __init__(
        self,
        table: JournaledTable[E, C],
        records: JournalFormat[R],
        journal: Journal,
        clock: Clock,
        effects: EffectRunner[E],
    ) -> None:
        self.table = table
        self.effects = effects
        self.format = records
        self._journal = journal
        self._clock = clock
        self._under_way: Counter[int] = Counter()
        """Journal partition -> number of batches that are being written to it."""
        self._when_written: dict[int, list[Callable[[None], None]]] = {}

    # Start and end of a journal partition

    def begin_load(self, partition: int, position: int = 0, published: Iterable[C] = (), leader_epoch: int = 0) -> None:
        """Begin to load a partition that this broker leads: Delta's rows as of `position`, then the journal from there."""
        self.table.begin(partition, position, leader_epoch)
        self.table.load_published(published)

    def load(self, partition: int, batch: ReadBatch, begin: int = 0) -> None:
        """Apply one journal batch, of the records before `begin` only those that Delta does not have.

        Raise `JournalFormatError` if it cannot be decoded.
        """
        if batch.committed is not None:
            self.table.follow_end(partition, batch.producer_id, committed=batch.committed, position=batch.base_offset)
        producer_id = None if batch.producer_id < 0 else batch.producer_id
        for position, (key, value) in enumerate(batch.pairs, batch.base_offset):
            if position < begin and self.format.is_published(key or b""):
                continue
            record = self.format.decode(key or b"", value)
            if record is not None:
                self.table.follow(partition, position, record, producer_id)

    def finish_load(self, partition: int, end: int = 0, lost: Sequence[range] = ()) -> None:
        """Serve the partition from now on and resume unfinished steps.

        The journal has been read up to the offset `end`, without the offsets of `lost`.
        """
        for entry in self.table.finish(partition, end, lost):
            call_isolated(CallbackLoop.COORDINATED, self._restore, entry, lost)

    def _restore(self, entry: E, lost: Sequence[range]) -> None:
        entry.restored(lost)
        self.effects.run(entry)

    def unload(self, partition: int) -> list[E]:
        """Unload a partition this broker no longer leads, or on shutdown. Pending requests fail with NOT_COORDINATOR.

        Return what it had.
        """
        entries = self.table.end(partition)
        for entry in entries:
            call_isolated(CallbackLoop.COORDINATED, self._close, entry)
        return entries

    def _close(self, entry: E) -> None:
        entry.close(NotCoordinatorError)
        self.effects.run(entry)

    # Writing

    def write(
        self, partition: int, records: Sequence[R], written: OnWritten, producer: ProducerIdAndEpoch | None = None
    ) -> None:
        """Append `records` as one batch. Once it is durable, apply it, then call `written`."""
        try:
            encoded = [self.format.encode(record) for record in records]
        except KafkaError as error:
            written(type(error))
            return
        except Exception:
            logger.exception("records cannot be written to the journal partition=%d", partition)
            written(KafkaError)
            return
        producer_id = None if producer is None else producer.producer_id
        shard = self.table.shard(partition)

        def appended(position: int, error: KafkaError | None) -> None:
            self._written(partition)
            if error is None and self.table.shard(partition) is shard:  # else the next load of the journal reads them
                for index, record in enumerate(records, position):
                    self.table.follow(partition, index, record, producer_id)
            written(None if error is None else coordinator_error(error))

        self._under_way[partition] += 1
        is_limited = any(map(self.format.is_limited, records))
        self._journal.append(partition, encoded, self._clock.now_ms(), producer, appended, is_limited=is_limited)

    def when_written(self, partition: int, action: Callable[[None], None]) -> None:
        """Call `action` once, when no batch is being written to the partition, at once or later."""
        if self._under_way[partition]:
            self._when_written.setdefault(partition, []).append(action)
        else:
            action(None)

    def _written(self, partition: int) -> None:
        self._under_way[partition] -= 1
        if self._when_written and not self._under_way[partition]:
            for action in self._when_written.pop(partition, ()):
                call_isolated(CallbackLoop.COORDINATED, action, None)
