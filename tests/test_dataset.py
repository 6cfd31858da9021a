"""Topics from DuckDB, Polars and pyarrow, against a plain reading of the same files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.clock import SystemClock
from kafkalake.dataset import topic_dataset, topic_reader
from kafkalake.errors import (
    ConfigurationError,
    CorruptSegmentError,
    LakeError,
    RecordsLostError,
    UnknownTopicOrPartitionError,
)
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import GROUP_OFFSETS, table_path
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.columns import KAFKA_SCHEMA, project
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import parse_options
from kafkalake.reader.slice_reader import SliceReader
from kafkalake.record.arrays import Bytes
from kafkalake.spark.stream.plan import plan_batch
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.segment_reader import CHUNK_BYTES, SegmentReader

README = Path(__file__).parents[1] / "README.md"
ROWS = 3000


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    """`clicks`: two partitions, each three segments (two sealed, one of those published, one active) of 1,000 records."""
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", 2)
    for partition in range(2):
        for part in range(3):
            for start in range(0, 1000, 50):
                first = 1000 * part + start
                lake.append(
                    "clicks",
                    partition,
                    [
                        (
                            1_000_000 * (part + 1) + start + i,
                            b"k%d" % i,
                            b"v%06d" % (first + i),
                            [("h", b"x")] if i % 7 == 0 else [],
                        )
                        for i in range(50)
                    ],
                )
            if part == 0:
                lake.roll("clicks", partition)
                lake.publish()
            elif part == 1:
                lake.roll("clicks", partition)
    yield lake
    lake.close()


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every read of a segment."""
    sizes: list[int] = []
    read = SegmentReader._read

    def counted(reader: SegmentReader, position: int, length: int) -> Bytes:
        chunk = read(reader, position, length)
        sizes.append(len(chunk))
        return chunk

    monkeypatch.setattr(SegmentReader, "_read", counted)
    return sizes


@pytest.mark.exhaustive
def test_reader_yields_what_the_files_hold_in_order(lake: WrittenLake) -> None:
    assert topic_reader(lake.path, "clicks").read_all().to_pylist() == lake.plain_rows("clicks")


@pytest.mark.exhaustive
def test_reader_reads_the_columns_that_were_asked_for_in_their_order(lake: WrittenLake) -> None:
    table = topic_reader(lake.path, "clicks", ["offset", "key"]).read_all()
    assert table.column_names == ["offset", "key"]
    assert table.to_pylist() == [{"offset": row["offset"], "key": row["key"]} for row in lake.plain_rows("clicks")]


@pytest.mark.exhaustive
def test_batches_are_bounded_whatever_the_topic_holds(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("big")
    for _ in range(40):
        lake.append_values("big", 0, [bytes(1000)] * 1000)
    sizes = [batch.nbytes for batch in topic_reader(lake.path, "big")]
    lake.close()
    assert sum(sizes) > 40_000_000
    assert max(sizes) < 1.1 * CHUNK_BYTES


@pytest.mark.exhaustive
def test_duckdb_counts_groups_and_finds(lake: WrittenLake) -> None:
    clicks = topic_dataset(lake.path, "clicks")
    connection = duckdb.connect()
    connection.register("clicks", clicks)
    assert connection.sql('SELECT partition, count(*), max("offset") FROM clicks GROUP BY 1 ORDER BY 1').fetchall() == [
        (0, ROWS, ROWS - 1),
        (1, ROWS, ROWS - 1),
    ]
    found = connection.sql('SELECT value FROM clicks WHERE "offset" IN (5, 2999) AND partition = 1 ORDER BY "offset"')
    assert found.fetchall() == [(b"v000005",), (b"v002999",)]
    assert connection.sql("SELECT count(*) FROM clicks WHERE key = 'k7'::BLOB").fetchall() == [(2 * ROWS // 50,)]


@pytest.mark.exhaustive
def test_duckdb_sees_what_was_appended_between_two_queries(lake: WrittenLake) -> None:
    clicks = topic_dataset(lake.path, "clicks")
    connection = duckdb.connect()
    connection.register("clicks", clicks)
    assert connection.sql("SELECT count(*) FROM clicks").fetchall() == [(2 * ROWS,)]
    lake.append_values("clicks", 0, [b"one more"])
    assert connection.sql("SELECT count(*) FROM clicks").fetchall() == [(2 * ROWS + 1,)]


@pytest.mark.exhaustive
def test_polars_pushes_its_filter_and_columns(lake: WrittenLake) -> None:
    scan = pl.scan_pyarrow_dataset(topic_dataset(lake.path, "clicks"))
    frame = scan.filter((pl.col("offset") >= 2998) & (pl.col("partition") == 0)).select("offset", "value").collect()
    assert frame.rows() == [(2998, b"v002998"), (2999, b"v002999")]
    assert pl.DataFrame(topic_dataset(lake.path, "clicks")).height == 2 * ROWS


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "condition",
    [
        ds.field("offset") == 2500,
        (ds.field("partition") == 1) & (ds.field("offset") < 10),
        ds.field("timestamp") >= pa.scalar(3_000_990_000, pa.timestamp("us", tz="UTC")),
    ],
)
def test_a_filter_leaves_most_of_the_topic_unread(
    lake: WrittenLake, bytes_read: list[int], condition: ds.Expression
) -> None:
    clicks = topic_dataset(lake.path, "clicks")
    everything = clicks.to_table()
    whole = sum(bytes_read)
    bytes_read.clear()
    found = clicks.to_table(filter=condition)
    assert found.sort_by([("partition", "ascending"), ("offset", "ascending")]) == everything.filter(condition)
    assert found.num_rows > 0
    assert sum(bytes_read) < whole / 2


@pytest.mark.exhaustive
def test_json_values_become_columns_and_bad_ones_null(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("flights")
    lake.append_values(
        "flights", 0, [b'{"carrier": "UA", "delay": 2}', b"no json", b'{"carrier": 5, "timestamp": "x"}']
    )
    fields = {"carrier": pa.string(), "delay": pa.float64(), "timestamp": pa.string()}
    table = topic_reader(
        lake.path, "flights", ["carrier", "delay", "value_timestamp", "value"], value_schema=fields
    ).read_all()
    lake.close()
    assert table.to_pylist() == [
        {"carrier": "UA", "delay": 2.0, "value_timestamp": None, "value": b'{"carrier": "UA", "delay": 2}'},
        {"carrier": None, "delay": None, "value_timestamp": None, "value": b"no json"},
        {"carrier": "5", "delay": None, "value_timestamp": "x", "value": b'{"carrier": 5, "timestamp": "x"}'},
    ]


@pytest.mark.exhaustive
def test_a_topic_with_a_schema_has_its_fields_as_columns_without_being_told(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("flights", settings={"value.schema": "carrier STRING, offset INT, at TIMESTAMP"})
    lake.create("other")
    values = [b'{"carrier":"UA","offset":7,"at":"2026-01-02T03:04:05Z"}', b"no json", b'{"carrier":"AA","offset":"x"}']
    lake.append_values("flights", 0, values)
    flights = topic_dataset(lake.path, "flights")
    metadata = ["_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_timestampType", "_headers"]
    assert flights.schema.names == ["carrier", "offset", "at", *metadata]
    query = 'SELECT carrier, "offset", _offset, _value FROM flights WHERE _offset <> 7 ORDER BY _offset'
    assert duckdb.sql(query).fetchall() == [
        ("UA", 7, 0, values[0]),
        (None, None, 1, values[1]),
        ("AA", None, 2, values[2]),
    ]
    assert flights.to_table(["at"], filter=ds.field("_offset") == 0)["at"][0].as_py().isoformat() == (
        "2026-01-02T03:04:05+00:00"
    )
    assert flights.to_table(["_offset"], filter=ds.field("offset") == 7).num_rows == 1, "a field of Kafka's name"
    assert pl.DataFrame(flights)["carrier"].to_list() == ["UA", None, "AA"]
    assert topic_dataset(lake.path, "flights", value_schema={}).schema == KAFKA_SCHEMA
    assert topic_dataset(lake.path, "flights,other").schema == KAFKA_SCHEMA
    lake.close()


@pytest.mark.exhaustive
def test_the_example_of_the_readme(tmp_path: Path) -> None:
    section = README.read_text().split("### DuckDB, Polars")[1].split("\n### ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", settings={"value.schema": "user STRING"})
    lake.create("web-logs")
    for topic in ("clicks", "web-logs"):
        lake.append_values(topic, 0, [b'{"user": "ann"}'] * 1_003)
    counted, filtered = "duckdb.sql(", "polars.scan"
    example = example.replace("/data/lake", str(lake.path)).replace(counted, f"counted = {counted}")
    names = {"duckdb": duckdb, "polars": pl, "pyarrow": pa}
    exec(compile(example.replace(filtered, f"filtered = {filtered}"), str(README), "exec"), names)
    assert names["counted"].fetchall() == [("ann", 1_003)]
    assert names["filtered"]["_offset"].to_list() == [1_001, 1_002]
    assert names["pandas_frame"].iloc[-1].to_dict() == {"offset": 1_002, "user": "ann"}
    lake.close()


def test_a_dataset_that_is_kept_reads_avro_values_with_fields_that_were_added_since(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("trades", settings={"value.format": "avro", "value.schema": "id INT, price INT"})

    def alter(schema: str) -> None:
        row = lake.topics["trades"]
        lake.store.alter_topics([replace(row, config={**row.config, "value.schema": schema})])

    lake.append_values(
        "trades", 0, [bytes([2, 2, 2, 4])]
    )  # each field is of the branch 1 of a union, and a number twice as large
    trades = topic_dataset(lake.path, "trades")
    alter("id INT, price INT, more INT")
    lake.append_values("trades", 0, [bytes([2, 4, 2, 6, 2, 8]), bytes([2, 6, 0])])
    expected = [(1, 2), (2, 3), (3, None)]
    assert duckdb.sql("SELECT id, price FROM trades ORDER BY id").fetchall() == expected
    assert pl.DataFrame(trades).select("id", "price").rows() == expected
    for schema in ("id INT, more INT", "id STRING, price INT"):
        alter(schema)
        field = "price" if "price" not in schema else "id"
        with pytest.raises(LakeError, match=f"^field {field} of topic trades was changed since this query was made"):
            trades.to_table(["id"])
    lake.create("clicks", settings={"value.schema": "id INT"})
    clicks, row = topic_dataset(lake.path, "clicks"), lake.topics["clicks"]
    lake.store.alter_topics([replace(row, config={"value.schema": "more INT"})])
    assert clicks.to_table(["id"]).num_rows == 0, "JSON has its fields by name"
    lake.store.alter_topics([replace(row, config={"value.schema": "id INT", "value.format": "avro"})])
    with pytest.raises(LakeError, match=r"^value.format of topic clicks was changed since this query was made"):
        clicks.to_table(["id"])
    lake.close()


@pytest.mark.exhaustive
def test_options_have_sparks_names_or_pythons(lake: WrittenLake) -> None:
    starting = {"clicks": {"0": 2990, "1": 2995}}
    assert topic_reader(lake.path, "clicks", ["offset"], starting_offsets=starting).read_all().num_rows == 15
    assert topic_reader(lake.path, "clicks", ["offset"], startingOffsets=starting).read_all().num_rows == 15
    with pytest.raises(ConfigurationError, match="did you mean startingOffsets"):
        topic_dataset(lake.path, "clicks", startingOfsets="earliest")


@pytest.mark.exhaustive
def test_mistakes_are_named(lake: WrittenLake) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'clacks' is not in .*: clicks"):
        topic_reader(lake.path, "clacks")
    with pytest.raises(ConfigurationError, match="there is no column 'vlaue'"):
        topic_reader(lake.path, "clicks", ["vlaue"])


@pytest.mark.exhaustive
def test_what_would_go_around_the_topic_is_an_error_and_not_an_empty_result(lake: WrittenLake) -> None:
    clicks = topic_dataset(lake.path, "clicks")
    with pytest.raises(NotImplementedError):
        clicks.filter(ds.field("offset") == 1)
    with pytest.raises((NotImplementedError, OSError)):
        ds.dataset([clicks]).to_table()


@pytest.mark.exhaustive
def test_a_flipped_bit_is_an_error_with_file_and_position(lake: WrittenLake) -> None:
    segment = sorted(lake.directory("clicks", 1).glob("*.arrow"))[0]
    data = bytearray(segment.read_bytes())
    position = data.index(b"v000500")
    data[position] ^= 1
    segment.write_bytes(data)
    assert topic_reader(lake.path, "clicks", ["offset"]).read_all().num_rows == 2 * ROWS
    with pytest.raises(CorruptSegmentError, match=rf"{segment}: at byte \d+: the checksum"):
        topic_reader(lake.path, "clicks", ["value"]).read_all()


ENDS_EARLY = """
import sys, duckdb
from kafkalake.dataset import topic_dataset
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
connection.register("many", topic_dataset(sys.argv[1], "many"))
print(len(connection.sql("SELECT value FROM many LIMIT 3").fetchall()))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "active"])
def test_aborted_and_open_records_and_control_batches_are_seen_by_nobody_who_reads_committed(
    lake: WrittenLake, sealed: bool
) -> None:
    lake.create("orders")

    def send(producer: int, sequence: int, value: bytes) -> None:
        rows = [(1_000, None, value, [])] * 5
        lake.append("orders", 0, rows, producer_id=producer, epoch=0, sequence=sequence, transactional=True)

    send(1, 0, b"aborted")  # 0-4
    send(2, 0, b"committed")  # 5-9
    lake.append_values("orders", 0, [b"plain"] * 5)  # 10-14
    if sealed:
        lake.roll("orders")  # the markers of both are in the next segment
    lake.end_transaction("orders", 0, 1, ABORT)  # 15
    send(1, 5, b"committed")  # 16-20, of the same producer
    lake.end_transaction("orders", 0, 2, COMMIT)  # 21
    lake.end_transaction("orders", 0, 1, COMMIT)  # 22
    send(3, 0, b"open")  # 23-27: the last stable offset stays here
    lake.append_values("orders", 0, [b"plain behind it"])  # 28
    if sealed:
        lake.roll("orders")
        lake.publish()
    orders = topic_dataset(lake.path, "orders")
    committed = [*range(5, 15), *range(16, 21)]
    found = orders.to_table(columns=["offset", "value"])
    assert found.column("offset").to_pylist() == committed
    assert set(found.column("value").to_pylist()) == {b"committed", b"plain"}
    assert [row[0] for row in duckdb.sql('SELECT "offset" FROM orders ORDER BY 1').fetchall()] == committed
    everything = topic_dataset(lake.path, "orders", isolation="read_uncommitted").to_table(columns=["offset"])
    assert everything.column("offset").to_pylist() == [*range(15), *range(16, 21), *range(23, 29)]
    lake.end_transaction("orders", 0, 3, ABORT)  # 29
    assert orders.to_table(columns=["offset"]).column("offset").to_pylist() == [*committed, 28]


@pytest.mark.process
def test_a_process_whose_query_had_enough_ends_cleanly(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("many")
    for _ in range(100):
        lake.append_values("many", 0, [b"v" * 100] * 1000)
        lake.roll("many")
    lake.close()
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_EARLY, str(lake.path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


@pytest.mark.exhaustive
def test_head_reads_no_further_than_it_must(lake: WrittenLake, bytes_read: list[int]) -> None:
    head = topic_dataset(lake.path, "clicks").head(120, columns=["offset"])
    assert head.column("offset").to_pylist() == list(range(120))
    assert len(bytes_read) == 1


@pytest.mark.exhaustive
def test_an_internal_topic_is_there_for_who_names_it(lake: WrittenLake) -> None:
    lake.create("__consumer_offsets")
    lake.append_values("__consumer_offsets", 0, [b"journal"])
    assert topic_dataset(lake.path, "__consumer_offsets").to_table(columns=["value"]).to_pydict() == {
        "value": [b"journal"]
    }
    pattern = parse_options({"lake": str(lake.path), "subscribePattern": ".*"})
    assert {snapshot.topic for snapshot in begin_read(pattern).partitions} == {"clicks"}


@pytest.mark.exhaustive
def test_a_lake_that_is_older_than_a_table_is_read_all_the_same(lake: WrittenLake) -> None:
    shutil.rmtree(table_path(lake.path, GROUP_OFFSETS))
    assert topic_dataset(lake.path, "clicks").count_rows() == 2 * ROWS
    assert DeltaMetadataStore(lake.path, create=False).load_group_offsets() == PublishedOffsets([], {})
    with pytest.raises(LakeError, match="group_offsets"):
        DeltaMetadataStore(lake.path, create=False).load_group_offsets(version=3)


class TestLostRecords:
    """Acknowledged records that a power failure took: only who asks for them fails."""

    @pytest.fixture
    def lake(self, tmp_path: Path) -> Path:
        lake = WrittenLake(tmp_path / "lake")
        lake.create("clicks")
        for number in range(10):
            lake.append_values("clicks", 0, [b"%d" % (10 * number + n) for n in range(10)])
        directory = lake.directory("clicks")
        segment = directory / f"{0:020d}.arrow"
        os.truncate(segment, segment.stat().st_size - 100)
        lake.logs["clicks", 0] = Log.open(directory, LogConfig(), SystemClock())
        lake.append_values("clicks", 0, [b"later"])
        lake.publish()
        return lake.path

    @pytest.mark.exhaustive
    def test_a_query_that_needs_them_names_them(self, lake: Path) -> None:
        with pytest.raises(RecordsLostError, match="clicks-0: offsets 90 to 99"):
            topic_dataset(lake, "clicks").to_table()

    @pytest.mark.exhaustive
    def test_one_that_does_not_is_answered(self, lake: Path) -> None:
        dataset = topic_dataset(lake, "clicks")
        assert dataset.to_table(filter=ds.field("offset") < 90).num_rows == 90
        assert dataset.to_table(filter=ds.field("offset") >= 100).num_rows == 1
        assert topic_dataset(lake, "clicks", ending_offsets='{"clicks": {"0": 90}}').count_rows() == 90

    @pytest.mark.exhaustive
    def test_they_are_passed_over_where_that_is_asked_for(self, lake: Path) -> None:
        table = topic_dataset(lake, "clicks", fail_on_data_loss=False).to_table(columns=["offset"])
        assert table.column("offset").to_pylist() == [*range(90), 100]

    @pytest.mark.exhaustive
    def test_a_stream_fails_in_the_batch_that_has_them(self, lake: Path) -> None:
        def read(first: int, end: int, **options: str) -> int:
            given = parse_options({"lake": str(lake), "subscribe": "clicks", **options})
            groups = plan_batch(given, {("clicks", 0): first}, {("clicks", 0): end}, DeltaMetadataStore(lake))
            reader = SliceReader(project(KAFKA_SCHEMA, json_values=False), Selection())
            return sum(batch.num_rows for group in groups for batch in reader.read(group))

        assert (read(0, 90), read(100, 101)) == (90, 1)
        with pytest.raises(RecordsLostError, match="offsets 95 to 99"):
            read(95, 101)
        assert read(80, 101, failOnDataLoss="false") == 11
