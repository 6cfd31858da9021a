"""Numbers of things in sentences."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, as `1 record` and `2,000 records`. plural: of the noun, if it is not with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"


def counted_as_subject(count: int, noun: str) -> str:
    """Return a number with its noun and a verb, as `1 record was` and `2,000 records were`."""
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"
