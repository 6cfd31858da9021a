"""Spark: the first query of a session, the same one when the session is warm, and tables of a lake of 10,000 topics.

A process of its own each time starts a plain session, without Delta, and counts the records of a topic: kafkalake's by its
catalogue. The start of the session is not counted; that Spark loads its own classes with the first query is, and Spark's Kafka
connector pays for it as well.
The statements on tables are the first of their kind in a session that has run the counts, and the same ones again. Of the first
ones most is Spark's: it generates code for the rows, and moves 10,000 of them to Python by code that is not compiled yet. The
topics that they are about are put
into the lake's table: a broker commits each by itself, which takes an hour.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from deltalake import write_deltalake
from kafka_reference import BrokerProcess, Kafkalake

from benchmarks.kafka_tools import ToolFailed
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_times, limited, number
from benchmarks.spark_scan import FLIGHTS, spark_session, write_flights
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import TOPICS, table_path
from kafkalake.metadata.tables.schemas import TOPICS_SCHEMA, TopicRow, to_table

CATALOG = "io.kafkalake.spark.LakeCatalog"
WARMING, WARM = 10, 10
"""Counts before the measured ones, and those."""
FIRST_S, WARM_S, TABLES_S = 2.0, 0.1, 0.5
TIMEOUT_S = 300
STATEMENTS = ("SHOW TABLES IN many", "DESCRIBE many.topic_00077")


@dataclass
class Session:
    """What a session took, in seconds: its first count, the warm ones, and of kafkalake alone the first `STATEMENTS`, and warm."""

    first: float
    warm: list[float]
    statements: list[float] = field(default_factory=list)
    warm_statements: list[float] = field(default_factory=list)


def measure(plan: Plan) -> list[Row]:
    records, topics = plan.size(336_776, 33_677), plan.size(10_000, 1_000)
    sessions: dict[str, list[Session]] = {}
    with plan.brokers() as brokers, tempfile.TemporaryDirectory(dir=plan.directory) as many:
        _create_topics(Path(many), topics)
        for broker in brokers:
            write_flights(plan.directory, broker, records)

        def first(broker: BrokerProcess) -> float:
            lake = broker.lake if isinstance(broker, Kafkalake) else None
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                asked = process.submit(_session, plan.directory, lake, broker.bootstrap_servers, Path(many), records)
                session = asked.result(TIMEOUT_S)
            sessions.setdefault(broker.name, []).append(session)
            return session.first

        for broker in brokers:
            progress(f"spark-first: warming {broker.name}: {first(broker):.2f} s")
        sessions.clear()
        ours, theirs = take_turns("spark-first", max(plan.rounds, 3), brokers, first, "s")
    what = f"`count(*)` of {records:,} records"
    rows = [
        compare_times("spark-first", f"Spark, first query of a session: {what}", ours, theirs, at_least=0, unit="s")
    ]
    warm = [[statistics.median(session.warm) for session in sessions[broker.name]] for broker in brokers]
    rows.append(compare_times("spark-count", f"Spark, {what}, session warm", *warm, at_least=0, unit="s"))
    limits = (FIRST_S, WARM_S)
    return [
        *(limited(row, limit) for row, limit in zip(rows, limits, strict=True)),
        *_of_tables(topics, sessions[brokers[0].name]),
    ]


def _of_tables(topics: int, sessions: Sequence[Session]) -> Iterator[Row]:
    tables = f"Spark, a lake of {topics:,} topics: SHOW TABLES, DESCRIBE"
    first, warm = [each.statements for each in sessions], [each.warm_statements for each in sessions]
    yield _limited_statements("spark-tables", f"{tables}, the first of a session", first, topics)
    yield _limited_statements("spark-tables-warm", f"{tables}, session warm", warm, topics)


def _limited_statements(key: str, title: str, seconds: Sequence[Sequence[float]], topics: int) -> Row:
    medians = [statistics.median(of_statement) for of_statement in zip(*seconds, strict=True)]
    text = ", ".join(f"{number(median)} s" for median in medians)
    figures = {"kafkalake": seconds, "unit": "s", "topics": topics}
    return Row(key, title, text, "", "", f"{TABLES_S:g} s at most", max(medians) <= TABLES_S, figures)


def _create_topics(lake: Path, count: int) -> None:
    DeltaMetadataStore(lake).close()
    now_ms = time.time_ns() // 1_000_000
    settings = {"retention.ms": "3600000"}
    rows = [TopicRow(f"topic_{number:05}", str(uuid.uuid4()), 1, settings, now_ms) for number in range(count)]
    write_deltalake(table_path(lake, TOPICS), to_table(TOPICS_SCHEMA, rows), mode="append")


def _session(directory: Path, lake: Path | None, servers: str, many: Path, records: int) -> Session:
    """Run a session, of the connector where there is no lake. Raise `ToolFailed` for a wrong count."""
    settings = {} if lake is None else _catalogue("lake", lake) | _catalogue("many", many)
    with spark_session(directory, settings, jar_sets=("spark-kafka",)) as spark:

        def count() -> float:
            started = time.perf_counter()
            if lake is None:
                reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
                found = reader.option("subscribe", FLIGHTS).load().count()
            else:
                found = spark.sql(f"SELECT count(*) FROM lake.{FLIGHTS}").collect()[0][0]
            elapsed = time.perf_counter() - started
            if found != records:
                raise ToolFailed(f"spark-count: {found} records, {records} were written")
            return elapsed

        def timed(statement: str) -> float:
            started = time.perf_counter()
            spark.sql(statement).collect()
            return time.perf_counter() - started

        session = Session(count(), [count() for _ in range(WARMING + WARM)][WARMING:])
        if lake is not None:
            session.statements += [timed(statement) for statement in STATEMENTS]
            again = [[timed(statement) for statement in STATEMENTS] for _ in range(WARM)]
            session.warm_statements += [statistics.median(of_one) for of_one in zip(*again, strict=True)]
        return session


def _catalogue(name: str, lake: Path) -> dict[str, str]:
    return {f"spark.sql.catalog.{name}": CATALOG, f"spark.sql.catalog.{name}.path": str(lake)}
