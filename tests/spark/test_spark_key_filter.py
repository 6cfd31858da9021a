"""Filters on keys: the scan leaves out records with other keys, and Spark finds what it finds among all records."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence

import pytest
from examples import examples
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from record_batches import Row
from test_spark_scan_metrics import metrics_of
from written_lake import ABORT, COMMIT, WrittenLake

KEYS = (None, b"", b"a", b"ab", b"b", b"\xff\x00", b"ann", b'{"id": 1}', b"k" * 300)
LITERALS = [f"X'{key.hex()}'" for key in KEYS if key is not None] + ["X'7a'", "CAST(NULL AS BINARY)"]
TEXTS = ["''", "'a'", "'ab'", "'ann'", "'{\"id\": 1}'", "'z'", "CAST(NULL AS STRING)"]
CODECS = {"plain": {}, "zstd": {"segment_compression": "zstd"}}


def some_rows(randomness: random.Random, keys: Sequence[bytes | None]) -> list[Row]:
    values = (None, b"{", b"", *(json.dumps({"user": f"u{i}", "n": i}).encode() for i in range(5)))
    count = randomness.choice((1, 2, 90))
    return [(1000 * i, randomness.choice(keys), randomness.choice(values), []) for i in range(count)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenLake]:
    """`CODECS`, of 2 partitions each, in which any key may be: several segments, and transactions that are aborted in parts."""
    lake = WrittenLake(tmp_path_factory.mktemp("keys") / "lake")
    randomness = random.Random(11)
    for topic, config in CODECS.items():
        lake.create(topic, 2, **config)
        for partition in range(2):
            sequence = 0
            for step in range(24):
                rows = some_rows(randomness, randomness.sample(KEYS, 3))
                if step % 3:
                    lake.append(topic, partition, rows)
                else:
                    lake.append(topic, partition, rows, producer_id=1, epoch=0, sequence=sequence, transactional=True)
                    sequence += len(rows)
                    lake.end_transaction(topic, partition, 1, randomness.choice((ABORT, COMMIT)))
                if step % 10 == 9:
                    lake.roll(topic, partition)
    lake.publish()
    yield lake
    lake.close()


def read(spark: SparkSession, lake: WrittenLake, topic: str, columns: str | None = None) -> DataFrame:
    reader = spark.read.format("kafkalake").option("lake", str(lake.path)).option("valueSchema", "user STRING, n INT")
    return (reader.schema(columns) if columns else reader).load(topic)


def compared(column: str, literals: list[str]) -> st.SearchStrategy[str]:
    literal = st.sampled_from(literals)
    return st.one_of(
        st.builds("{} {} {}".format, st.just(column), st.sampled_from(["=", "<=>", "!="]), literal),
        st.builds("{} = {}".format, literal, st.just(column)),
        st.builds("{} IN ({})".format, st.just(column), st.lists(literal, min_size=1, max_size=12).map(", ".join)),
        st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL", f"{column} > {literals[1]}"]),
    )


LEAVES = st.one_of(
    compared("key", LITERALS),
    compared("CAST(key AS STRING)", TEXTS),
    st.sampled_from(["offset < 100", "partition = 1", "user = 'u1'", "n > 2", "value IS NULL", "timestampType = 0"]),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map("(NOT {})".format),
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "AND", "OR"]), inner),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("topic", CODECS)
def test_records_are_those_that_spark_finds_among_all(spark: SparkSession, lake: WrittenLake, topic: str) -> None:
    frame = read(spark, lake, topic).select("partition", "offset", "key", "value", "user", "n", "timestampType")
    frame.createOrReplaceTempView("pushed")
    spark.createDataFrame(frame.toArrow()).coalesce(1).cache().createOrReplaceTempView("everything")

    @given(st.lists(FILTERS, min_size=4, max_size=4))
    @examples(4, phases=[Phase.generate])
    def check(filters: list[str]) -> None:
        def found(table: str) -> list[tuple[object, ...]]:
            parts = (
                f"SELECT {i} AS f, partition, offset, key, user FROM {table} WHERE {text}"
                for i, text in enumerate(filters)
            )
            return sorted(map(tuple, spark.sql(" UNION ALL ".join(parts)).collect()), key=lambda row: row[:3])

        assert found("pushed") == found("everything")

    check()
    spark.catalog.clearCache()


def test_keys_as_texts_are_compared_by_their_bytes(spark: SparkSession, lake: WrittenLake) -> None:
    bytes_of = read(spark, lake, "plain").filter("key IN (X'61', X'616E6E')").count()
    texts = read(spark, lake, "plain", "key STRING, value STRING, offset LONG").filter("key IN ('a', 'ann')")
    assert texts.count() == bytes_of > 0
    assert {row.key for row in texts.collect()} == {"a", "ann"}


def test_a_plan_names_a_filter_on_keys_and_values_of_other_keys_are_not_read(
    spark: SparkSession, lake: WrittenLake
) -> None:
    lake.create("large")
    for number in range(20):
        lake.append("large", 0, [(0, b"key-%d" % number, b"v" * 5_000, [])] * 40)
    lake.publish()
    frame = read(spark, lake, "large").select("offset", "value")
    _, all_of_it = metrics_of(spark, frame.selectExpr("sum(length(value))"))
    one = frame.filter("key = 'key-7' OR (key = X'7878' AND offset > 3)")
    rows, found = metrics_of(spark, one)
    assert sorted(row.offset for row in rows) == list(range(280, 320))
    assert found["bytes read"] * 5 < all_of_it["bytes read"]
    assert found["records read and left out"] == 19 * 40
    plan = one._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"1 of 1 segments, pushed: key IN \(X'6b65792d37', X'7878'\)", plan), plan
    rows, found = metrics_of(spark, frame.filter("key = X'6e6f6e65'"))
    assert (rows, found["records read and left out"]) == ([], 800)
    beside = frame.filter("key = X'6b65792d37' OR n = 3")._jdf.queryExecution().executedPlan().toString()
    assert "pushed" not in beside, "records of any key may have the field"
