"""A lake as a catalogue of a Spark session, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_reference import Kafkalake, topic_name
from pyspark.sql import Row, SparkSession

from kafkalake.jobs.error_sentence import one_line_message

Statement = Callable[[str], list[Row]]


def with_catalog(spark: SparkSession, lake: Path, name: str = "lake", **settings: str) -> SparkSession:
    """Return another session, which has the lake as the catalogue `name`."""
    session = spark.newSession()
    session.conf.set(f"spark.sql.catalog.{name}", "io.kafkalake.spark.LakeCatalog")
    for key, value in ({"path": str(lake)} | settings).items():
        session.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    return session


def statements(session: SparkSession) -> Statement:
    return lambda statement: session.sql(statement).collect()


def refused(sql: Statement, statement: str) -> str:
    with pytest.raises(Exception) as error:
        sql(statement)
    return one_line_message(error.value)


# Fixtures; a file with another broker, or another topic, has its own of that name.


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    with Kafkalake() as broker:
        yield broker


@pytest.fixture(scope="module")
def session(broker: Kafkalake, spark: SparkSession) -> SparkSession:
    return with_catalog(spark, broker.lake)


@pytest.fixture(scope="module")
def sql(session: SparkSession) -> Statement:
    return statements(session)


@pytest.fixture
def clicks() -> str:
    """The name of no topic yet."""
    return topic_name("clicks").replace("-", "_")
