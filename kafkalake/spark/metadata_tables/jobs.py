"""`jobs`: what jobs did to a topic, a row for each step, and for the whole lake also a row for each run."""

from __future__ import annotations

from kafkalake.metadata import paths
from kafkalake.metadata.tables.job_tables import JobTable, exists
from kafkalake.spark.metadata_tables.subject import Rows, Subject

JOB_COLUMNS = (
    "run_id STRING, job STRING, action STRING, partition INT, outcome STRING, why STRING, before MAP<STRING, STRING>, "
    "after MAP<STRING, STRING>, started_at TIMESTAMP, ended_at TIMESTAMP, changed_table STRING, changed_version BIGINT, "
    "kafkalake_version STRING"
)
"""Columns of the Delta table `job_runs`."""
_NAMES = tuple(column.split()[0] for column in JOB_COLUMNS.replace("MAP<STRING, STRING>", "MAP").split(", "))


def jobs(subject: Subject) -> Rows:
    """Yield the steps of jobs, in the order in which they ended."""
    if not exists(subject.lake, paths.JOB_RUNS):
        return
    table = JobTable(subject.lake, paths.JOB_RUNS, create=False).rows().sort_by("ended_at")
    for name in ("started_at", "ended_at"):
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).cast("int64"))
    until = None if subject.as_of_ms is None else subject.as_of_ms * 1000
    for row in table.to_pylist():
        is_of_subject = subject.topic in (None, row["topic"])
        if is_of_subject and (until is None or row["ended_at"] <= until):
            yield row["topic"], *(row[name] for name in _NAMES)
