"""Spark over topics: `spark.read.format("kafkalake")`, with no broker in the read path.

    source          batch reads
    stream          `spark.readStream`
    sink            `df.write`, `writeStream`
    jvm             the jar: separately planned scans, and segments read without Python
    exactly_once    `foreachBatch` functions that add each record once
    spark_session   a session with sensible settings

Reading is implemented in `kafkalake.reader`, which DuckDB and Polars use without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalake.spark.spark_session import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """Import `kafkalake.spark.session` on first use: Python workers import this package and do not need it."""
    if name == "session":
        from kafkalake.spark.spark_session import session

        return session
    raise AttributeError(name)
