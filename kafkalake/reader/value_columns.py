"""The columns of a projection that are fields of values, by the format of the values."""

from __future__ import annotations

from kafkalake.reader.avro_values import AvroColumns
from kafkalake.reader.columns import Projection
from kafkalake.reader.json_values import JsonColumns


def value_columns(projection: Projection) -> JsonColumns | AvroColumns | None:
    """Return the fields of values in a projection, or None. Raise `ConfigurationError` for a type that JSON cannot hold."""
    return JsonColumns.of(projection) if projection.avro is None else AvroColumns.of(projection, projection.avro)
