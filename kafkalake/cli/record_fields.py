"""The fields of values, which `kafkalake consume` shows of a topic with a `value.schema`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.config.topic_values import TopicValues
from kafkalake.reader.avro_values import parse_records
from kafkalake.reader.json_texts import json_objects
from kafkalake.reader.json_values import parse_values
from kafkalake.reader.value_types import value_arrow_schema


class RecordFields:
    """Reads the fields of one topic's values, which may get another schema meanwhile.

    Nothing in an Avro value tells the schema that it was written with. One that is broken by the schemas known so far may be one of
    a newer schema: then the topic is asked for it. One that is broken by the newest schema is read with the one before.
    """

    def __init__(self, values: TopicValues, newest: Callable[[], TopicValues | None] = lambda: None) -> None:
        """newest: returns the values as the topic has them now, None if that cannot be found out."""
        self._values = values
        self._newest = newest
        self._schemas = [values]
        """Those that the topic has had, the newest first."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the fields that the topic had in the beginning, which stay the columns of a table."""
        return [field.name for field in self._values.fields]

    @property
    def is_avro(self) -> bool:
        """Return whether values are Avro, and so no text."""
        return self._values.avro is not None

    def texts(self, values: pa.Array) -> list[bytes | None]:
        """Return the fields of each value as a JSON object, in which fields that are null are not, or None for a broken value."""
        texts = self._texts(values)
        return self._texts(values) if _broken(values, texts) and self.is_avro and self._has_learned() else texts

    def _texts(self, values: pa.Array) -> list[bytes | None]:
        texts = _texts_by(self._schemas[0], values)
        for schema in self._schemas[1:]:
            if broken := _broken(values, texts):
                for number, text in zip(broken, _texts_by(schema, values.take(pa.array(broken))), strict=True):
                    texts[number] = text
        return texts

    def _has_learned(self) -> bool:
        """Ask for the topic's schema, and return whether it is one that was not known."""
        found = self._newest()
        if found is None or found.avro is None or found in self._schemas:
            return False
        self._schemas.insert(0, found)
        return True

    def cells(self, values: pa.Array) -> list[Sequence[str]]:
        """Return the fields of each value as texts, empty where they are null: strings as they are, others as JSON."""
        return [self._cells({} if text is None else json.loads(text)) for text in self.texts(values)]

    def _cells(self, found: Mapping[str, object]) -> Sequence[str]:
        return ["" if (each := found.get(name)) is None else _cell(each) for name in self.names]


def _broken(values: pa.Array, texts: Sequence[bytes | None]) -> list[int]:
    """Return the numbers of the values that are not null and have no text."""
    if texts.count(None) == values.null_count:
        return []
    return [number for number, text in enumerate(texts) if text is None and values[number].is_valid]


def _texts_by(schema: TopicValues, values: pa.Array) -> list[bytes | None]:
    fields = value_arrow_schema(schema.fields)
    if schema.avro is None:
        columns, are_records = parse_values(values, fields), pc.is_valid(values)
    else:
        columns, are_records = parse_records(values, fields, schema.avro)
    texts: list[bytes | None] = json_objects(dict(zip(fields.names, columns, strict=True)), are_records).to_pylist()
    return texts


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
