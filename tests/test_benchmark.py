"""The benchmark's own logic: which rows it measures, and what a row says of rates and costs."""

from __future__ import annotations

import importlib
import threading

import pytest
from benchmarks.kafka_tools import side_by_side
from benchmarks.measures import MEASURES, place_of, selected
from benchmarks.rows import Cost, compare_rates


def test_a_row_is_measured_alone_and_a_measure_with_all_its_rows() -> None:
    assert selected(["produce-1000", "commits", "produce-lz4"]) == {
        "produce": {"produce-1000", "produce-lz4"},
        "groups": {"commits"},
    }
    assert selected(["commits", "groups"]) == {"groups": frozenset()}
    assert selected([]) == dict.fromkeys(MEASURES, frozenset())
    with pytest.raises(KeyError, match="no-such-row"):
        selected(["no-such-row"])


def test_every_measure_can_be_run() -> None:
    for module, _ in MEASURES.values():
        assert callable(importlib.import_module(f"benchmarks.{module}").measure)


def test_no_name_is_a_measure_and_a_row() -> None:
    rows = [row for _, rows in MEASURES.values() for row in rows]
    assert len(rows) == len(set(rows))
    assert not MEASURES.keys() & rows


def test_the_table_has_the_order_of_the_measures_whenever_they_were_measured() -> None:
    measured = [
        "gone",
        "start-after-kill",
        "commits",
        "transactions-java",
        "start",
        "client-send-arrow",
        "transactions",
    ]
    assert sorted([*measured, "client-send", "spark-scan"], key=place_of) == [
        "spark-scan",
        "client-send",
        "client-send-arrow",
        "transactions-java",
        "transactions",
        "commits",
        "start-after-kill",
        "start",
        "gone",
    ]


def test_a_row_compares_rates_and_processor_time_round_by_round() -> None:
    cost = Cost("GB", {"kafkalake": [2.0, 4.0, 1.0], "apache-kafka": [4.0, 4.0, 4.0]})
    row = compare_rates("key", "title", [50.0, 80, 90], [100.0, 100, 100], at_least=0.9, unit="records/s", cost=cost)
    assert row.kafkalake == "80 records/s; 2 CPU s/GB"
    assert row.apache_kafka == "100 records/s; 4 CPU s/GB"
    assert row.ratio == "0.80 x (0.50 to 0.90); CPU 2.00 x (1.00 to 4.00)"
    assert not row.holds
    assert row.figures["cpu_s"]["kafkalake"] == [2.0, 4.0, 1.0]


def test_tools_run_side_by_side() -> None:
    together = threading.Barrier(3)
    assert sorted(side_by_side(3, lambda: together.wait(10))) == [0, 1, 2]
