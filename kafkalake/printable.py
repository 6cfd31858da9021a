"""Escapes control characters in foreign text on a terminal.

Names of groups and clients, keys and values come from anyone who can connect. On a terminal they could move the cursor, clear the
screen, set the window title, or reverse the writing direction. C0, C1 and the bidirectional controls of Unicode are therefore
shown as escapes.
"""

from __future__ import annotations

import re
from typing import TextIO

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return `text` with control characters as `\\x1b` or, from U+0080 on, as `\\u009b`; line feeds and tabs stay."""
    return _CONTROLS.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 0x80 else f"\\u{ord(found[0]):04x}", text
    )


def printable_on(stream: TextIO, text: str) -> str:
    """Return `printable(text)` if `stream` is a terminal, else `text`."""
    return printable(text) if stream.isatty() else text
