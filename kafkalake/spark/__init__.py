"""Spark over topics: `spark.read.format("kafkalake")`, with no broker in the read path.

    options        what the user asked for, checked: pure
    selection      what pushed filters leave: topics, partitions, offsets, times: pure
    snapshot       the lake as it is now or was at a version: segments from Delta, the tail from `state` (I/O)
    query_snapshot one snapshot for all scans of a query
    offsets        where a read starts and ends in each partition
    plan           segment slices, split and joined into input partitions: pure
    columns        the schema asked for, and which record columns it takes
    slice_reader   slices -> Arrow batches, on an executor
    json_values    values that are JSON -> typed columns
    stream         `spark.readStream`, with its offsets (`stream_offsets`, pure; `edges`; `checkpoint`) and tasks (`stream_plan`)
    groups         a Spark job as a consumer group: the one module that speaks to a broker
    topic_read     the four steps of a read, shared by Spark and `kafkalake.dataset`
    source, stream, filters, tasks   the Python data source; all that knows pyspark
    installed_pyspark, stream_process   the process of a stream, started sooner
    jvm            the jar: scans that are planned anew, and segments read without Python
    plain_errors, refused_stream, error_sentence     what a user is told of an error
    job, job_record, job_registry, progress, topic_settings   what all jobs share
    retention, lag (lag_report: pure; next_record, lag_page, lag_plot), maintenance   jobs on a lake
    spark_session, consume  a session with sensible settings; copying a topic into a Delta table

Imports of kafkalake: `record`, `storage`, `metadata`, `client`, `errors`. Only `source`, `stream`, `filters`, `tasks`,
`spark_session` and `consume` import pyspark, so that DuckDB and Polars read topics without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalake.spark.spark_session import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """`kafkalake.spark.session`, imported when it is asked for: Python workers import this package and want none of it."""
    if name == "session":
        from kafkalake.spark.spark_session import session

        return session
    raise AttributeError(name)
