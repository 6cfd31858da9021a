"""What each writing application has committed, durably: the newest version, and the one that may be under way.

One small file an application, replaced as a whole. A transactional id alone cannot tell which version its last transaction was,
so the file is written before a transaction begins (`under_way`, with the producer that will carry it) and after it is complete
(`committed`). After a crash the transaction coordinator knows whether that producer's transaction was committed: together they
decide, whichever step came last.
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
    """A version whose transaction was begun by this producer."""

    version: int
    producer_id: int
    epoch: int
    records: int


@dataclass(frozen=True, slots=True)
class Committed:
    """What is known of an application; `version` -1: nothing committed yet."""

    application: str
    version: int = -1
    records: int = 0
    under_way: UnderWay | None = None


class CommitFiles:
    """The files, one an application. Every call touches the disk: not on the event loop's thread."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files

    def load(self, application: str) -> Committed:
        """What is known of the application. Raises `KafkaStorageError` where its file is there and cannot be read."""
        path = self._path(application)
        try:
            found = _decode(read_file(self._files, str(path)))
        except FileNotFoundError:
            return Committed(application)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KafkaStorageError(f"{path} cannot be read, to go on could write records twice: {error}") from error
        return found

    def save(self, committed: Committed) -> None:
        """Make it durable. Raises `KafkaStorageError`; then all is as before."""
        path = self._path(committed.application)
        try:
            make_durable_directory(self._files, str(self._directory))
            replace_file(self._files, str(path), json.dumps(asdict(committed)).encode(), sync=True)
        except OSError as error:
            raise KafkaStorageError(f"{path} cannot be written: {error}") from error

    def unfinished(self) -> list[Committed]:
        """The applications that had a version under way when a broker last wrote."""
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
