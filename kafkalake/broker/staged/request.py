"""What a job asks for, checked as far as that goes without looking at a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkalake.errors import InvalidRequestError

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
"""A directory or file of the staging area: no way out of it, and nothing that is hidden."""
APPLICATION_BYTES_MAX = 200
FILES_MAX = 250_000


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One task's file: its name, and how much it must hold."""

    name: str
    bytes: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Append `files` of `directory` as version `version` of what `application` writes.

    topics: (name, id) by the numbers that staged files use. partitions: (number of the topic, partition), all that occur.
    """

    application: str
    version: int
    directory: str
    topics: tuple[tuple[str, str], ...]
    partitions: tuple[tuple[int, int], ...]
    files: tuple[StagedFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def records(self) -> int:
        """Records in all files."""
        return sum(file.records for file in self.files)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> AppendRequest:
        """From the plain values of a message. Raises `InvalidRequestError`."""
        try:
            request = cls(
                _text(body["application"], APPLICATION_BYTES_MAX),
                _count(body["version"]),
                _name(body["directory"]),
                tuple((_text(name, 249), _text(topic_id, 40)) for name, topic_id in body["topics"]),
                tuple((_count(topic), _count(partition)) for topic, partition in body["partitions"]),
                tuple(
                    StagedFile(_name(name), _count(size), _count(batches), _count(records))
                    for name, size, batches, records in body["files"]
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequestError(f"malformed AppendStaged request: {error}") from None
        if len(request.files) > FILES_MAX:
            raise InvalidRequestError(f"{len(request.files)} staged files in one request; {FILES_MAX} are possible")
        if any(topic >= len(request.topics) for topic, _ in request.partitions):
            raise InvalidRequestError("malformed AppendStaged request: a partition of a topic that is not named")
        return request


def _text(value: object, bytes_max: int) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= bytes_max:
        raise ValueError(f"{str(value)[:80]!r} is not 1 to {bytes_max} bytes of text")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(f"{str(value)[:80]!r} is not a name in the staging area")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{str(value)[:80]!r} is not a count")
    return value
