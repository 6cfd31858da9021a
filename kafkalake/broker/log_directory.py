"""The directory of this broker's logs: one subdirectory per partition, named `<topic>-<partition>`.

Opens logs with the settings of their topic. A deleted topic's directories are renamed at once (`<name>.<topic id>-delete`),
so that a topic of the same name can come, and removed later, for readers that planned with them. What a crash left between the two
steps is cleared at the next start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkalake.clock import Clock
from kafkalake.config import TopicConfig
from kafkalake.storage.config import LogConfig
from kafkalake.storage.generations import SwappedSegment
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles

logger = logging.getLogger(__name__)

_DELETED = "-delete"


def log_config(config: TopicConfig, producer_id_expiration_ms: int) -> LogConfig:
    """What a log needs to know of its topic's settings."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        segment_compression=config.segment_compression,
        flush_messages=config.flush_messages,
        flush_ms=config.flush_ms,
        message_timestamp_type=config.message_timestamp_type,
        producer_id_expiration_ms=producer_id_expiration_ms,
        file_delete_delay_ms=config.file_delete_delay_ms,
    )


class LogDirectory:
    """Logs below `root`. Methods block on the disk; any thread may call them."""

    def __init__(self, root: Path, clock: Clock, open_files: OpenFiles) -> None:
        self.root = root
        self._clock = clock
        self._open_files = open_files

    def path(self, topic: str, index: int) -> Path:
        """Where a partition lies."""
        return self.root / f"{topic}-{index}"

    def open(
        self,
        topic: str,
        index: int,
        config: LogConfig,
        swapped: Sequence[SwappedSegment] = (),
    ) -> Log:
        """Open a partition's log, made if it is not there; `swapped` as in `Log.open`. Raises `KafkaStorageError`."""
        directory = str(self.path(topic, index))
        return Log.open(directory, config, self._clock, self._open_files.files, self._open_files, swapped)

    def retire(self, topic: str, topic_id: str, indices: Iterable[int]) -> list[Path]:
        """Take a deleted topic's directories out of the way; returns what is to be removed later."""
        retired = []
        for index in indices:
            source = self.path(topic, index)
            target = self.root / f"{topic[:180]}-{index}.{topic_id}{_DELETED}"
            with contextlib.suppress(FileNotFoundError):
                os.rename(source, target)
                retired.append(target)
        return retired

    def remove(self, directories: Iterable[Path]) -> None:
        """Remove retired directories."""
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)

    def clear(self, known: Iterable[tuple[str, int]]) -> list[Path]:
        """Retire directories that belong to no partition in `known`; returns them and those that were retired before."""
        expected = {f"{topic}-{index}" for topic, index in known}
        found = []
        for entry in os.scandir(self.root):
            if not entry.is_dir() or entry.name in expected:
                continue
            path = Path(entry.path)
            if not entry.name.endswith(_DELETED):
                logger.warning("directory of no topic retired path=%s", path)
                target = path.with_name(f"{entry.name[:200]}.unknown{_DELETED}")
                shutil.rmtree(target, ignore_errors=True)
                path = path.rename(target)
            found.append(path)
        return found
