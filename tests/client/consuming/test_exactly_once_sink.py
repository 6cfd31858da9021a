"""Each record once in SQLite: after failures at any statement, after repeats, and with two writers."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kafkalake
from kafkalake import aio
from kafkalake.client.consuming.exactly_once_sink import ExactlyOnceSink
from kafkalake.client.consuming.records import ConsumerRecord
from kafkalake.client.errors import ConcurrentWriterError
from kafkalake.errors import ConfigurationError


def records(*offsets: int, partition: int = 0) -> list[ConsumerRecord[Any, Any]]:
    return [ConsumerRecord("t", partition, each, 1, "CreateTime", None, b"v%d" % each, (), 0) for each in offsets]


class FailingConnection:
    """A connection of which the statement with number `fails_at` raises."""

    def __init__(self, path: Path, fails_at: int) -> None:
        self.connection = sqlite3.connect(path)
        self.left = fails_at

    def cursor(self) -> FailingConnection:
        self._cursor = self.connection.cursor()
        return self

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        self.left -= 1
        if self.left == 0:
            raise sqlite3.OperationalError("disk I/O error")
        self._cursor.execute(statement, parameters)

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def close(self) -> None:
        self._cursor.close()

    def commit(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise sqlite3.OperationalError("disk I/O error")
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


def written(path: Path) -> list[tuple[int, int]]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT partition_number, record_offset FROM records ORDER BY 1, 2").fetchall()


def test_what_was_written_before_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "db"
    sink = ExactlyOnceSink(sqlite3.connect(path))
    assert sink.write(records(5, 6) + records(0, partition=1)) == 3
    assert sink.write(records(5, 6, 8)) == 1  # 7 was compacted away, or is a marker
    assert sink.write([]) == 0
    again = ExactlyOnceSink(sqlite3.connect(path))
    assert again.offsets() == {("t", 0): 9, ("t", 1): 1}
    assert again.write(records(6, 8, 9)) == 1
    assert written(path) == [(0, 5), (0, 6), (0, 8), (0, 9), (1, 0)]


def test_an_iterator_is_refused_before_a_record_is_taken_from_it(tmp_path: Path) -> None:
    sink = ExactlyOnceSink(sqlite3.connect(tmp_path / "db"))
    lazy = iter(records(0))
    with pytest.raises(TypeError, match="records are a list, as poll returns, not list_iterator"):
        sink.write(lazy)  # type: ignore[arg-type]
    assert sink.write(list(lazy)) == 1


def test_behind_a_refused_iterator_is_no_position_that_a_close_would_commit(tmp_path: Path) -> None:
    sink = ExactlyOnceSink(sqlite3.connect(tmp_path / "db"))
    sink.write(records(4, partition=1))
    with kafkalake.Consumer(bootstrap_servers="127.0.0.1:9") as consumer:
        consumer.assign([("t", number) for number in range(3)])
        sink.seek(consumer, [("t", 0), ("t", 1)])
        for number in range(3):
            consumer.seek(("t", number), 9)  # as a poll does
        with pytest.raises(TypeError):
            sink.write(iter(records(8)))  # type: ignore[arg-type]
        positions = {number: found.offset for (_, number), found in consumer._core.positions().items()}
        assert positions == {1: 5, 2: 9}, "of 0 nothing is written, and 2 is not the sink's"


def test_records_that_are_not_in_order_are_refused_and_polled_again(tmp_path: Path) -> None:
    path = tmp_path / "db"
    sink = ExactlyOnceSink(sqlite3.connect(path))
    with kafkalake.Consumer(bootstrap_servers="127.0.0.1:9") as consumer:
        consumer.assign([("t", 0)])
        sink.seek(consumer, [("t", 0)])
        consumer.seek(("t", 0), 9)  # as polls do
        with pytest.raises(ValueError, match="records of partition t-0 are not in order: offset 3 stands behind 8"):
            sink.write(records(7, 8) + records(0, partition=1) + records(3, 4))
        assert consumer.position(("t", 0), 0) == 3
    assert written(path) == []
    assert sink.write(records(3) + records(3)) == 1


def test_a_failure_at_any_statement_leaves_nothing_and_the_next_write_all(tmp_path: Path) -> None:
    for fails_at in range(1, 8):
        path = tmp_path / f"db{fails_at}"
        ExactlyOnceSink(sqlite3.connect(path)).write(records(0))
        connection = FailingConnection(path, fails_at + 3)  # three for the tables
        sink = ExactlyOnceSink(connection)
        try:
            sink.write(records(1, 2, 3))
        except sqlite3.OperationalError:
            assert written(path) == [(0, 0)]
            sink.write(records(1, 2, 3))
        assert written(path) == [(0, 0), (0, 1), (0, 2), (0, 3)]


class StrictConnection(FailingConnection):
    """As PostgreSQL's: a statement that fails ends its transaction, in which no other one is done before the rollback."""

    is_dead = False

    def cursor(self) -> StrictConnection:
        super().cursor()
        return self

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        if self.is_dead:
            raise sqlite3.InternalError("current transaction is aborted")
        self.is_dead = True
        super().execute(statement, parameters)
        self.is_dead = False

    def rollback(self) -> None:
        super().rollback()
        self.is_dead = False


def test_a_query_or_a_table_that_fails_once_leaves_the_connection_usable(tmp_path: Path) -> None:
    connection = StrictConnection(tmp_path / "db", fails_at=2)
    with pytest.raises(sqlite3.OperationalError):
        ExactlyOnceSink(connection)
    sink = ExactlyOnceSink(connection)
    sink.write(records(0))
    connection.left = 1
    with kafkalake.Consumer(bootstrap_servers="127.0.0.1:9") as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(sqlite3.OperationalError):
            sink.seek(consumer, [("t", 0)])
        sink.seek(consumer, [("t", 0)])
        assert consumer.position(("t", 0), 0) == 1


def test_two_writers_of_one_partition_write_each_record_once(tmp_path: Path) -> None:
    path = tmp_path / "db"
    late: list[ExactlyOnceSink] = []

    def insert_slowly(cursor: Any, record: ConsumerRecord[Any, Any]) -> None:
        """Let the other one write first, once."""
        if late:
            late.pop().write(records(0, 1))
        sink._insert_record(cursor, record)

    other = ExactlyOnceSink(sqlite3.connect(path, isolation_level=None))
    sink = ExactlyOnceSink(sqlite3.connect(path), insert=insert_slowly)
    late.append(other)
    assert sink.write(records(0, 1, 2)) == 1
    assert written(path) == [(0, 0), (0, 1), (0, 2)]


def test_a_writer_that_always_comes_second_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "db"
    other = ExactlyOnceSink(sqlite3.connect(path))
    upto = [0]

    def insert_late(cursor: Any, record: ConsumerRecord[Any, Any]) -> None:
        other.write(records(*range(upto[0], upto[0] + 5)))
        upto[0] += 5
        raise sqlite3.IntegrityError("UNIQUE constraint failed")

    sink = ExactlyOnceSink(sqlite3.connect(path), insert=insert_late)
    with pytest.raises(ConcurrentWriterError):
        sink.write(records(*range(100)))
    assert other.offsets() == {("t", 0): 15}


def test_an_error_of_the_own_insert_is_not_taken_for_another_writer(tmp_path: Path) -> None:
    def insert(cursor: Any, record: ConsumerRecord[Any, Any]) -> None:
        raise sqlite3.IntegrityError("NOT NULL constraint failed")

    sink = ExactlyOnceSink(sqlite3.connect(tmp_path / "db"), insert=insert)
    with pytest.raises(sqlite3.IntegrityError):
        sink.write(records(0))
    assert sink.offsets() == {}


def test_keys_and_values_have_the_type_of_bytes_that_is_given(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db")
    sink = ExactlyOnceSink(connection, binary_type="BYTEA")
    types = {name: kind for _, name, kind, *_ in connection.execute("PRAGMA table_info(records)")}
    assert (types["record_key"], types["record_value"]) == ("BYTEA", "BYTEA")
    assert sink.write(records(0)) == 1


@pytest.mark.parametrize(
    "wrong", [{"table": "a b"}, {"offsets_table": "x;"}, {"paramstyle": "named"}, {"binary_type": "BLOB)"}]
)
def test_names_that_are_none_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        ExactlyOnceSink(sqlite3.connect(":memory:"), **wrong)  # type: ignore[arg-type]


def test_a_consumer_on_an_event_loop_is_refused_before_a_write_can_fail() -> None:
    async def scenario() -> None:
        sink = ExactlyOnceSink(sqlite3.connect(":memory:"))
        async with aio.Consumer(group_id="g") as consumer:
            consumer.assign([("t", 0)])
            with pytest.raises(TypeError, match=r"kafkalake\.Consumer, not kafkalake\.client\.consuming\.aio"):
                sink.listener(consumer)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"goes with a kafkalake\.Consumer"):
                sink.seek(consumer, [("t", 0)])  # type: ignore[arg-type]

    asyncio.run(scenario())
