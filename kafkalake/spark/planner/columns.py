"""Checks the columns that the jar asks for."""

from __future__ import annotations

import pyarrow as pa

from kafkalake.reader.columns import arrow_schema, project
from kafkalake.reader.read_options import ReadOptions
from kafkalake.spark.planner.question import Question


def check_columns(question: Question, options: ReadOptions) -> None:
    """Check `columns` (of Kafka's, with their Spark types) and `fields` (of JSON values, whose types the jar has checked).

    Raise `ConfigurationError` if a read with these options has not such columns.
    """
    schema = arrow_schema(question["columns"])
    if options.typed is not None:
        project(schema, json_values=False)  # the fields are those of the topic's own schema
        return
    for field in question["fields"]:
        schema = schema.append(pa.field(field, pa.null()))
    project(schema, json_values=options.value_schema is not None)
