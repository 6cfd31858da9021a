"""What the jar can ask, and the functions that answer.

The module of a function is imported with the first question for it: a driver's first query waits until the planner has started, and
needs neither compiled kernels (the table `producers`, compaction) nor a Kafka client.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from kafkalake.spark.planner.question import Answer, Question

ANSWERS = {
    "scan": "scans.plan_scan",
    "aggregate": "aggregates.plan_aggregate",
    "stream_open": "streams.open_stream",
    "stream_begin": "streams.begin_stream",
    "stream_ends": "streams.readable_ends",
    "stream_next": "streams.next_batch",
    "stream_first": "streams.first_unread",
    "stream_plan": "streams.plan_batch",
    "stream_real_time": "streams.check_real_time",
    "stream_tails": "streams.plan_tails",
    "stream_merge": "streams.merge_ends",
    "stream_commit": "streams.commit_batch",
    "list": "tables.list_tables",
    "load": "tables.load_table",
    "lake_of": "tables.lake_of",
    "schema_of": "tables.schema_of",
    "require_topics": "tables.require_topics",
    "changes_of": "changes.kind",
    "begin_changes": "changes.begin",
    "next_changes": "changes.go_on",
    "plan_changes": "changes.plan",
    "create": "statements.create_table",
    "alter": "statements.alter_table",
    "require_settings": "statements.require_settings",
    "drop": "statements.drop_table",
    "undo_create": "statements.undo_create",
    "delete_records": "statements.delete_records",
    "delete_keys": "tombstones.delete_keys",
    "write_begin": "writes.write_begin",
    "write_commit": "writes.write_commit",
    "write_abort": "writes.write_abort",
    "metadata_tables": "metadata.list_tables",
    "metadata_columns": "metadata.columns_of",
    "metadata_rows": "metadata.rows_of",
    "procedures": "procedures.list_procedures",
    "call": "procedures.call",
}
"""The function that answers, with its module beside this one, by what is asked."""

FIRST = ("list", "load", "scan", "aggregate")
"""What a driver's first query asks; their modules are imported before."""


def answer(question: Question) -> object:
    """Return the answer, as what JSON can hold. Raise the `KafkaLakeError` of the function asked for."""
    return function_of(question["ask"])(question)


@cache
def function_of(ask: str) -> Answer:
    """Return the function that answers."""
    module, _, name = ANSWERS[ask].partition(".")
    found: Answer = getattr(import_module(f"{__package__}.{module}"), name)
    return found
