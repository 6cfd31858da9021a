"""The fields of a topic's records in the input of `kafkalake produce`: which are named, and what the topic's schema says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalake.cli.output import Failure
from kafkalake.config.unknown_fields import unknown_field, unknown_field_of
from kafkalake.config.value_schema import ValueType
from kafkalake.errors import InvalidRecordError

if TYPE_CHECKING:
    from kafkalake.reader.avro_of_json import AvroOfJson


@dataclass(frozen=True)
class Fields:
    """Names of the fields or columns for key, value and timestamp. None: no key, the whole row, the current time.

    typed_key: the key by the topic's settings, null where it is absent. row: the fields of the topic's value.schema, as a STRUCT;
    None if it has none, or the value is not the whole row. encoder: of JSON objects, for a topic whose values are Avro.
    """

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    typed_key: str | None = None
    row: ValueType | None = None
    encoder: AvroOfJson | None = None

    @property
    def types(self) -> dict[str, str]:
        """The types of the topic's value.schema, by field."""
        return {} if self.row is None else {field.name: field.type.sql for field in self.row.fields}

    def value_of(self, line: bytes, parsed: object, number: int) -> bytes:
        """Return the value that a line of JSON is. Raise `Failure` if it is none of the topic's schema."""
        if self.row is not None and self.encoder is None:
            said: str | None = "the value is no JSON object"
            if isinstance(parsed, dict):
                said = unknown_field_of({name: parsed[name] for name in self._unnamed(parsed)}, self.row)
            if said is not None:
                raise Failure(f"line {number}: {said}", "--format lines writes lines as they are.")
        return self.encoded(line, f"line {number}")

    def check_columns(self, path: Path, columns: Iterable[str]) -> None:
        """Raise `Failure` if the topic's schema has not all columns of a file whose rows are the values."""
        said = None if self.row is None else unknown_field(self._unnamed(columns), self.types)
        if said is not None:
            raise Failure(f"{path}: {said}")

    def encoded(self, value: bytes, where: str) -> bytes:
        """Return a JSON value as the topic's values are. Raise `Failure` if it cannot be one."""
        if self.encoder is None:
            return value
        try:
            return self.encoder.encode(value)
        except InvalidRecordError as error:
            raise Failure(f"{where}: {error}") from None

    def _unnamed(self, names: Iterable[str]) -> list[str]:
        """Return the names without those that the command line gives as the key or the time, or as an object that has it."""
        given = [each for each in (self.key, self.timestamp) if each is not None]
        named = {*given, *(each.partition(".")[0] for each in given)}
        return [name for name in names if name not in named]
