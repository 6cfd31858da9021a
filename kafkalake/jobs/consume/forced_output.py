"""Forces Spark's output to disk: Spark does not, and the group's offsets, committed afterwards, would survive a power failure that
the records do not. A table outside this machine's file systems is as durable as its store makes it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from kafkalake.metadata.delta_checkpoint import HINT, checkpoint_versions, entry_path, log_path
from kafkalake.metadata.disk import Disk

_VERSION = re.compile(r"\.?(\d{20})\.")


def force_directory_of_files(directory: Path, disk: Disk) -> None:
    """Force a directory's files and their names, not its own. Raise `OSError` on failure."""
    for file in directory.iterdir():
        disk.force(file)
    disk.force_directory(directory)


def force_commits(table: Path, after: int | None, version: int, disk: Disk) -> None:
    """Force a Delta table's commits after `after` up to `version`, with their data files and all names. Raise `OSError` on failure.

    after: the last commit already forced, or None if unknown. Then commits since the checkpoint before the last are forced too:
    a run may have been killed before it forced them.
    """
    log = log_path(table)
    if not log.is_dir():
        return
    names = os.listdir(log)
    if after is None:
        earlier = sorted(number for number in checkpoint_versions(names) if number < version)
        after = earlier[-2] - 1 if len(earlier) > 1 else -1
    written = {file for number in range(after + 1, version + 1) for file in _added(table, number)}
    for file in sorted(written):
        _force(file, disk)
        _force(file.with_name(f".{file.name}.crc"), disk)  # Hadoop's checksum, without which it reads no file
    for name in names:
        match = _VERSION.match(name)
        if (match and int(match[1]) > after) or HINT in name:
            _force(log / name, disk)
    directories = {parent for file in written for parent in file.parents if table in parent.parents}
    for directory in (*sorted(directories, reverse=True), log, table):
        disk.force_directory(directory)
    if after < 0:
        _force_leading_to(table, disk)


def _force_leading_to(table: Path, disk: Disk) -> None:
    """Force the names of a new table and of the directories that Spark may have created for it."""
    device = table.stat().st_dev
    for directory in table.parents:
        if directory.stat().st_dev != device or not os.access(directory, os.R_OK):
            return  # not created by this user
        disk.force_directory(directory)


def _added(table: Path, version: int) -> Iterable[Path]:
    try:
        lines = entry_path(table, version).read_bytes().splitlines()
    except FileNotFoundError:  # removed: replaced by a checkpoint
        return
    for line in lines:
        path = json.loads(line).get("add", {}).get("path")
        if path and not path.startswith("/") and "://" not in path:
            yield table / unquote(path)


def _force(file: Path, disk: Disk) -> None:
    try:
        disk.force(file)
    except FileNotFoundError:
        return  # removed meanwhile, so no longer needed
