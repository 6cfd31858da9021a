"""Requests of jobs, validated as far as possible without reading a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafkalake.broker.staged.commits import Committed
from kafkalake.errors import InvalidRequestError
from kafkalake.topic_names import is_topic_name

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
"""A directory or file name in the staging area: no path traversal, no hidden files."""
APPLICATION_BYTES_MAX = 200
FILES_MAX = 250_000
TOPICS_MAX = 10_000
HEAD_BYTES_MAX = 1 << 20
"""The limit on a request's size without its list of files. Parsing JSON can take far more memory than its text."""

_FILES = re.compile(rb'"files"\s*:\s*\[')
_FILE = re.compile(
    rb'\s*\[\s*"([A-Za-z0-9._-]{1,200})"\s*,\s*(\d{1,19})\s*,\s*(\d{1,19})\s*,\s*(\d{1,19})\s*\]\s*([,\]])'
)
_NO_FILES = re.compile(rb"\s*\]")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One task's file: its name and expected size, batches and records."""

    name: str
    bytes: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """A request to append `files` of `directory` as version `version` of `application`.

    topics: (name, id) by the topic numbers in staged files. partitions: all (topic number, partition) that occur. is_named: a user
    has named the application and the version, which count for each topic by itself; those of a stream's batch count for all of it.
    topics_done: the numbers of topics whose batches are passed over.
    """

    application: str
    version: int
    directory: str
    topics: tuple[tuple[str, str], ...]
    partitions: tuple[tuple[int, int], ...]
    files: tuple[StagedFile, ...]
    is_named: bool = False
    topics_done: frozenset[int] = frozenset()

    @property
    def bytes(self) -> int:
        """The size of all files in bytes."""
        return sum(file.bytes for file in self.files)

    @property
    def records(self) -> int:
        """The number of records in all files."""
        return sum(file.records for file in self.files)

    @property
    def topic_ids(self) -> tuple[str, ...]:
        """The ids of the topics that get records."""
        return tuple(sorted({self.topics[topic][1] for topic, _ in self.partitions}))

    def rest(self, committed: Committed) -> AppendRequest:
        """Return the request for those topics alone that do not have the version yet."""
        if not self.is_named:
            return self
        left = frozenset(each for each in self.topic_ids if committed.version_of(each) < self.version)
        done = frozenset(number for number, _ in self.partitions if self.topics[number][1] not in left)
        partitions = tuple(each for each in self.partitions if each[0] not in done)
        return replace(self, partitions=partitions, topics_done=done)

    def is_done(self, committed: Committed) -> bool:
        """Return whether all of it was committed before."""
        if self.is_named and self.partitions:
            return not self.rest(committed).partitions
        return self.version <= committed.version

    @classmethod
    def parse(cls, body: Mapping[str, Any], files: Sequence[StagedFile]) -> AppendRequest:
        """Return the request of a decoded message and its files. Raise `InvalidRequestError` if it is malformed."""
        try:
            request = cls(
                _application(body["application"]),
                _count(body["version"]),
                _name(body["directory"]),
                tuple((check_topic_name(name), _text(topic_id, 40)) for name, topic_id in body["topics"]),
                tuple((_count(topic), _count(partition)) for topic, partition in body["partitions"]),
                tuple(files),
                body.get("is_named") is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequestError(f"malformed AppendStaged request: {error}") from None
        if any(topic >= len(request.topics) for topic, _ in request.partitions):
            raise InvalidRequestError("malformed AppendStaged request: a partition of a topic that is not named")
        return request


def decode(text: bytes) -> tuple[dict[str, Any], AppendRequest | None]:
    """Return a message's decoded values without its files, and the request if it is an append.

    Raise `InvalidRequestError` if the message is malformed. Memory is proportional to `text`: files are parsed one by one and the
    rest is small. Run it in a thread.
    """
    head, files = _take_files(text)
    if len(head) > HEAD_BYTES_MAX:
        raise InvalidRequestError(
            f"{_MALFORMED}: {len(head)} bytes beside the list of files; {HEAD_BYTES_MAX} are possible"
        )
    try:
        body = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{_MALFORMED}: {str(error)[:200]}") from None
    if not isinstance(body, dict) or body.get("ask") not in ("describe", "append"):
        raise InvalidRequestError(f"{_MALFORMED}: it asks for nothing that is known")
    if body["ask"] == "append":
        if files is None:
            raise InvalidRequestError(f"{_MALFORMED}: no list of files")
        return body, AppendRequest.parse(body, files)
    topics = body.get("topics", ())
    if topics is not None and (not isinstance(topics, list) or len(topics) > TOPICS_MAX):
        raise InvalidRequestError(f"{_MALFORMED}: topics is no list of at most {TOPICS_MAX} names")
    try:
        body["topics"] = None if topics is None else [check_topic_name(name) for name in dict.fromkeys(topics)]
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{_MALFORMED}: {error}") from None
    return body, None


_MALFORMED = "malformed AppendStaged request"


def _take_files(text: bytes) -> tuple[bytes, list[StagedFile] | None]:
    """Return `text` with an empty list of files, and the files (None: no such list). Raise `InvalidRequestError` if malformed."""
    # A JSON string has no unescaped quote, so this match is the key itself.
    begun = _FILES.search(text)
    if begun is None:
        return text, None
    files: list[StagedFile] = []
    ended = _NO_FILES.match(text, begun.end())
    position = begun.end() if ended is None else ended.end()
    while ended is None:
        file = _FILE.match(text, position)
        if file is None:
            raise InvalidRequestError(f"{_MALFORMED}: no staged file at byte {position}")
        if len(files) == FILES_MAX:
            raise InvalidRequestError(f"more than {FILES_MAX} staged files in one request")
        name, size, batches, records, after = file.groups()
        files.append(StagedFile(_checked_name(name), *map(_checked_count, (size, batches, records))))
        position = file.end()
        if after == b"]":
            break
    return text[: begun.end()] + b"]" + text[position:], files


def _checked_name(name: bytes) -> str:
    try:
        return _name(name.decode())
    except ValueError as error:
        raise InvalidRequestError(f"{_MALFORMED}: {error}") from None


def _checked_count(digits: bytes) -> int:
    try:
        return _count(int(digits))
    except ValueError as error:
        raise InvalidRequestError(f"{_MALFORMED}: {error}") from None


def check_topic_name(value: object) -> str:
    """Return `value`. Raise `ValueError` if it is not a possible topic name."""
    if not isinstance(value, str) or not is_topic_name(value):
        raise ValueError(f"{str(value)[:80]!r} is no name of a topic")
    return value


def _application(value: object) -> str:
    """Return `value`. Raise `ValueError` if it cannot be printed safely to a log or terminal."""
    text = _text(value, APPLICATION_BYTES_MAX)
    if not text.isprintable():
        raise ValueError(f"{text!r} is not printable")
    return text


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
