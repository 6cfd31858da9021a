"""The changes of a topic between versions, in SQL and as a stream: of records that were added, of the keys of compacted topics."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import local_compaction
import pytest
from avro_documents import encoded
from compacted_lake import CompactedTopic, compact
from deltalake import DeltaTable
from lake_catalog import Statement, refused, statements, with_catalog
from pyspark.sql import DataFrame, SparkSession
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.config.topic_values import topic_values
from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.delta_table import OpenDeltaTable
from kafkalake.metadata.tables.lake_tables import TABLE_DEFINITIONS
from kafkalake.reader.changelog import ChangeRange, begin_changes, next_point, plan_changes
from kafkalake.reader.read_options import parse_options
from kafkalake.spark.metadata_tables.history import history
from kafkalake.spark.metadata_tables.subject import Subject


class Change(NamedTuple):
    key: bytes
    value: bytes | None
    kind: str
    version: int


COLUMNS = "key, value, _change_type AS kind, _commit_version AS version"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    yield lake
    lake.close()


@pytest.fixture
def session(spark: SparkSession, lake: WrittenLake) -> SparkSession:
    return with_catalog(spark, lake.path)


@pytest.fixture
def sql(session: SparkSession) -> Statement:
    return statements(session)


def changes(sql: Statement, table: str, asked: str, options: str = "") -> list[Change]:
    rows = sql(f"SELECT {COLUMNS} FROM lake.{table} CHANGES {asked} {options}")
    return sorted(Change(bytes(row.key), row.value and bytes(row.value), row.kind, row.version) for row in rows)


class States:
    """What a compacted topic of one partition has made of its keys, version by version."""

    def __init__(self, topic: CompactedTopic) -> None:
        self.topic = topic
        self.states: list[tuple[int, dict[bytes, bytes]]] = [(-1, {})]

    def publish(self) -> int:
        version = self.topic.lake.publish()
        self.states.append((version, self.now()))
        return version

    def now(self) -> dict[bytes, bytes]:
        """What a reader of the whole topic has in the end."""
        stable = self.topic.stable_end
        state: dict[bytes, bytes | None] = {}
        for record in self.topic.records:
            if not record.aborted and record.key is not None and (stable is None or record.offset < stable):
                state[record.key] = record.value
        return {key: value for key, value in state.items() if value is not None}

    def changes(self, first: int, last: int) -> list[Change]:
        """The differences of each version to the one before, from `first` to `last`."""
        found = []
        for (_, before), (version, after) in zip(self.states, self.states[1:], strict=False):
            if first <= version <= last:
                for key in before.keys() | after.keys():
                    found += changes_of(key, before.get(key), after.get(key), version)
        return sorted(found)


def changes_of(key: bytes, before: bytes | None, after: bytes | None, version: int) -> list[Change]:
    if before == after:
        return []
    if before is None:
        return [Change(key, after, "insert", version)]
    if after is None:
        return [Change(key, before, "delete", version)]
    return [Change(key, before, "update_preimage", version), Change(key, after, "update_postimage", version)]


def random_states(lake: WrittenLake, seed: int, versions: int) -> States:
    """Writes with and without transactions, aborted ones and tombstones; no two values are the same."""
    rng = random.Random(seed)
    states = States(CompactedTopic(lake, **{"internal.segment.bytes": "3000"}))
    topic = states.topic
    values = 0
    for _ in range(versions):
        for _ in range(rng.randrange(4)):
            pairs: list[tuple[bytes, bytes | None]] = []
            for _ in range(rng.randrange(1, 8)):
                values += 1
                pairs.append((b"k%d" % rng.randrange(12), None if rng.random() < 0.25 else b"v%d" % values))
            producer = rng.randrange(3)
            if rng.random() < 0.4:
                topic.write(pairs, producer, transactional=True)
                if rng.random() < 0.7:
                    topic.end(producer, rng.choice((ABORT, COMMIT)))
            elif not topic.is_open(producer):
                topic.write(pairs, producer)
            if rng.random() < 0.3:
                topic.seal()
        states.publish()
    for producer in range(3):
        if topic.is_open(producer):
            topic.end(producer, COMMIT)
    states.publish()
    return states


def optimized_rows(session: SparkSession, query: str) -> int:
    """The size that the scan of a query has said, in records."""
    plan = session.sql(query)._jdf.queryExecution().optimizedPlan()
    leaf = plan.collectLeaves().head()
    return int(leaf.stats().rowCount().get())


def test_records_that_versions_added_are_inserts(lake: WrittenLake, session: SparkSession, sql: Statement) -> None:
    lake.create("clicks", 3)
    lake.append_values("clicks", 0, [b"0"] * 5)
    first = lake.publish()
    lake.append_values("clicks", 0, [b"a", b"b"])
    lake.append("clicks", 1, [(1, None, b"aborted", [])], producer_id=7, epoch=0, sequence=0, transactional=True)
    lake.end_transaction("clicks", 1, 7, ABORT)
    second = lake.publish()
    lake.append("clicks", 2, [(1, None, b"open", [])], producer_id=7, epoch=0, sequence=0, transactional=True)
    lake.append_values("clicks", 1, [b"c"])
    third = lake.publish()
    lake.end_transaction("clicks", 2, 7, COMMIT)
    fourth = lake.publish()
    lake.append_values("clicks", 0, [b"of no version yet"])

    def values(asked: str) -> list[tuple[int, bytes]]:
        rows = sql(f"SELECT _commit_version AS v, value, _change_type AS kind FROM lake.clicks CHANGES {asked}")
        assert {row.kind for row in rows} <= {"insert"}
        return sorted((row.v, bytes(row.value)) for row in rows)

    all_of_them = [(first, b"0")] * 5 + [(second, b"a"), (second, b"b"), (third, b"c"), (fourth, b"open")]
    assert values("FROM VERSION 0") == all_of_them
    assert values(f"FROM VERSION {second} TO VERSION {third}") == all_of_them[5:8]
    assert values(f"FROM VERSION {second} EXCLUSIVE TO VERSION {fourth} EXCLUSIVE") == all_of_them[7:8]
    assert values(f"FROM VERSION {fourth} EXCLUSIVE") == []
    times = {
        row.v: row.t
        for row in sql("SELECT _commit_version v, _commit_timestamp t FROM lake.clicks CHANGES FROM VERSION 0")
    }
    assert values(f"FROM TIMESTAMP '{times[second]}' TO TIMESTAMP '{times[third]}'") == all_of_them[5:8]
    assert values(f"FROM TIMESTAMP '{times[second]}' EXCLUSIVE") == all_of_them[7:]
    assert values("FROM TIMESTAMP '2000-01-01'") == all_of_them
    assert sql(f"SELECT count(*) AS n FROM lake.clicks CHANGES FROM VERSION {second}")[0].n == 4
    joined = f"SELECT count(*) AS n FROM lake.clicks CHANGES FROM VERSION {second} c JOIN lake.clicks USING (partition, offset)"
    assert sql(joined)[0].n == 4
    for where, taken, planned in (  # offsets, also those of markers and aborted records
        ("partition = 0", all_of_them[:7], 7),
        (f"_commit_version >= {second}", all_of_them[5:], 7),
        (f"_commit_version < {third}", all_of_them[:7], 9),
        (f"_commit_version = {third} AND partition IN (1, 2)", all_of_them[7:8], 1),
        ("offset < 2 AND partition = 0", all_of_them[:2], 2),
        ("timestamp > '2100-01-01'", [], 12),  # of segments that are sealed the times are known
        (f"value = X'61' OR _commit_version = {third}", all_of_them[5:6] + all_of_them[7:8], 12),
    ):
        assert values(f"FROM VERSION 0 WHERE {where}") == taken, where
        size = optimized_rows(session, f"SELECT * FROM lake.clicks CHANGES FROM VERSION 0 WHERE {where}")
        assert size <= 2 * planned, (where, size)
    plan = sql(f"EXPLAIN SELECT * FROM lake.clicks CHANGES FROM VERSION 0 WHERE _commit_version >= {second}")[0].plan
    assert f"pushed: _commit_version >= {second}" in plan
    read = session.read.option("startingVersion", second).option("endingVersion", third)
    assert read.changes("lake.default.clicks").count() == 3

    for beyond in (fourth + 1, 1000):
        found = refused(sql, f"SELECT * FROM lake.clicks CHANGES FROM VERSION {beyond}")
        assert found.startswith(f"there is no version {beyond} of ") and found.endswith(f"the newest is {fourth}")
    assert "end before they begin" in refused(
        sql, f"SELECT * FROM lake.clicks CHANGES FROM VERSION {third} TO VERSION {third - 1}"
    )
    assert values(f"FROM VERSION {third} EXCLUSIVE TO VERSION {third}") == []
    assert f"the newest is {fourth}" in refused(sql, "SELECT * FROM lake.clicks CHANGES FROM VERSION 0 TO VERSION 1000")
    assert "end before they begin" in refused(
        sql, f"SELECT * FROM lake.clicks CHANGES FROM VERSION {third} TO VERSION {first}"
    )
    assert "after the latest version" in refused(sql, "SELECT * FROM lake.clicks CHANGES FROM TIMESTAMP '2100-01-01'")
    assert "whole number" in refused(sql, "SELECT * FROM lake.clicks CHANGES FROM VERSION 'main'")
    assert "no option of changes" in refused(
        sql, "SELECT * FROM lake.clicks CHANGES FROM VERSION 0 WITH (startingOffsets = 'x')"
    )
    assert "TABLE_OR_VIEW_NOT_FOUND" in refused(sql, "SELECT * FROM lake.nothing CHANGES FROM VERSION 0")
    with pytest.raises(Exception, match="CHANGES FROM VERSION or FROM TIMESTAMP"):
        session.read.changes("lake.clicks").collect()


def test_changes_that_are_gone_are_refused_and_where_they_begin_again_is_said(
    lake: WrittenLake, sql: Statement
) -> None:
    lake.create("clicks")
    versions = []
    for value in (b"0", b"1", b"2"):
        lake.append_values("clicks", 0, [value] * 10)
        versions.append(lake.publish())
    lake.logs["clicks", 0].delete_records_before(15)
    versions.append(lake.publish())
    every = f"SELECT count(*) AS n FROM lake.clicks CHANGES FROM VERSION {versions[0]}"
    found = refused(sql, every)
    assert f"the changes of clicks from version {versions[0]} on are not whole" in found
    assert "offsets 0 to 14 of clicks-0 were deleted" in found
    assert f"from version {versions[2]} on they are" in found
    assert sql(f"SELECT count(*) AS n FROM lake.clicks CHANGES FROM VERSION {versions[2]}")[0].n == 10
    assert sql(f"{every} WITH (failOnDataLoss = 'false')")[0].n == 15
    lake.delete_topic("clicks")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"new"])
    anew = lake.publish()
    assert "deleted and created again" in refused(sql, every)
    assert sql(f"SELECT count(*) AS n FROM lake.clicks CHANGES FROM VERSION {anew}")[0].n == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_log_cleaned", [False, True])
def test_a_topic_that_was_idle_while_versions_were_removed_is_followed_on(
    lake: WrittenLake, is_log_cleaned: bool
) -> None:
    lake.create("idle")
    lake.append_values("idle", 0, [b"before"])
    lake.publish()
    options = parse_options({"lake": str(lake.path), "subscribe": "idle"})
    _, idle = begin_changes(options, ChangeRange(), lake.store)
    lake.create("busy")
    for _ in range(5):
        lake.append_values("busy", 0, [b"v"])
        lake.publish()
    partitions = paths.table_path(lake.path, paths.PARTITIONS)
    if is_log_cleaned:
        OpenDeltaTable(partitions, TABLE_DEFINITIONS[paths.PARTITIONS], create=False).maintain("interval 0 seconds")
        lake.store = DeltaMetadataStore(lake.path)
    kept = {(partitions / file).resolve() for file in DeltaTable(partitions).file_uris()}
    for file in partitions.glob("leader=*/*.parquet"):
        if file.resolve() not in kept:
            file.unlink()
    lake.append_values("idle", 0, [b"after"])
    last = lake.publish()
    end = next_point(options, idle, lake.store)
    planned = plan_changes(options, idle, end, lake.store, keyed=False)
    assert [commit[:2] for commit in planned.commits[0]] == [(2, last)]
    *_, newest = history(Subject(lake.path, lake.store, "idle", None, None, now_ms=0))
    assert (newest[1], newest[3]) == (last, "1 offset added")
    lake.append_values("idle", 0, [b"later"])
    lake.publish()
    gone = replace(idle, ends={})  # as if the first record had come in one of the versions that are gone
    with pytest.raises(LakeError, match=r"cannot be read|cannot read"):
        plan_changes(options, gone, end, lake.store, keyed=False)


@pytest.mark.parametrize("seed", range(2))
def test_changes_of_keys_are_the_differences_of_versions(lake: WrittenLake, sql: Statement, seed: int) -> None:
    states = random_states(lake, seed, versions=6)
    versions = [version for version, _ in states.states[1:]]
    for first, last in ((versions[0], versions[-1]), (versions[2], versions[4]), (versions[4], versions[4])):
        assert changes(sql, "states", f"FROM VERSION {first} TO VERSION {last}") == states.changes(first, last)
    for where, is_all in ((" WHERE partition = 0 AND _commit_version > 0", True), (" WHERE partition = 1", False)):
        asked = f"FROM VERSION {versions[0]} TO VERSION {versions[-1]}{where}"
        assert changes(sql, "states", asked) == (states.changes(versions[0], versions[-1]) if is_all else [])
    later = (
        f"FROM VERSION {versions[0]} TO VERSION {versions[-1]} WHERE _commit_version >= {versions[2]} AND offset >= 0"
    )
    assert changes(sql, "states", later) == states.changes(versions[2], versions[-1])
    first, before = versions[3], dict(states.states)[versions[2]]
    net = changes(
        sql, "states", f"FROM VERSION {first}", "WITH (deduplicationMode = 'netChanges', computeUpdates = 'true')"
    )
    expected = [
        each[:3]
        for key in before.keys() | states.now().keys()
        for each in changes_of(key, before.get(key), states.now().get(key), 0)
    ]
    assert sorted(each[:3] for each in net) == sorted(expected)
    counted = sql(
        f"SELECT _change_type AS kind, count(*) AS n FROM lake.states CHANGES FROM VERSION {versions[0]} GROUP BY ALL"
    )
    whole = states.changes(versions[0], versions[-1])
    assert {row.kind: row.n for row in counted} == {
        kind: [each.kind for each in whole].count(kind) for kind in {each.kind for each in whole}
    }


def test_a_row_before_a_change_is_a_whole_record(lake: WrittenLake, sql: Statement) -> None:
    topic = CompactedTopic(lake)
    topic.write([(b"k", b"old"), (None, b"of no key")])
    lake.publish()
    topic.write([(b"k", b"new")])
    version = lake.publish()
    topic.write([(b"k", None)])
    lake.publish()
    rows = sql(f"SELECT * FROM lake.states CHANGES FROM VERSION {version} ORDER BY _commit_version, _change_type DESC")
    assert [(row._change_type, row.offset, bytes(row.value)) for row in rows] == [
        ("update_preimage", 0, b"old"),
        ("update_postimage", 2, b"new"),
        ("delete", 2, b"new"),
    ]
    assert [row.timestamp.microsecond for row in rows] == [0, 2000, 2000]
    assert {(row.topic, row.partition, bytes(row.key)) for row in rows} == {("states", 0, b"k")}


@pytest.mark.parametrize("value_format", ["json", "avro"])
def test_changes_of_a_topic_with_a_schema_are_those_of_its_fields(
    lake: WrittenLake, sql: Statement, value_format: str
) -> None:
    settings = {"value.schema": "user STRING, age INT", "key": "user", "value.format": value_format}
    avro = topic_values({**settings, "value.format": "avro"}).avro
    assert avro is not None
    schema = fastavro.parse_schema(json.loads(avro.schema))

    def value(user: str, age: int) -> bytes:
        row = {"user": user, "age": age}
        return encoded(row, schema) if value_format == "avro" else json.dumps(row).encode()

    topic = CompactedTopic(lake, **settings)
    topic.write([(b"ann", value("ann", 31)), (b"bob", value("bob", 4))])
    lake.publish()
    topic.write([(b"ann", value("ann", 32)), (b"bob", None)])
    version = lake.publish()
    found = sql(f"SELECT * FROM lake.states CHANGES FROM VERSION {version} ORDER BY user, age")
    assert [(row.user, row.age, bytes(row._key), row._partition, row._change_type) for row in found] == [
        ("ann", 31, b"ann", 0, "update_preimage"),
        ("ann", 32, b"ann", 0, "update_postimage"),
        ("bob", 4, b"bob", 0, "delete"),
    ]
    first = f"SELECT age FROM lake.states CHANGES FROM VERSION 0 TO VERSION {version} WITH (deduplicationMode = 'netChanges')"
    assert [row.age for row in sql(first)] == [32]


def test_what_compaction_removed_is_refused_and_what_it_left_tells_the_state_before(
    lake: WrittenLake, sql: Statement, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_compaction.install(monkeypatch)
    states = States(CompactedTopic(lake, **{"internal.segment.bytes": "3000"}))
    for number in range(4):
        states.topic.write([(b"k%d" % key, b"%d" % number) for key in range(5)])
        states.publish()
    states.topic.seal()
    sealed = states.publish()
    states.topic.write([(b"k1", None), (b"k2", b"last"), (b"new", b"first")])
    last = states.publish()
    every = "FROM VERSION 0"
    assert changes(sql, "states", every) == states.changes(0, last)
    compact(lake.path, object())
    found = refused(sql, f"SELECT {COLUMNS} FROM lake.states CHANGES {every}")
    assert "were compacted" in found
    assert f"from version {states.states[4][0] + 1} on they are" in found
    assert changes(sql, "states", f"FROM VERSION {sealed}") == states.changes(sealed, last)
    left = changes(sql, "states", every, "WITH (failOnDataLoss = 'false')")
    assert [each for each in left if each.version == last] == states.changes(last, last)


def test_a_state_before_that_compaction_removed_for_a_segment_it_left_alone_is_refused(
    lake: WrittenLake, sql: Statement, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_compaction.install(monkeypatch)
    states = States(CompactedTopic(lake, **{"internal.segment.bytes": "3000"}))
    versions = []
    for number in range(2):  # too large to be merged; in the second no key is twice
        states.topic.write([(b"k", b"%d" % number), (b"other%d" % number, b"v" * 2000)])
        states.topic.seal()
        versions.append(states.publish())
    asked = f"FROM VERSION {versions[1]}"
    assert changes(sql, "states", asked) == states.changes(versions[1], versions[1])
    with monkeypatch.context() as killed:
        killed.setattr(DeltaMetadataStore, "update_cleaning", lambda *_: 0)
        compact(lake.path, object())
    assert [row.generation for row in lake.store.load_segments("states")] == [1, 0]
    assert "were compacted" in refused(sql, f"SELECT {COLUMNS} FROM lake.states CHANGES {asked}")
    compact(lake.path, object())
    assert [row.cleaned_offset for row in lake.store.load_cleaning()] == [4]
    assert "were compacted" in refused(sql, f"SELECT {COLUMNS} FROM lake.states CHANGES {asked}")


class Stream:
    """A query over changes that keeps what its batches had."""

    def __init__(self, session: SparkSession, table: str, checkpoint: Path, **options: Any) -> None:
        self.batches: list[list[Change]] = []
        self._start: Callable[[], Any] = lambda: (
            session.readStream.options(**options)
            .changes(table)
            .selectExpr(*COLUMNS.split(", "))
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def _keep(self, rows: DataFrame, number: int) -> None:
        found = [
            Change(bytes(row.key), row.value and bytes(row.value), row.kind, row.version) for row in rows.collect()
        ]
        self.batches.append(sorted(found))

    def run(self) -> Sequence[Change]:
        """What is there now."""
        self.batches.clear()
        query = self._start()
        assert query.awaitTermination(120)
        return [change for batch in self.batches for change in batch]


def test_a_stream_of_changes_goes_on_where_it_was(
    lake: WrittenLake, session: SparkSession, sql: Statement, tmp_path: Path
) -> None:
    states = States(CompactedTopic(lake))
    topic = states.topic
    topic.write([(b"a", b"1"), (b"b", b"1"), (b"b", None), (b"c", b"1")])
    states.publish()
    topic.write([(b"c", b"2")])
    begun = states.publish()
    stream = Stream(session, "lake.states", tmp_path / "checkpoint")
    assert stream.run() == [Change(b"a", b"1", "insert", begun), Change(b"c", b"2", "insert", begun)]
    topic.write([(b"a", b"2"), (b"c", None)])
    states.publish()
    topic.write([(b"a", b"3"), (b"d", b"1")])
    last = states.publish()
    assert stream.run() == states.changes(begun + 1, last)
    assert stream.run() == []
    lake.create("other")
    for _ in range(3):
        lake.publish()
    assert stream.run() == []
    topic.write([(b"d", None)])
    assert stream.run() == [], "of no version yet"
    assert [each[:3] for each in (states.publish(), stream.run())[1]] == [(b"d", b"1", "delete")]
    for file in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        file.unlink()
    assert [each[:3] for each in stream.run()] == [(b"d", b"1", "delete")], "the same batch again"
    later = Stream(session, "lake.states", tmp_path / "later", startingVersion=last)
    assert [each for each in later.run() if each.version == last] == states.changes(last, last)
    assert "has no end" in refused(
        lambda _: Stream(session, "lake.states", tmp_path / "end", startingVersion=0, endingVersion=last).run(), ""
    )  # type: ignore[arg-type, return-value]
