"""Directories of deleted topics. Their broker has renamed them, and removes them after `file.delete.delay.ms` or at its next start.

Whoever removes them earlier (`DROP TABLE ... PURGE`) takes nothing away but that grace.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

RETIRED = "-delete"
"""How their names end."""

_TOPIC_CHARACTERS = 180


def retired_name(topic: str, index: int, topic_id: UUID) -> str:
    """Return the name that the directory of a partition gets with the deletion of its topic."""
    return f"{topic[:_TOPIC_CHARACTERS]}-{index}.{topic_id}{RETIRED}"


def retired_directories(logs: Path, topic_id: UUID) -> list[Path]:
    """Return the directories of a deleted topic below the directories of brokers in `logs`."""
    return list(logs.glob(f"*/*.{topic_id}{RETIRED}"))


def remove_directories(directories: Iterable[Path]) -> list[Path]:
    """Remove directories with all that is in them, as far as that is possible, and return those that are still there."""
    left = []
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
        if directory.exists():
            left.append(directory)
    return left
