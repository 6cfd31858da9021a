"""Reads files of settings in Java's format of properties, such as Kafka's `server.properties`.

A line is `name=value`; the separator may also be `:` or white space. `#` and `!` begin comments. A line that ends with an odd
number of backslashes goes on in the next one, and a backslash before any other character takes away its meaning; `\\n`, `\\t` and
`\\u0041` are as in Java. Of a name that is there twice the last counts. Source: Java's `java.util.Properties.load`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kafkalake.errors import ConfigurationError

_PAIR = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MEANINGS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_SPACE = " \t\f"


def read_properties(file: Path) -> dict[str, str]:
    """Return the settings in a file. Raise `ConfigurationError` if it is unreadable, or a line has no value."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            raise ConfigurationError(f"{file}, line {number}: not NAME=VALUE")
        found[_unescape(pair[1])] = _unescape(pair[2]).strip()
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are no comments, with those that go on joined, and the numbers of their first lines."""
    lines = enumerate(re.split(r"\r\n|\r|\n", text), 1)
    for number, line in lines:
        whole = line.lstrip(_SPACE)
        if not whole or whole[0] in "#!":
            continue
        while _goes_on(whole):
            whole = whole[:-1] + next(lines, (0, ""))[1].lstrip(_SPACE)
        yield number, whole


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _meaning(found[1]), text)


def _meaning(escaped: str) -> str:
    return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _MEANINGS.get(escaped, escaped)
