"""Regular expressions of clients: RE2, as in Kafka, with limits so that none blocks the event loop.

RE2 never backtracks, but its work is the length of the text times the size of the compiled expression, and a counted repetition
makes that large: `(a|a?){1000}` twenty times over, 240 characters, takes 16 s for 300 names. So expressions are refused whose
length, quantifiers, Unicode classes or expanded repetitions exceed what topic names can need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import InvalidRegularExpressionError

PATTERN_BYTES_MAX = 4_096
QUANTIFIERS_MAX = 32
UNICODE_CLASSES_MAX = 8
REPEATED_MAX = 256
"""Maximum number of repeated characters in an expression with its counted repetitions expanded."""

_TOKEN = re.compile(r"\\[pP]\{?|\\.|\[\^?\]?(?:\\.|\[:|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|[*+?()]|.", re.DOTALL)
"""One token of an expression. Python's `re` scans the text once here, without backtracking."""


def check_regex(pattern: str) -> None:
    """Raise `InvalidRegularExpressionError` if the pattern is malformed or too large."""
    matching(pattern, ("",))


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that `pattern` matches as a whole. Raise `InvalidRegularExpressionError` if it is malformed or too large."""
    _check_size(pattern)
    known = list(names)
    try:
        # Wrapped to keep alternatives whole. Compiled alone first, or ")|(" would pass.
        pc.match_substring_regex(pa.array([""]), pattern)
        found = pc.match_substring_regex(pa.array(known, pa.string()), rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        raise InvalidRegularExpressionError(f"{pattern!r} is not a regular expression: {error}") from error
    return frozenset(name for name, matches in zip(known, found.to_pylist(), strict=True) if matches)


def _check_size(pattern: str) -> None:
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        raise InvalidRegularExpressionError(f"a regular expression of more than {PATTERN_BYTES_MAX} bytes")
    quantifiers = unicode_classes = repeated = 0
    sizes = [0]  # of the open groups, the outermost first
    last = 0  # size of the operand of a quantifier
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            sizes.append(0)
            last = 0
        elif text == ")":
            last = sizes.pop() if len(sizes) > 1 else 0
            sizes[-1] += last
        elif text in "*+?":
            quantifiers += 1
        elif token[1] is not None:
            count = max(int(token[1][:6]), int((token[2] or "0")[:6]))
            sizes[-1] += last * (count - 1)
            last *= count
            repeated += last
        else:
            unicode_classes += text.count("\\p") + text.count("\\P")
            last = 1
            sizes[-1] += 1
    if quantifiers > QUANTIFIERS_MAX or unicode_classes > UNICODE_CLASSES_MAX or repeated > REPEATED_MAX:
        raise InvalidRegularExpressionError(
            f"a regular expression with more than {QUANTIFIERS_MAX} quantifiers, {UNICODE_CLASSES_MAX} classes of Unicode or "
            f"{REPEATED_MAX} repeated characters"
        )
