"""Spark over topics: `spark.read.format("kafkalake")`, with no broker in the read path.

    source          batch reads
    stream          `spark.readStream`
    sink            `df.write`, `writeStream`
    jvm             the jar: scans that are planned anew, and segments read without Python
    exactly_once    `foreachBatch` functions that add each record once
    spark_session   a session with sensible settings

What is read, and how, is in `kafkalake.reader`, which DuckDB and Polars use without Spark.
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
