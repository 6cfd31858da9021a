"""Parses lines of JSON that are records, or have fields that are their keys, values, headers and timestamps."""

from __future__ import annotations

import base64
import json
from typing import Any

from kafkalake.cli.output import Failure, UsageProblem
from kafkalake.close_names import did_you_mean


def parse_line(line: bytes, number: int) -> object:
    """Return the JSON value of a line. Raise `Failure` if it is none."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise Failure(f"line {number} is not JSON: {error}") from None


def field_of(parsed: object, name: str, number: int) -> object:
    """Return a field of a JSON object. `a.b` is field b of the object in field a, unless there is a field named `a.b`."""
    if not isinstance(parsed, dict):
        raise Failure(f"line {number} is no JSON object, so it has no field '{name}'")
    if name in parsed:
        return parsed[name]
    first, dot, rest = name.partition(".")
    if dot and isinstance(parsed.get(first), dict):
        return field_of(parsed[first], rest, number)
    close = did_you_mean(name, parsed)
    raise Failure(f"line {number} has no field '{name}'" + (f"; {close}" if close else ""))


def typed_key(parsed: object, name: str | None) -> bytes | None:
    """Return the field of an object that the topic's settings name as the key, or None."""
    return as_bytes(parsed.get(name)) if isinstance(parsed, dict) and name is not None else None


def as_bytes(value: object) -> bytes | None:
    """Return a field's text: a string unchanged, else its JSON, and None for null."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def text_or_bytes(value: object, number: int) -> bytes | None:
    """Return the bytes of a key or value of `consume --format json`: a string, or `{"base64": ...}` if it was not UTF-8."""
    if isinstance(value, dict) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise Failure(f"line {number}: what should be base64 is not") from None
    return as_bytes(value)


def headers_of(value: Any, number: int) -> list[dict[str, Any]]:
    """Return the headers of a record: an object of names and texts, or a list of objects. Raise `Failure` if it is neither."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [{"key": key, "value": text_or_bytes(text, number)} for key, text in value.items()]
    try:
        return [{"key": str(header["key"]), "value": text_or_bytes(header.get("value"), number)} for header in value]
    except (TypeError, KeyError, AttributeError):
        raise Failure(f'line {number}: headers are a list of {{"key": ..., "value": ...}}') from None


def milliseconds(value: object, number: int) -> int | None:
    """Return a timestamp in milliseconds since 1970, from a number or a text. Raise `Failure` if it is none."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    from kafkalake.cli.times import parse_time

    try:
        return parse_time(str(value), "timestamp")
    except UsageProblem:
        raise Failure(
            f"line {number}: '{value}' is no timestamp: milliseconds since 1970 or 2026-11-21T08:00:00Z"
        ) from None
