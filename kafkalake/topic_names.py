"""Kafka's rules for topic names.

A name is at most 249 characters of `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`. Names that differ only in `.` against `_`
collide, because Kafka's metrics show both as `_`. The second of two such names is refused.
"""

from __future__ import annotations

import re

from kafkalake.errors import InvalidTopicError

NAME_LENGTH_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopicError`, with Kafka's message, if the name is not legal."""
    fault = fault_of_name(name)
    if fault:
        raise InvalidTopicError(f"Topic name is invalid: {fault}")


def is_topic_name(name: str) -> bool:
    """Return whether the name is legal."""
    return not fault_of_name(name)


def fault_of_name(name: str) -> str:
    """Return why a name is not legal, in Kafka's words, empty if it is."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return ""


def collision_key(name: str) -> str:
    """Return the collision key of a name. Names with the same key collide."""
    return name.replace(".", "_")
