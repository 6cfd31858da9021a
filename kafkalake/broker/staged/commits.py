"""Durable commit state of each writing application: the newest committed version of each topic and the one in progress, if any.

There is one small file per application, replaced as a whole. A transactional id does not reveal the version of its last
transaction, so the file is written before a transaction begins (`under_way`, with its producer) and after it is complete
(`Committed`). After a crash at any step, the file and the transaction coordinator's outcome for that producer decide together.

Each epoch of a coordinator has a file of its own, and the newest one counts: a broker that was paused while another one became the
coordinator may go on with a write, which must not hide what was committed since.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kafkalake.errors import KafkaStorageError, NotCoordinatorError
from kafkalake.storage.files import Files, make_durable_directory, read_file, replace_file

logger = logging.getLogger(__name__)

TOPICS_KEPT = 1_000
"""Up to so many topics are noted whether they are there or not."""

_NO_EPOCH = -1
"""Of the files of lakes of 0.1, whose names have no epoch."""
_NAME = re.compile(r"([0-9a-f]{40})(?:\.(\d{1,10}))?\.json")
"""The application's hash and the coordinator's epoch."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A version in progress, with the producer of its transaction and the ids of the topics that get its records."""

    version: int
    producer_id: int
    epoch: int
    records: int
    topic_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit state of an application: the newest version of any topic, with its records (-1: nothing committed yet).

    topics: the newest version of each topic, by topic id. others: that of topics which are not in `topics`, -1 except where an
    earlier kafkalake, which did not note all topics, has written the file.
    """

    application: str
    version: int = -1
    records: int = 0
    under_way: UnderWay | None = None
    topics: Mapping[str, int] = field(default_factory=dict)
    others: int = -1

    def version_of(self, topic_id: str) -> int:
        """Return the newest version that was written to a topic, -1 for none."""
        return self.topics.get(topic_id, self.others)

    def complete(self) -> Committed:
        """Return the state in which the version that is under way is committed."""
        done = self.under_way
        if done is None:
            return self
        newest = (done.version, done.records) if done.version >= self.version else (self.version, self.records)
        state = replace(self, version=newest[0], records=newest[1], under_way=None)
        if not done.topic_ids:  # an earlier kafkalake has begun it, and did not note which topics it is for
            newer = {topic_id: version for topic_id, version in self.topics.items() if version > done.version}
            return replace(state, topics=newer, others=max(self.others, done.version))
        return replace(state, topics={**self.topics, **dict.fromkeys(done.topic_ids, done.version)})

    def keep_topics(self, is_there: Callable[[str], bool]) -> Committed:
        """Return the state without the topics that are gone, if many are noted."""
        if len(self.topics) <= TOPICS_KEPT:
            return self
        return replace(self, topics={each: version for each, version in self.topics.items() if is_there(each)})


class CommitFiles:
    """The commit files of all applications. All calls block on disk I/O: not for the event loop's thread."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files

    def load(self, application: str) -> Committed:
        """Return the application's state. Raise `KafkaStorageError` if its file exists but cannot be read."""
        key = _key_of(application)
        try:
            epochs = self._epochs().get(key)
            return Committed(application) if epochs is None else self._read(key, max(epochs))
        except (OSError, ValueError, KeyError, TypeError) as error:
            path = self._directory / _name(key)
            raise KafkaStorageError(f"{path} cannot be read, to go on could write records twice: {error}") from error

    def save(self, committed: Committed, epoch: int) -> None:
        """Write the state durably, as the coordinator of that epoch.

        Raise `KafkaStorageError` if that fails, `NotCoordinatorError` if one of a newer epoch has written.
        """
        key = _key_of(committed.application)
        path = self._directory / _name(key, epoch)
        try:
            make_durable_directory(self._files, str(self._directory))
            replace_file(self._files, str(path), json.dumps(asdict(committed)).encode(), sync=True)
            epochs = self._epochs()[key]
        except OSError as error:
            raise KafkaStorageError(f"{path} cannot be written: {error}") from error
        if max(epochs) > epoch:
            raise NotCoordinatorError(f"{committed.application} has a newer coordinator")
        for older in epochs:
            if older < epoch:
                with contextlib.suppress(OSError):
                    self._files.unlink(str(self._directory / _name(key, older)))

    def unfinished(self) -> list[str]:
        """Return the applications with a version in progress. Unreadable files are logged and skipped."""
        found = []
        try:
            of_keys = self._epochs()
        except OSError as error:
            logger.error("cannot be listed path=%s error=%s", self._directory, error)
            return []
        for key, epochs in sorted(of_keys.items()):
            try:
                committed = self._read(key, max(epochs))
            except (OSError, ValueError, KeyError, TypeError) as error:
                logger.error("cannot be read path=%s error=%s", self._directory / _name(key, max(epochs)), error)
                continue
            if committed.under_way is not None:
                found.append(committed.application)
        return found

    def _epochs(self) -> dict[str, list[int]]:
        """Return the epochs of the files of each application's hash. Raise `OSError` if the directory cannot be listed."""
        try:
            names = self._files.list(str(self._directory))
        except FileNotFoundError:
            return {}
        found: dict[str, list[int]] = {}
        for name in names:
            if (parts := _NAME.fullmatch(name)) is not None:
                found.setdefault(parts[1], []).append(_NO_EPOCH if parts[2] is None else int(parts[2]))
        return found

    def _read(self, key: str, epoch: int) -> Committed:
        return _decode(read_file(self._files, str(self._directory / _name(key, epoch))))


def _key_of(application: str) -> str:
    return hashlib.sha256(application.encode()).hexdigest()[:40]


def _name(key: str, epoch: int = _NO_EPOCH) -> str:
    return f"{key}.json" if epoch == _NO_EPOCH else f"{key}.{epoch}.json"


def _decode(data: bytes) -> Committed:
    values = json.loads(data)
    under_way = values.pop("under_way")
    if under_way is not None:
        under_way = UnderWay(**{**under_way, "topic_ids": tuple(under_way.get("topic_ids", ()))})
    return Committed(**(values if "topics" in values else _with_topics(values)), under_way=under_way)


def _with_topics(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an earlier kafkalake's file, whose version and those below it counted for all topics.

    `topic_ids`, which 0.1 did not write: the topics of the version, which was refused for others and so is not written to them.
    """
    version, topic_ids = values["version"], values.pop("topic_ids", ())
    return {**values, "topics": dict.fromkeys(topic_ids, version), "others": version - 1 if topic_ids else version}
