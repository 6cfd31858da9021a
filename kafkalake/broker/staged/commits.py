"""Durable commit state of each writing application: the newest committed version and the one in progress, if any.

There is one small file per application, replaced as a whole. A transactional id does not reveal the version of its last
transaction, so the file is written before a transaction begins (`under_way`, with its producer) and after it is complete
(`Committed`). After a crash at any step, the file and the transaction coordinator's outcome for that producer decide together.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalake.errors import KafkaStorageError
from kafkalake.storage.files import Files, make_durable_directory, read_file, replace_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A version in progress, with the producer of its transaction."""

    version: int
    producer_id: int
    epoch: int
    records: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit state of an application. `version` -1: nothing committed yet."""

    application: str
    version: int = -1
    records: int = 0
    under_way: UnderWay | None = None


class CommitFiles:
    """The commit files, one per application. All calls block on disk I/O: not for the event loop's thread."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files

    def load(self, application: str) -> Committed:
        """Return the application's state. Raise `KafkaStorageError` if its file exists but cannot be read."""
        path = self._path(application)
        try:
            found = _decode(read_file(self._files, str(path)))
        except FileNotFoundError:
            return Committed(application)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KafkaStorageError(f"{path} cannot be read, to go on could write records twice: {error}") from error
        return found

    def save(self, committed: Committed) -> None:
        """Write the state durably. Raise `KafkaStorageError` if that fails."""
        path = self._path(committed.application)
        try:
            make_durable_directory(self._files, str(self._directory))
            replace_file(self._files, str(path), json.dumps(asdict(committed)).encode(), sync=True)
        except OSError as error:
            raise KafkaStorageError(f"{path} cannot be written: {error}") from error

    def unfinished(self) -> list[Committed]:
        """Return the applications with a version in progress. Unreadable files are logged and skipped."""
        found = []
        for path in sorted(self._directory.glob("*.json")) if self._directory.is_dir() else []:
            try:
                committed = _decode(read_file(self._files, str(path)))
            except (OSError, ValueError, KeyError, TypeError) as error:
                logger.error("cannot be read path=%s error=%s", path, error)
                continue
            if committed.under_way is not None:
                found.append(committed)
        return found

    def _path(self, application: str) -> Path:
        return self._directory / f"{hashlib.sha256(application.encode()).hexdigest()[:40]}.json"


def _decode(data: bytes) -> Committed:
    values = json.loads(data)
    under_way = values.pop("under_way")
    return Committed(**values, under_way=None if under_way is None else UnderWay(**under_way))
