"""The fields of values, which `kafkalake consume` shows of a topic with a `value.schema`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.config.topic_values import TopicValues
from kafkalake.reader.avro_values import parse_records
from kafkalake.reader.json_texts import json_objects
from kafkalake.reader.json_values import parse_values
from kafkalake.reader.value_types import value_arrow_schema


class RecordFields:
    """Reads the fields of one topic's values."""

    def __init__(self, values: TopicValues) -> None:
        self._values = values
        self._schema = value_arrow_schema(values.fields)

    @property
    def names(self) -> Sequence[str]:
        """The names of the fields."""
        names: list[str] = self._schema.names
        return names

    @property
    def is_avro(self) -> bool:
        """Return whether values are Avro, and so no text."""
        return self._values.avro is not None

    def texts(self, values: pa.Array) -> list[bytes | None]:
        """Return the fields of each value as a JSON object, in which fields that are null are not, or None for a broken value."""
        avro = self._values.avro
        if avro is None:
            columns = parse_values(values, self._schema)
            are_records = pc.is_valid(values)
        else:
            columns, are_records = parse_records(values, self._schema, avro)
        texts: list[bytes | None] = json_objects(dict(zip(self.names, columns, strict=True)), are_records).to_pylist()
        return texts

    def cells(self, values: pa.Array) -> list[Sequence[str]]:
        """Return the fields of each value as texts, empty where they are null: strings as they are, others as JSON."""
        return [self._cells({} if text is None else json.loads(text)) for text in self.texts(values)]

    def _cells(self, found: Mapping[str, object]) -> Sequence[str]:
        return ["" if (each := found.get(name)) is None else _cell(each) for name in self.names]


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
