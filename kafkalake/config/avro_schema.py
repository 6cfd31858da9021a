"""Avro schemas of a topic's values: read from JSON as Kafka's users have them, or made of the fields of a DDL.

The columns of a schema are those that Spark's `from_avro` has, without its types that a table cannot have: a record is a struct, an
enum and a string are STRING, bytes and fixed are BINARY or, with the logical type decimal, DECIMAL; a union of null and one type is
that type, one of int and long BIGINT, one of float and double DOUBLE. Logical types that Spark does not know are ignored.

A schema made of fields is that of Spark's `to_avro`, but that null is the first branch of each union, and the default, as Kafka's
users write it: the record `value`, TINYINT and SMALLINT as int, DECIMAL as bytes.
Source: Apache Avro 1.12, "Specification".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NotRequired, TypedDict

from kafkalake.config.setting_texts import TEXT_MAX
from kafkalake.config.value_schema import DECIMAL_PRECISION_MAX, DEPTH_MAX, ValueField, ValueType
from kafkalake.errors import ConfigurationError

TYPES_MAX = 10_000
"""Types of a schema, those of a record counted wherever its name stands."""

NULL, UNION, RECORD, ARRAY, MAP, ENUM, FIXED, BYTES = (
    "null",
    "union",
    "record",
    "array",
    "map",
    "enum",
    "fixed",
    "bytes",
)
TIMESTAMP_MILLIS = ("timestamp-millis", "local-timestamp-millis")
_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    BYTES: "BINARY",
    "string": "STRING",
}
"""Avro's primitive types but null, with their columns."""
_LOGICAL = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
_PROMOTED = {frozenset(("int", "long")): "BIGINT", frozenset(("float", "double")): "DOUBLE"}
"""Unions of several types that are one column."""
_AVRO_OF: dict[str, object] = {
    **{column: avro for avro, column in _PRIMITIVES.items()},
    **{column: {"type": avro, "logicalType": logical} for (avro, logical), column in _LOGICAL.items()},
    "TINYINT": "int",
    "SMALLINT": "int",
}
"""Types of DDL -> Avro's, times in microseconds, which stand last in `_LOGICAL`."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type with the names in it resolved.

    kind: Avro's. column: the type of its column, None for null. logical: a time's logical type, else empty. branches: of a union.
    element: of an ARRAY and a MAP. symbols: of an enum. size: of a fixed, in bytes.
    """

    kind: str
    column: ValueType | None
    logical: str = ""
    fields: tuple[AvroField, ...] = ()
    branches: tuple[AvroType, ...] = ()
    element: AvroType | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0

    @property
    def is_nullable(self) -> bool:
        """Return whether null is a value of it."""
        return any(branch.kind == NULL for branch in self.branches)


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record. is_optional: null is its default, so that a value written before it was added may lack it."""

    name: str
    type: AvroType
    is_optional: bool
    doc: str | None


def is_avro(text: str) -> bool:
    """Return whether the text of a schema is JSON, and so Avro's, not DDL."""
    return text.lstrip()[:1] in ("{", "[")


@lru_cache(maxsize=32)
def parse_avro_schema(text: str) -> AvroType:
    """Return the record of a schema. Raise `ConfigurationError` with the fault, in a sentence that names no setting."""
    if len(text) > TEXT_MAX:
        raise ConfigurationError(f"a schema has at most {TEXT_MAX} characters, and this one has {len(text)}")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the Avro schema is no JSON: {error}") from None
    record = _Parser().type(parsed, "", "the schema")
    if record.kind != RECORD:
        raise ConfigurationError(f"the values of a table are records, and the Avro schema is of type {record.kind}")
    return record


def avro_fields(record: AvroType) -> tuple[ValueField, ...]:
    """Return the columns of a record."""
    assert record.column is not None
    return record.column.fields


def avro_schema_of(fields: Iterable[ValueField]) -> str:
    """Return the Avro schema, as JSON, of the fields of a DDL. Raise `ConfigurationError` if Avro has no such name or type."""
    return json.dumps(_record_json("value", "", fields))


def with_avro_fields(text: str, fields: Sequence[ValueField]) -> str:
    """Return the schema with `fields` at its end. Raise `ConfigurationError` as `avro_schema_of`, or if a column would differ."""
    schema = record = json.loads(text)
    while isinstance(record["type"], dict):
        record = record["type"]
    record["fields"] += _record_json("added", "", fields)["fields"]
    grown = json.dumps(schema)
    columns = avro_fields(parse_avro_schema(grown))
    for field, column in zip(fields, columns[len(columns) - len(fields) :], strict=True):
        if field != column:
            raise ConfigurationError(f"column {field.sql} would be {column.sql}, as Avro has no such type: say so")
    return grown


class _Record(TypedDict):
    """A record as JSON."""

    type: str
    name: str
    namespace: NotRequired[str]
    fields: list[object]


def _record_json(name: str, namespace: str, fields: Iterable[ValueField]) -> _Record:
    inner = f"{namespace}.{name}" if namespace else name
    made: list[object] = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise ConfigurationError(f"column {field.name}: a name in Avro is made of the letters A to Z, digits and _")
        kind = _type_json(field.type, field.name, inner)
        doc = {} if field.comment is None else {"doc": field.comment}
        made.append({"name": field.name, "type": [NULL, kind], "default": None, **doc})
    if namespace:
        return {"type": RECORD, "name": name, "namespace": namespace, "fields": made}
    return {"type": RECORD, "name": name, "fields": made}


def _type_json(kind: ValueType, column: str, namespace: str) -> object:
    if kind.name == "STRUCT":
        return _record_json(column, namespace, kind.fields)
    if kind.name == "DECIMAL":
        return {"type": BYTES, "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind.element is not None:
        element = [NULL, _type_json(kind.element, column, namespace)]
        return {"type": ARRAY, "items": element} if kind.name == "ARRAY" else {"type": MAP, "values": element}
    if kind.name not in _AVRO_OF:
        raise ConfigurationError(f"column {column} cannot be {kind.name}: Avro has no such type")
    return _AVRO_OF[kind.name]


class _Parser:
    """One reading of a schema."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}
        """By full name; None: its definition has begun and not ended."""
        self._types = 0
        self._depth = 0

    def type(self, given: object, namespace: str, where: str) -> AvroType:
        self._types += 1
        self._depth += 1
        if self._types > TYPES_MAX:
            raise ConfigurationError(f"{where} is one of more than {TYPES_MAX} types")
        if self._depth > 3 * DEPTH_MAX:
            raise ConfigurationError(f"{where} is nested too deep")
        if isinstance(given, list):
            found = self._union([self.type(branch, namespace, where) for branch in given], where)
        elif isinstance(given, dict):
            found = self._complex(given, namespace, where)
        elif isinstance(given, str):
            found = self._by_name(given, namespace, where)
        else:
            raise ConfigurationError(f"{where}: {json.dumps(given)[:80]} is no Avro type")
        self._depth -= 1
        return found

    def _by_name(self, name: str, namespace: str, where: str) -> AvroType:
        if name == NULL:
            return AvroType(NULL, None)
        if name in _PRIMITIVES:
            return AvroType(name, ValueType(_PRIMITIVES[name]))
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise ConfigurationError(f"{where}: there is no Avro type {name!r}")
        known = self._named[full]
        if known is None:
            raise ConfigurationError(f"{where}: the record {name} contains itself, and a table has no such columns")
        self._types += _size(known)
        return known

    def _complex(self, given: Mapping[str, object], namespace: str, where: str) -> AvroType:
        kind = given.get("type")
        if isinstance(kind, dict | list):
            return self.type(kind, namespace, where)
        if kind in (RECORD, ENUM, FIXED, "error"):
            return self._definition(given, namespace, where)
        if kind == ARRAY:
            return self._container(ARRAY, given.get("items"), namespace, where)
        if kind == MAP:
            return self._container(MAP, given.get("values"), namespace, where)
        plain = self._by_name(str(kind), namespace, where)
        return _with_logical(plain, given)

    def _container(self, kind: str, given: object, namespace: str, where: str) -> AvroType:
        element = self.type(given, namespace, f"{where}[]")
        return AvroType(kind, ValueType(kind.upper(), element=_column(element, f"{where}[]")), element=element)

    def _definition(self, given: Mapping[str, object], namespace: str, where: str) -> AvroType:
        name = str(given.get("name", ""))
        inner = str(given.get("namespace", namespace) or "")
        if "." in name:
            inner = name.rpartition(".")[0]
        if not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise ConfigurationError(f"{where}: {name!r} is no name in Avro")
        full = name if "." in name or not inner else f"{inner}.{name}"
        if full in self._named:
            raise ConfigurationError(f"{where}: the Avro schema defines {full} twice")
        self._named[full] = None
        if given["type"] == ENUM:
            found = _enum(given, where)
        elif given["type"] == FIXED:
            size = given.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 2**31:
                raise ConfigurationError(f"{where}: a fixed has a size of at least 1 byte")
            found = _with_logical(AvroType(FIXED, ValueType("BINARY"), size=size), given)
        else:
            found = self._record(given, inner, where)
        self._named[full] = found
        return found

    def _record(self, given: Mapping[str, object], namespace: str, where: str) -> AvroType:
        parts = given.get("fields")
        if not isinstance(parts, list) or not parts:
            raise ConfigurationError(f"{where}: a record of a table has fields")
        fields: list[AvroField] = []
        columns: dict[str, ValueField] = {}
        for part in parts:
            if not isinstance(part, dict) or not _NAME.fullmatch(str(part.get("name", ""))):
                raise ConfigurationError(f"{where}: {json.dumps(part)[:80]} is no field, which has a name and a type")
            name, doc = str(part["name"]), part.get("doc")
            inside = f"column {name}" if where == "the schema" else f"{where}.{name}"
            kind = self.type(part.get("type"), namespace, inside)
            doc = doc if isinstance(doc, str) else None
            column = ValueField(name, _column(kind, inside), doc)
            if columns.setdefault(name.lower(), column) is not column:
                raise ConfigurationError(f"{inside} is there twice; names differ by more than case")
            is_optional = kind.is_nullable and part.get("default", part) is None
            fields.append(AvroField(name, kind, is_optional, doc))
        return AvroType(RECORD, ValueType("STRUCT", fields=tuple(columns.values())), fields=tuple(fields))

    def _union(self, branches: list[AvroType], where: str) -> AvroType:
        kinds = [branch for branch in branches if branch.kind != NULL]
        if any(branch.kind == UNION for branch in branches) or len(branches) - len(kinds) > 1:
            raise ConfigurationError(f"{where}: a union has each type once, and no union")
        if len(kinds) == 1:
            column = kinds[0].column
        else:
            promoted = _PROMOTED.get(frozenset(kind.kind for kind in kinds if not kind.logical))
            if promoted is None or len(kinds) != 2:
                raise ConfigurationError(
                    f"{where} is a union of {', '.join(kind.kind for kind in branches) or 'nothing'}: a column has one type"
                )
            column = ValueType(promoted)
        return AvroType(UNION, column, branches=tuple(branches))


def _size(kind: AvroType) -> int:
    parts = (*kind.branches, *(field.type for field in kind.fields), *((kind.element,) if kind.element else ()))
    return 1 + sum(map(_size, parts))


def _column(kind: AvroType, where: str) -> ValueType:
    if kind.column is None:
        raise ConfigurationError(f"{where} is always null, and a column has a type")
    return kind.column


def _enum(given: Mapping[str, object], where: str) -> AvroType:
    symbols = given.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(_NAME.fullmatch(str(each)) for each in symbols):
        raise ConfigurationError(f"{where}: an enum has symbols, which are names")
    if len(set(symbols)) < len(symbols):
        raise ConfigurationError(f"{where}: an enum has each symbol once")
    return AvroType(ENUM, ValueType("STRING"), symbols=tuple(map(str, symbols)))


def _with_logical(plain: AvroType, given: Mapping[str, object]) -> AvroType:
    """Return the type with its logical type; without it if Avro would ignore it."""
    logical = str(given.get("logicalType", ""))
    if (plain.kind, logical) in _LOGICAL:
        return AvroType(plain.kind, ValueType(_LOGICAL[plain.kind, logical]), logical=logical)
    if logical != "decimal" or plain.kind not in (BYTES, FIXED):
        return plain
    precision, scale = given.get("precision"), given.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return plain
    if not 0 < precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        return plain
    return AvroType(plain.kind, ValueType("DECIMAL", precision, scale), logical="decimal", size=plain.size)
