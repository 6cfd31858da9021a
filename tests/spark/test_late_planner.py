"""A question that is late with its answer ends nothing but itself: neither procedures nor the questions after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lake_catalog import Statement, refused, statements, with_catalog
from planning_process import planner_of, planners_of
from pyspark.sql import SparkSession
from waiting import wait_until

QUESTION = '{"ask": "list", "lake": "%s"}'


def ask(spark: SparkSession, question: str, timeout_s: int) -> str:
    """What the jar's planner answers in this time. Its class is not public."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    assert jvm is not None and gateway is not None
    lang = jvm.java.lang
    json = jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree(question)
    planner = lang.Class.forName("io.kafkalake.spark.Planner")
    types = gateway.new_array(lang.Class, 2)
    types[0], types[1] = json.getClass(), lang.Long.TYPE
    method = planner.getDeclaredMethod("askRepeatedly", types)
    method.setAccessible(True)
    given = gateway.new_array(lang.Object, 2)
    given[0], given[1] = json, lang.Long.valueOf(timeout_s)
    return str(method.invoke(None, given))


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A lake whose cluster id nobody gets to read, as on a file server that does not answer."""
    lake = tmp_path / "lake"
    (lake / "metadata" / "topics" / "_delta_log").mkdir(parents=True)
    (lake / "metadata" / "topics" / "_delta_log" / f"{0:020d}.json").touch()
    os.mkfifo(lake / "metadata" / "cluster-id")
    return lake


def test_a_late_answer_ends_no_procedure_and_the_next_questions_have_another_process(
    spark: SparkSession, sql: Statement, clicks: str, hanging: Path
) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    late = planner_of(spark)
    run = statements(with_catalog(spark, hanging, "hanging"))
    with ThreadPoolExecutor(1) as pool:
        procedure = pool.submit(refused, run, "CALL hanging.system.reset_offsets('group', 'topic', 'latest')")
        with pytest.raises(Exception, match="has not answered in 1 s"):
            ask(spark, QUESTION % hanging, 1)
        assert sql(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 0
        assert len(planners_of(spark)) == 2 and late in planners_of(spark)
        assert not procedure.done()
        path = hanging / "metadata" / "cluster-id"
        path.rename(path.with_name("hung"))
        wait_until(lambda: ended(path.with_name("hung"), procedure.done))
        assert "planning process" not in procedure.result()
    wait_until(lambda: late not in planners_of(spark))


def ended(pipe: Path, is_done: Callable[[], bool]) -> bool:
    """Let those read nothing who wait at a pipe, and return whether what waited has gone on."""
    with contextlib.suppress(OSError):  # where nobody waits
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    return is_done()
