"""The schema of a topic's values: the fields of JSON objects or Avro records, as Spark's DDL, such as `user STRING, ms BIGINT`.

The topic setting `value.schema` and the option `valueSchema` are read by this one parser, without Spark and Arrow: the broker
validates with it, and `reader/value_types.py` has the Arrow types. A comment is kept. What a value cannot promise (NOT NULL,
DEFAULT) or JSON has no type for is refused, not ignored. `topic_values.py` reads the settings, of which this is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError

TEXT_MAX = 16_384
DEPTH_MAX = 32
"""Limits of a schema: its characters, with which it takes a few milliseconds to parse, and its nesting."""

_SCALARS = {
    **{name: name for name in ("STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE")},
    **{name: name for name in ("DECIMAL", "TIMESTAMP", "TIMESTAMP_NTZ", "VARIANT")},
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
"""Names of types, with Spark's own names for them."""
_NESTED = ("ARRAY", "MAP", "STRUCT")
BINARY = "BINARY"
_NOT_IN_JSON = {
    BINARY: "JSON has no bytes; say STRING for text",
    "CHAR": "values know no lengths; say STRING",
    "VARCHAR": "values know no lengths; say STRING",
}
DECIMAL_PRECISION_MAX = 38


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a field.

    name: Spark's. element: the type of an ARRAY's elements or of a MAP's values, whose keys are strings. fields: those of a STRUCT.
    """

    name: str
    precision: int = 0
    scale: int = 0
    element: ValueType | None = None
    fields: tuple[ValueField, ...] = ()

    @property
    def sql(self) -> str:
        """Return the type as DDL."""
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(field.sql for field in self.fields)}>"
        if self.element is not None:
            return f"{self.name}<{'STRING, ' if self.name == 'MAP' else ''}{self.element.sql}>"
        return self.name


@dataclass(frozen=True, slots=True)
class ValueField:
    """A field of a value."""

    name: str
    type: ValueType
    comment: str | None = None

    @property
    def sql(self) -> str:
        """Return the field as DDL."""
        comment = "" if self.comment is None else f" COMMENT {_as_literal(self.comment)}"
        return f"{_as_identifier(self.name)} {self.type.sql}{comment}"


@lru_cache(maxsize=32)
def parse_value_schema(text: str, *, has_bytes: bool = False) -> tuple[ValueField, ...]:
    """Return the fields of a schema. Raise `ConfigurationError` with the fault, in a sentence that names no setting.

    has_bytes: whether BINARY is a type of values, as of Avro's and not of JSON's.
    """
    if len(text) > TEXT_MAX:
        raise ConfigurationError(f"a schema has at most {TEXT_MAX} characters, and this one has {len(text)}")
    parser = _Parser(text, has_bytes)
    fields = parser.fields(end="")
    if not fields:
        raise ConfigurationError('give columns and types, such as "user STRING, ms BIGINT"')
    return fields


def value_field(name: str, kind: str, comment: str | None, *, has_bytes: bool = False) -> ValueField:
    """Return the field of this name, type (in SQL) and comment. Raise `ConfigurationError` as `parse_value_schema`."""
    (field,) = parse_value_schema(f"{_as_identifier(name)} {kind}", has_bytes=has_bytes)
    return replace(field, comment=comment)


def value_schema_sql(fields: Iterable[ValueField]) -> str:
    """Return the schema as DDL, which `parse_value_schema` parses."""
    return ", ".join(field.sql for field in fields)


_TOKEN = re.compile(
    r"""\s*(?: `(?P<quoted>(?:[^`]|``)+)` | '(?P<single>(?:[^'\\]|\\.|'')*)' | "(?P<double>(?:[^"\\]|\\.|"")*)"
    | (?P<word>\w+) | (?P<mark>[<>(),:]) | (?P<other>\S) )""",
    re.VERBOSE | re.DOTALL,
)

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class _Parser:
    """One reading of a text, token by token. kind: the group of `_TOKEN`, empty at the end."""

    def __init__(self, text: str, has_bytes: bool) -> None:
        self._has_bytes = has_bytes
        self._tokens = _TOKEN.finditer(text)
        self._depth = 0
        self._next()

    def fields(self, end: str) -> tuple[ValueField, ...]:
        """Return the fields up to the mark `end` (empty: the end of the text), which is not consumed."""
        fields: dict[str, ValueField] = {}
        while not self._is_at(end) or fields:
            field = self._field()
            if fields.setdefault(field.name.lower(), field) is not field:
                raise ConfigurationError(f"column {field.name} is there twice; names differ by more than case")
            if self._is_at(end):
                break
            self._expect(",", f"behind column {field.name}")
        return tuple(fields.values())

    def _field(self) -> ValueField:
        if self.kind not in ("word", "quoted"):
            raise ConfigurationError(f"{self._found()} is no column: give a name and a type")
        name = self._take()
        if self._is_at(":"):
            self._next()
        kind = self._type(name)
        comment = None
        while self.kind == "word":
            word = self._take().upper()
            if word == "COMMENT" and self.kind in ("single", "double") and comment is None:
                comment = self._take()
            elif word == "NOT" and self.token.upper() == "NULL":
                raise ConfigurationError(f"column {name} cannot be NOT NULL: a field of a value may always be absent")
            elif word in ("DEFAULT", "GENERATED"):
                raise ConfigurationError(f"column {name} cannot have a {word} value: a record is as it was written")
            else:
                raise ConfigurationError(f"column {name}: {word!r} is not understood behind its type {kind.sql}")
        return ValueField(name, kind, comment)

    def _type(self, column: str) -> ValueType:
        if self.kind != "word":
            raise ConfigurationError(f"column {column} has no type: give a name and a type")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ConfigurationError(f"column {column} is nested more than {DEPTH_MAX} deep")
        word = self._take()
        name = _SCALARS.get(word.upper(), word.upper())
        if name == "DECIMAL":
            found = self._decimal(column)
        elif name in _NESTED:
            found = self._nested(name, column)
        elif name in _SCALARS or (name == BINARY and self._has_bytes):
            found = ValueType(name)
            if name == "STRING" and self.token.upper() == "COLLATE":
                self._collation(column)
        elif name in _NOT_IN_JSON:
            raise ConfigurationError(f"column {column} cannot be {name}: {_NOT_IN_JSON[name]}")
        else:
            known = (*_SCALARS, *_NESTED)
            hint = (
                did_you_mean(name, known, most=1, show=str)
                or f"there are {', '.join(dict.fromkeys(_SCALARS.values()))}"
            )
            raise ConfigurationError(f"column {column} cannot be {word}: JSON has no such type; {hint}")
        self._depth -= 1
        return found

    def _decimal(self, column: str) -> ValueType:
        precision, scale = 10, 0
        if self._is_at("("):
            self._next()
            precision = self._number(column)
            if self._is_at(","):
                self._next()
                scale = self._number(column)
            self._expect(")", f"in the DECIMAL of column {column}")
        if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
            raise ConfigurationError(f"column {column}: there is no DECIMAL({precision},{scale})")
        return ValueType("DECIMAL", precision, scale)

    def _collation(self, column: str) -> None:
        self._next()
        if self._take().upper() != "UTF8_BINARY":
            raise ConfigurationError(
                f"column {column} has no collation: the texts of values are compared by their bytes"
            )

    def _nested(self, name: str, column: str) -> ValueType:
        where = f"in the {name} of column {column}"
        self._expect("<", where)
        if name == "STRUCT":
            found = ValueType(name, fields=self.fields(end=">"))
            if not found.fields:
                raise ConfigurationError(f"column {column}: a STRUCT has fields")
        elif name == "MAP":
            key = self._type(column)
            if key.name != "STRING":
                raise ConfigurationError(f"column {column}: the keys of a JSON object are STRING, not {key.sql}")
            self._expect(",", where)
            found = ValueType(name, element=self._type(column))
        else:
            found = ValueType(name, element=self._type(column))
        self._expect(">", where)
        return found

    def _number(self, column: str) -> int:
        if not re.fullmatch(r"[0-9]{1,3}", self.token):
            raise ConfigurationError(f"column {column}: {self._found()} is no number of digits")
        return int(self._take())

    def _expect(self, mark: str, where: str) -> None:
        if not self._is_at(mark):
            raise ConfigurationError(f"{self._found()} {where}, where {mark!r} is expected")
        self._next()

    def _is_at(self, mark: str) -> bool:
        return self.token == mark and self.kind == ("mark" if mark else "")

    def _take(self) -> str:
        token = self.token
        self._next()
        return token

    def _found(self) -> str:
        return repr(self.token) if self.kind else "the end"

    def _next(self) -> None:
        found = next(self._tokens, None)
        self.kind = "" if found is None or found.lastgroup is None else found.lastgroup
        token = "" if found is None else found[self.kind]
        if self.kind == "quoted":
            token = token.replace("``", "`")
        elif self.kind in ("single", "double"):
            token = re.sub(r"\\(.)|(['\"])\2", lambda at: _ESCAPES.get(at[1], at[1]) or at[2], token, flags=re.DOTALL)
        self.token = token


def _as_identifier(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _as_literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
