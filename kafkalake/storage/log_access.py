"""The state that the parts of a log share: directory and settings, lock, whether it is open, and the error of its disk."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from kafkalake.clock import Clock
from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.storage.config import LogConfig
from kafkalake.storage.open_files import OpenFiles

logger = logging.getLogger(__name__)


class LogAccess:
    """Access to one log. `lock`: guards what changes. `config`: replaced by `configure` while the log is open.

    is_replicated: other brokers have replicas of it.
    """

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        open_files: OpenFiles,
        *,
        is_replicated: bool = False,
    ) -> None:
        self.directory = directory
        self.config = config
        self.clock = clock
        self.open_files = open_files
        self.files = open_files.files
        self.is_replicated = is_replicated
        self.lock = threading.RLock()
        self.closed = False

    def configure(self, config: LogConfig) -> None:
        """Use other settings from now on."""
        self.config = config

    def close(self) -> None:
        """Reject all further access and drop the open descriptors."""
        self.closed = True
        self.open_files.forget_directory(self.directory)

    def check_open(self) -> None:
        """Raise `KafkaStorageError` if the log is closed."""
        if self.closed:
            raise KafkaStorageError(f"{self.directory}: the log is closed")

    @contextlib.contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Hold the lock and yield True, or yield False at once if another thread has it, which may be reading a whole segment."""
        is_free = self.lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self.lock.release()

    @contextlib.contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        """Convert `OSError` to KafkaStorageError. Raise it also if the log is closed before or during the block."""
        self.check_open()
        try:
            yield
            self.check_open()
        except OSError as error:
            raise storage_error(self.directory, doing, error) from error


def storage_error(directory: str, doing: str, error: OSError | LakeError) -> KafkaStorageError:
    """Log the error of a log's disk and return what its callers get."""
    logger.error("storage failed: doing=%s directory=%s error=%s", doing, directory, error)
    return KafkaStorageError(f"{directory}: {doing}: {error}")
