"""Writes whose tasks run in the JVM: what they must know, and the request that appends what they staged.

A commit is asked as a statement, and may be asked again of the next process: the broker knows what it has appended.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from kafkalake.reader.changed_values import require_values
from kafkalake.reader.columns import value_fields
from kafkalake.reader.read_options import TIME_ZONE_NOTE
from kafkalake.record.layout import TEMPLATE
from kafkalake.record.schema import PREAMBLE
from kafkalake.spark.planner.lakes import open_lake
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.task_json import avro_answer
from kafkalake.spark.sink.driver import StagedWrite, abort_write, begin_write, commit_write, was_asked
from kafkalake.spark.sink.write_options import WriteOptions, parse_write_options
from kafkalake.spark.sink.write_target import BATCH_BYTES, HELD_BYTES
from kafkalake.storage.staging import staging_path


def write_begin(question: Question) -> dict[str, Any]:
    """Return what the tasks of a write of `columns` (Spark's JSON of a schema) must know.

    Raise the errors of `begin_write` and `require_values`.
    """
    # Imported here: most questions do not need it.
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = to_arrow_schema(StructType.fromJson(json.loads(question["columns"])), timezone="UTC")
    write = begin_write(
        question["options"],
        columns,
        is_stream=question["is_stream"],
        is_overwriting=question["is_overwriting"],
    )
    options = write.options
    _require_values(options)
    return {
        "staging": str(staging_path(options.lake)),
        "cluster_id": write.cluster_id,
        "application": options.application,
        "version": options.version,
        "commit_timeout_s": options.commit_timeout_s,
        "topic": options.topic,
        "topics": [
            {
                "name": target.name,
                "id": topic_id,
                "partitions": target.partitions,
                "message_bytes_max": target.message_bytes_max,
                "key_required": target.key_required,
            }
            for target, (_, topic_id) in zip(write.targets.values(), write.topic_ids, strict=True)
        ],
        "fields": _fields(columns.names, options),
        "is_typed": options.typed is not None,
        "key": None if options.typed is None else options.typed.key,
        "avro": None if options.typed is None else avro_answer(options.typed.avro),
        "time_zone": question["options"].get(TIME_ZONE_NOTE) or "UTC",
        "staged_bytes_max": write.staged_bytes_max,
        "batch_bytes": BATCH_BYTES,
        "held_bytes": HELD_BYTES,
        "preamble": base64.b64encode(PREAMBLE).decode(),
        "template": base64.b64encode(TEMPLATE.tobytes()).decode(),
    }


def _fields(columns: Sequence[str], options: WriteOptions) -> dict[str, str]:
    """Return the columns that are fields of values, with their names in these."""
    if options.typed is not None:
        return {column: column for column in columns}
    return value_fields(columns) if options.json_fields else {}


def write_commit(question: Question) -> None:
    """Append what the tasks staged, once. Raise the errors of `commit_write` and, unless it may be there, `require_values`."""
    options = parse_write_options(question["options"])
    if not was_asked(options.lake, question["directory"]):
        _require_values(options)
    commit_write(
        options,
        StagedWrite(
            cluster_id=question["cluster_id"],
            application=question["application"],
            version=question["version"],
            directory=question["directory"],
            topic_ids=question["topics"],
            partitions=question["partitions"],
            files=question["files"],
        ),
    )


def _require_values(options: WriteOptions) -> None:
    """Raise `LakeError` if the topic of a typed table has other values than when the query was made."""
    if options.typed is not None and options.topic is not None:
        require_values(options.topic, options.typed, open_lake(str(options.lake)))


def write_abort(question: Question) -> None:
    """Remove what the tasks staged, unless the broker may be reading it. Raise `OSError` if I/O fails."""
    abort_write(parse_write_options(question["options"]).lake, question["directory"])
