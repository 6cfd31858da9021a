"""What the jar can ask, and the functions that answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalake.spark.planner import scans, statements, tables

ANSWERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "scan": scans.plan_scan,
    "list": tables.list_tables,
    "load": tables.load_table,
    "create": statements.create_table,
    "alter": statements.alter_table,
    "drop": statements.drop_table,
    "delete_records": statements.delete_records,
}


def answer(question: Mapping[str, Any]) -> Any:
    """Return the answer, as what JSON can hold. Raise the `KafkaLakeError` of the function asked for."""
    return ANSWERS[question["ask"]](question)
