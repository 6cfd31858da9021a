"""Writes each record once into a database: the offset is stored in the transaction of the record.

A record is written twice neither after a crash, since the stored offset says where to go on (`listener` seeks there), nor by two
consumers at once, as when one of them has lost its partition without knowing: the offset moves only from where the writer has
found it, and (topic, partition, offset) is a key. No record is left out after a write that fails, either: the consumers that `seek`
or `listener` were called with go back to its first. The group's committed offsets are not needed. Works with `sqlite3`, and by
DB-API 2.0 (PEP 249) with other databases that know VARCHAR, INTEGER, BIGINT and CREATE TABLE IF NOT EXISTS; for PostgreSQL with
`binary_type="BYTEA"`.

Topics are known by name. A topic that is deleted and created again is taken for the one before, whose stored offset counts: delete
its rows from both tables first, or records of the new topic below that offset are left out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from kafkalake.client.consuming.consumer import Consumer
from kafkalake.client.consuming.listeners import RebalanceListener
from kafkalake.client.consuming.records import DeserializedRecord
from kafkalake.client.errors import ConcurrentWriterError
from kafkalake.errors import ConfigurationError, KafkaLakeError
from kafkalake.topic_partition import TopicPartition

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_ATTEMPTS = 3


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement changed."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> object:
        """Run a statement."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows of the last query."""
        ...

    def close(self) -> object:
        """Close the cursor."""
        ...


class Connection(Protocol):
    """The part of a DB-API connection that is used. It must not commit by itself."""

    def cursor(self) -> Any:
        """Return a new cursor."""
        ...

    def commit(self) -> object:
        """End the transaction."""
        ...

    def rollback(self) -> object:
        """Undo the transaction."""
        ...


Insert = Callable[[Any, DeserializedRecord], object]
"""Writes a record by a cursor, in the transaction of its offset."""


class ExactlyOnceSink:
    """See the module. Use it from one thread.

    sink = ExactlyOnceSink(sqlite3.connect("orders.db"))
    consumer.subscribe("orders", listener=sink.listener(consumer))
    while True:
        sink.write(consumer.poll(1.0))
    """

    def __init__(
        self,
        connection: Connection,
        *,
        table: str = "records",
        offsets_table: str = "consumed_offsets",
        insert: Insert | None = None,
        paramstyle: str = "qmark",
        binary_type: str = "BLOB",
    ) -> None:
        """Create the tables if they are not there. insert: writes a record into tables of your own instead of `table`.

        paramstyle: the database module's. binary_type: the database's type of keys and values, as BYTEA (PostgreSQL), LONGBLOB
        (MySQL, whose BLOB ends at 64 KiB). Raise `ConfigurationError` for a name that is none, or another style than qmark,
        format, pyformat.
        """
        if not _NAME.fullmatch(binary_type):
            raise ConfigurationError(f"'{binary_type}' is no name of a type: letters, digits and '_'")
        for name in (table, offsets_table):
            if not _NAME.fullmatch(name):
                raise ConfigurationError(f"'{name}' is no name of a table: letters, digits and '_'")
        if paramstyle not in _MARKS:
            raise ConfigurationError(f"the parameter style '{paramstyle}' is not one of {', '.join(_MARKS)}")
        self._connection = connection
        self._table, self._offsets_table = table, offsets_table
        self._mark = _MARKS[paramstyle]
        self._binary_type = binary_type
        self._insert = insert or self._insert_record
        self._consumers: WeakKeyDictionary[Consumer, set[TopicPartition]] = WeakKeyDictionary()
        """Each with the partitions that were moved to what is next to be written."""
        self._create(own_table=insert is None)

    def write(self, records: Collection[DeserializedRecord]) -> int:
        """Write records in one transaction, in order, without those that were written before. Return how many were written.

        Raise what the database or `insert` raises, and `ConcurrentWriterError`: then nothing was written, and the next poll of
        the consumer returns the records again. Raise `TypeError` for an iterator: the records behind one that it fails at are
        not known. The next poll returns again what is not written then, too, and no commit covers it. Raise `ValueError` for
        records that are not in the order of their offsets: those behind a later one would be taken for written.
        """
        if not isinstance(records, Collection):
            self._begin_again()
            raise TypeError(
                f"records are a list, as poll returns, not {type(records).__name__}: an iterator can fail halfway"
            )
        wanted = list(records)
        if not wanted:
            return 0
        try:
            _check_order(wanted)
            for _ in range(_ATTEMPTS):
                written = self._try_to_write(wanted)
                if written is not None:
                    return written
            raise ConcurrentWriterError(
                f"another consumer writes to {self._offsets_table} the records of the same partitions"
            )
        except BaseException:
            self._go_back(wanted)
            raise

    def _go_back(self, records: list[DeserializedRecord]) -> None:
        """Move the consumers back to records that were not written: their positions are behind these, and would be committed."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            partition = record.topic, record.partition
            first[partition] = min(record.offset, first.get(partition, record.offset))
        for consumer, (partition, offset) in product(list(self._consumers), first.items()):
            with contextlib.suppress(KafkaLakeError):  # it is closed, or has the partition no more
                if consumer.position(partition, 0) > offset:
                    consumer.seek(partition, offset)

    def _begin_again(self) -> None:
        """Move the consumers back to where they began, or to what is next to be written, in all of their partitions."""
        for consumer, partitions in list(self._consumers.items()):
            with contextlib.suppress(KafkaLakeError):  # it is closed
                assigned = partitions & consumer.assignment()
                consumer.forget_positions(assigned)
                self.seek(consumer, assigned)

    def offsets(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to be written, by partition."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(f"SELECT topic, partition_number, next_offset FROM {self._offsets_table}")
            return {(topic, int(number)): int(offset) for topic, number, offset in cursor.fetchall()}
        finally:
            cursor.close()

    def seek(self, consumer: Consumer, partitions: Collection[TopicPartition]) -> None:
        """Move a consumer to the records that are next to be written, in those of `partitions` that have any yet."""
        _check_consumer(consumer)
        self._consumers.setdefault(consumer, set()).update(partitions)
        try:
            stored = self.offsets()
        finally:
            self._connection.rollback()  # ends the transaction of the query, without which no other is done if it has failed
        for partition in partitions:
            if partition in stored:
                consumer.seek(partition, stored[partition])

    def listener(self, consumer: Consumer) -> RebalanceListener:
        """Return a listener that calls `seek` for the partitions that `consumer` is assigned.

        Raise `TypeError`, as `seek` does, for a consumer on an event loop: a failed write could not go back to its positions.
        """
        _check_consumer(consumer)
        return _Seeker(self, consumer)

    def _try_to_write(self, records: list[DeserializedRecord]) -> int | None:
        """Return how many records were written, None if another writer came in between."""
        cursor = self._connection.cursor()
        try:
            before = self._offsets_of(cursor, {(record.topic, record.partition) for record in records})
            after = dict(before)
            written = 0
            for record in records:
                partition = record.topic, record.partition
                next_offset = after.get(partition)
                if next_offset is None or record.offset >= next_offset:
                    self._insert(cursor, record)
                    after[partition] = record.offset + 1
                    written += 1
            if not all(self._move(cursor, each, before.get(each), after[each]) for each in after):
                self._connection.rollback()
                return None
            self._connection.commit()
        except BaseException as error:
            self._connection.rollback()
            if type(error).__name__ == "IntegrityError" and self._has_moved(records, before):
                return None
            raise
        else:
            return written
        finally:
            cursor.close()

    def _has_moved(self, records: list[DeserializedRecord], before: dict[TopicPartition, int]) -> bool:
        """Return whether another writer has moved an offset since it was read."""
        now = self.offsets()
        return any(now.get(each) != before.get(each) for each in {(one.topic, one.partition) for one in records})

    def _offsets_of(self, cursor: Cursor, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        found = {}
        for topic, number in sorted(partitions):
            where = f"topic = {self._mark} AND partition_number = {self._mark}"
            cursor.execute(f"SELECT next_offset FROM {self._offsets_table} WHERE {where}", (topic, number))
            for (offset,) in cursor.fetchall():
                found[topic, number] = int(offset)
        return found

    def _move(self, cursor: Cursor, partition: TopicPartition, before: int | None, after: int) -> bool:
        """Store an offset. Return False if the stored one is not `before`."""
        mark, table = self._mark, self._offsets_table
        if before == after:
            return True
        if before is None:
            values = f"VALUES ({mark}, {mark}, {mark})"
            cursor.execute(f"INSERT INTO {table} (topic, partition_number, next_offset) {values}", (*partition, after))
            return True
        where = f"topic = {mark} AND partition_number = {mark} AND next_offset = {mark}"
        cursor.execute(f"UPDATE {table} SET next_offset = {mark} WHERE {where}", (after, *partition, before))
        return cursor.rowcount == 1

    def _insert_record(self, cursor: Cursor, record: DeserializedRecord) -> None:
        columns = "topic, partition_number, record_offset, timestamp_ms, record_key, record_value"
        marks = ", ".join([self._mark] * 6)
        values = record.topic, record.partition, record.offset, record.timestamp, record.key, record.value
        cursor.execute(f"INSERT INTO {self._table} ({columns}) VALUES ({marks})", values)

    def _create(self, *, own_table: bool) -> None:
        cursor = self._connection.cursor()
        names = "topic VARCHAR(249) NOT NULL, partition_number INTEGER NOT NULL"
        try:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._offsets_table} ({names}, next_offset BIGINT NOT NULL, "
                "PRIMARY KEY (topic, partition_number))"
            )
            if own_table:
                cursor.execute(
                    f"CREATE TABLE IF NOT EXISTS {self._table} ({names}, record_offset BIGINT NOT NULL, "
                    f"timestamp_ms BIGINT, record_key {self._binary_type}, record_value {self._binary_type}, "
                    "PRIMARY KEY (topic, partition_number, record_offset))"
                )
            self._connection.commit()
        except BaseException:
            self._connection.rollback()  # the same connection may be given again
            raise
        finally:
            cursor.close()


def _check_order(records: Sequence[DeserializedRecord]) -> None:
    """Raise `ValueError` if records of a partition do not stand in the order of their offsets."""
    last: dict[TopicPartition, int] = {}
    for record in records:
        partition = record.topic, record.partition
        if record.offset < last.get(partition, record.offset):
            raise ValueError(
                f"records of partition {partition[0]}-{partition[1]} are not in order: offset {record.offset} stands behind "
                f"{last[partition]}"
            )
        last[partition] = record.offset


def _check_consumer(consumer: object) -> None:
    if not isinstance(consumer, Consumer):
        kind = type(consumer)
        raise TypeError(f"a sink goes with a kafkalake.Consumer, not {kind.__module__}.{kind.__name__}")


class _Seeker(RebalanceListener):
    def __init__(self, sink: ExactlyOnceSink, consumer: Consumer) -> None:
        self._sink = sink
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._sink.seek(self._consumer, partitions)
