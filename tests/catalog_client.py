"""Runs SQL statements in a Spark session of its own: a line of JSON in for each, one out, `{"rows": ...}` or `{"error": ...}`.

A statement is a text, or `{"stream": table, "into": table, "checkpoint": directory}`, a stream until it has read what is there. The
argument is the session's settings as JSON: `remote` of a Spark Connect server, or `master` and others.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def rows_of(session: Any, statement: str) -> list[list[str | None]]:
    """The answer as texts, as JDBC has them."""
    return [[_text(value) for value in row] for row in session.sql(statement).collect()]


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _copy(session: Any, stream: dict[str, str]) -> list[list[str | None]]:
    reader = session.readStream.option("startingOffsets", "earliest").table(stream["stream"])
    writer = reader.writeStream.option("checkpointLocation", stream["checkpoint"]).trigger(availableNow=True)
    assert writer.toTable(stream["into"]).awaitTermination(90)
    return []


def _answer(session: Any, statement: str | dict[str, str]) -> dict[str, Any]:
    try:
        return {"rows": rows_of(session, statement) if isinstance(statement, str) else _copy(session, statement)}
    except Exception as error:
        return {"error": str(error)}


def main() -> None:
    settings: dict[str, str] = json.loads(sys.argv[1])
    remote = settings.pop("remote", None)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.remote(remote) if remote is not None else builder.master(settings.pop("master"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    print(json.dumps({"rows": []}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(session, json.loads(line))), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
