"""The directory of this broker's logs: one subdirectory per partition, named `<topic>-<partition>`.

Opens logs with the settings of their topic. A deleted topic's directories are renamed at once (`<name>.<topic id>-delete`), which
frees the name for a new topic, and removed later, for readers that planned with them. Leftovers of a crash between the two steps
are cleared at the next start. A directory records its topic id (`storage/partition_metadata.py`), so one that was not renamed is
never used for a later topic of the same name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from uuid import UUID

from kafkalake.clock import Clock
from kafkalake.config.part import part_of
from kafkalake.config.topics import TopicConfig
from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.storage.config import LogConfig
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.log_events import LogEvents
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.partition_metadata import read_topic_id
from kafkalake.storage.retired_directories import RETIRED, remove_directories, retired_name
from kafkalake.storage.takeover import begin_leadership, take_over_files
from kafkalake.topic_partition import TopicPartition
from kafkalake.uuid_text import encode_uuid

logger = logging.getLogger(__name__)


EventsOfLogs = Callable[[str, UUID, int], LogEvents]


def log_config(config: TopicConfig, producer_id_expiration_ms: int) -> LogConfig:
    """Return a log's settings derived from its topic's."""
    return part_of(config, LogConfig, producer_id_expiration_ms=producer_id_expiration_ms)


class LogDirectory:
    """Logs below `root`. Methods block on disk I/O and may be called from any thread."""

    def __init__(self, root: Path, clock: Clock, open_files: OpenFiles, events: EventsOfLogs | None = None) -> None:
        """`events(topic, topic_id, index)` returns the receiver of the events of a log to be opened."""
        self.root = root
        self._events = events
        self._clock = clock
        self._open_files = open_files
        self._predecessors: list[Path] = []
        self._untaken: set[Path] = set()
        """The directories whose files an earlier owner may still have open, because taking them over has failed."""

    def path(self, topic: str, index: int) -> Path:
        """Return a partition's directory."""
        return self.root / f"{topic}-{index}"

    def open(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        config: LogConfig,
        swapped: Sequence[RewrittenSegment] = (),
        *,
        taking_over: bool = False,
        is_replicated: bool = False,
        is_counted: bool = False,
    ) -> Log:
        """Open a partition's log, creating it if missing. `swapped` as in `Log.open`.

        A directory of an earlier topic with the same name is retired. taking_over: the last owner of the log may still run.
        is_replicated: other brokers have replicas. is_counted: as in `Log.open`.
        Raise `KafkaStorageError` if the log cannot be opened.
        """
        path = self.path(topic, index)
        try:
            owner = read_topic_id(path, self._open_files.files)
            if owner is not None and owner != topic_id:
                logger.warning("directory of an earlier topic retired path=%s topic_id=%s", path, encode_uuid(owner))
                self._predecessors += self._retire(path, topic, index, owner)
            if taking_over or path in self._untaken:
                self._untaken.add(path)
                take_over_files(path, self._open_files.files)
                self._untaken.discard(path)
        except (OSError, LakeError) as error:
            logger.error("log not opened path=%s error=%s", path, error)
            raise KafkaStorageError(f"{path}: open: {error}") from error
        files = self._open_files
        events = self._events and self._events(topic, topic_id, index)
        log = Log.open(
            str(path),
            config,
            self._clock,
            files.files,
            files,
            swapped,
            topic_id,
            events,
            is_replicated=is_replicated,
            is_counted=is_counted,
        )
        if taking_over:
            begin_leadership(log)
        return log

    def offline(self, topic: str, index: int, config: LogConfig) -> Log:
        """Return a placeholder for a log that could not be opened, see `Log.offline`."""
        return Log.offline(self.path(topic, index), config, self._clock, self._open_files)

    def take_predecessors(self) -> list[Path]:
        """Return the directories retired by `open` since the last call, to be removed later."""
        found, self._predecessors = self._predecessors, []
        return found

    def retire(self, topic: str, topic_id: UUID, indices: Iterable[int]) -> list[Path]:
        """Rename a deleted topic's directories and return those to be removed later.

        One that cannot be renamed stays until it is retired by the next topic of its name or at the next start.
        """
        retired = []
        for index in indices:
            path = self.path(topic, index)
            try:
                retired += self._retire(path, topic, index, topic_id)
            except OSError as error:
                logger.error("directory of a deleted topic not retired path=%s error=%s", path, error)
        return retired

    def _retire(self, source: Path, topic: str, index: int, topic_id: UUID) -> list[Path]:
        target = self.root / retired_name(topic, index, topic_id)
        if source.exists():  # a replica may be removed, made and removed again before the first removal is complete
            shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self._open_files.files.rename(str(source), str(target))
            self._open_files.forget_directory(str(source))
            return [target]
        return []

    def remove(self, directories: Iterable[Path]) -> list[Path]:
        """Remove retired directories, and return those that are still there."""
        return remove_directories(directories)

    def clear(self, known: Iterable[TopicPartition]) -> list[Path]:
        """Retire directories of no partition in `known` and return them with those retired before."""
        expected = {f"{topic}-{index}" for topic, index in known}
        found = []
        for entry in os.scandir(self.root):
            if not entry.is_dir() or entry.name in expected:
                continue
            path = Path(entry.path)
            if not entry.name.endswith(RETIRED):
                logger.warning("directory of no topic retired path=%s", path)
                target = path.with_name(f"{entry.name[:200]}.unknown{RETIRED}")
                shutil.rmtree(target, ignore_errors=True)
                path = path.rename(target)
            found.append(path)
        return found
