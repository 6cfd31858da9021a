"""Parses lines of JSON that are records, or have fields that are their keys, values, headers and timestamps."""

from __future__ import annotations

import base64
import json
from reprlib import repr as short
from typing import Any

from kafkalake.cli.output import Failure, UsageProblem
from kafkalake.close_names import did_you_mean


def parse_line(line: bytes, number: int) -> object:
    """Return the JSON value of a line. Raise `Failure` if it is none, or nested too deeply."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise Failure(f"line {number} is not JSON: {error}") from None
    except RecursionError:
        raise _nested_too_deeply(number) from None


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


def typed_key(parsed: object, name: str | None, number: int) -> bytes | None:
    """Return the field of an object that the topic's settings name as the key, or None."""
    return as_bytes(parsed.get(name), number) if isinstance(parsed, dict) and name is not None else None


def as_bytes(value: object, number: int) -> bytes | None:
    """Return a field's text: a string unchanged, else its JSON, and None for null. Raise `Failure` if it has no UTF-8."""
    if value is None:
        return None
    if isinstance(value, str):
        return _utf8(value, number)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise _nested_too_deeply(number) from None
    return _utf8(text, number)


def text_or_bytes(value: object, number: int) -> bytes | None:
    """Return the bytes of a key or value of `consume --format json`: a string, or `{"base64": ...}` if it was not UTF-8."""
    if isinstance(value, dict) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise Failure(f"line {number}: what should be base64 is not") from None
    return as_bytes(value, number)


def headers_of(value: Any, number: int) -> list[dict[str, object]]:
    """Return the headers of a record: an object of names and texts, or a list of objects. Raise `Failure` if it is neither."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [_header(key, text, number) for key, text in value.items()]
    try:
        return [_header(str(header["key"]), header.get("value"), number) for header in value]
    except (TypeError, KeyError, AttributeError):
        raise Failure(f'line {number}: headers are a list of {{"key": ..., "value": ...}}') from None


def milliseconds(value: object, number: int) -> int | None:
    """Return a timestamp in milliseconds since 1970, from a number or a text. Raise `Failure` if it is none."""
    if value is None:
        return None
    from kafkalake.cli.times import EARLIEST_MS, LATEST_MS, parse_time

    if isinstance(value, int) and not isinstance(value, bool) and EARLIEST_MS <= value <= LATEST_MS:
        return value
    try:
        return parse_time(str(value), "timestamp")
    except UsageProblem:
        raise Failure(
            f"line {number}: {short(str(value))} is no timestamp: milliseconds since 1970 or 2026-11-21T08:00:00Z"
        ) from None


def _header(key: str, value: object, number: int) -> dict[str, object]:
    _utf8(key, number)
    return {"key": key, "value": text_or_bytes(value, number)}


def _utf8(text: str, number: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Failure(f"line {number} has half of a surrogate pair, which UTF-8 has not") from None


def _nested_too_deeply(number: int) -> Failure:
    return Failure(f"line {number} is nested too deeply")
