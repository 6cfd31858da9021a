"""Keys and values as bytes and back: the protocols, and serializers for bytes, text, JSON and Avro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from kafkalake.client.errors import SerializationError
from kafkalake.errors import ConfigurationError

Headers: TypeAlias = Sequence[tuple[str | bytes, bytes | None]]


class Serializer(Protocol):
    """Makes bytes of keys or values. Raise `SerializationError` or any other exception for one that cannot be."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """Return the bytes of a value, None for null."""
        ...


class Deserializer(Protocol):
    """Makes keys or values of bytes. Raise `SerializationError` or any other exception for bytes that are none."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the value of the bytes; None is null."""
        ...


class BytesSerde:
    """Bytes as they are."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """Return the bytes. Raise `SerializationError` for anything else."""
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise SerializationError(f"{type(value).__name__} is not bytes; give the producer a serializer for it")

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> bytes | None:
        """Return the bytes."""
        return data


class StringSerde:
    """Text in an encoding, UTF-8 by default."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """Return the text's bytes. Raise `SerializationError` for anything but text."""
        if value is None:
            return None
        if not isinstance(value, str):
            raise SerializationError(f"{type(value).__name__} is not text")
        try:
            return value.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise SerializationError(str(error)) from error

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> str | None:
        """Return the text. Raise `SerializationError` for bytes that are none."""
        try:
            return None if data is None else data.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise SerializationError(str(error)) from error


class JsonSerde:
    """Values as JSON in UTF-8, compact."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """Return the JSON of a value, null for None. Raise `SerializationError` for one without."""
        if value is None:
            return None
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise SerializationError(f"no JSON: {error}") from error

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the value. Raise `SerializationError` for bytes that are no JSON."""
        try:
            return None if data is None else json.loads(data)
        except ValueError as error:
            raise SerializationError(f"no JSON: {error}") from error


class AvroSerde:
    """Values as Avro's binary encoding of one schema, without a header. Needs `fastavro`."""

    def __init__(self, schema: str | Mapping[str, Any]) -> None:
        """Raise `ConfigurationError` if the schema is invalid, or `fastavro` is not installed."""
        try:
            import fastavro
        except ImportError:
            raise ConfigurationError("Avro needs the package fastavro") from None
        try:
            self._schema = fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else dict(schema))
        except Exception as error:  # fastavro's errors have no common class
            raise ConfigurationError(f"the Avro schema cannot be used: {error}") from error
        self._write, self._read = fastavro.schemaless_writer, fastavro.schemaless_reader

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """Return the encoded value, null for None. Raise `SerializationError` for one that does not fit the schema."""
        if value is None:
            return None
        out = io.BytesIO()
        try:
            self._write(out, self._schema, value)
        except Exception as error:
            raise SerializationError(f"the value does not fit the Avro schema: {error}") from error
        return out.getvalue()

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the value. Raise `SerializationError` for bytes that do not fit the schema."""
        try:
            return None if data is None else self._read(io.BytesIO(data), self._schema, None)
        except Exception as error:
            raise SerializationError(f"the bytes do not fit the Avro schema: {error}") from error


_BY_NAME: dict[str, type[BytesSerde | StringSerde | JsonSerde]] = {
    "bytes": BytesSerde,
    "string": StringSerde,
    "json": JsonSerde,
}


def serde_named(name: str) -> BytesSerde | StringSerde | JsonSerde:
    """Return the serializer and deserializer `bytes`, `string` or `json`. Raise `ConfigurationError` for another name."""
    kind = _BY_NAME.get(name)
    if kind is None:
        raise ConfigurationError(f"there is no serializer '{name}', but {', '.join(_BY_NAME)}; or give an object")
    return kind()
