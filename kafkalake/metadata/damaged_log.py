"""Finds damage of a Delta table's log by a power loss and repairs it at a broker's startup, in one pass.

A file without an fsync may be whole, cut, empty, full of zeros, or missing. Durable data was fsynced before it was acknowledged,
with everything before it. A damaged file and everything after it were therefore never acknowledged.

    an unreadable checkpoint                   set aside: the one before it and the later entries are equivalent
    a hint that names no whole checkpoint      set aside: it only saves readers a listing
    an entry that is missing, cut or empty     set aside, with all later entries
    an entry that names a damaged data file    the same
    the first entry                            recreated from the table's definition

Files set aside are renamed to `<name>.torn`, which operators can inspect and Delta's readers ignore. Entries written by another
broker or job appear atomically, so a log in use does not look damaged. Damage is checked twice, because a listing during
concurrent writes may have a gap.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalake.metadata.delta_checkpoint import (
    HINT,
    checkpoint_versions,
    entry_path,
    entry_versions,
    log_path,
)
from kafkalake.metadata.disk import Disk

ACTIONS = "kafkalakeActions"
"""The key of the number of actions in the `commitInfo` of our commits. It detects an entry cut at the end of a line."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """The damaged files of a log (`names`) and a description of the damage (`reason`).

    lacks_first: entry 0 is missing or not whole, and can be recreated. lost: the log cannot be read at all, because its first
    entries were removed and no whole checkpoint covers them.
    """

    names: tuple[str, ...] = ()
    reason: str = ""
    lacks_first: bool = False
    lost: bool = False


@dataclass(slots=True)
class _Entry:
    """The data files of one entry: added ones (path -> size) and removed ones."""

    added: dict[str, int] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


def find_damage(table: Path) -> Damage | None:
    """Return the damage of a table's log, or None if there is none or no log. Raise `OSError` if it cannot be listed."""
    try:
        names = os.listdir(log_path(table))
    except FileNotFoundError:
        return None
    entries, checkpoints = entry_versions(names), checkpoint_versions(names)
    damaged: list[str] = []
    base = -1
    for version in sorted(checkpoints, reverse=True):
        if all(is_whole_parquet(log_path(table) / name) for name in checkpoints[version]):
            base = version
            break
        damaged += checkpoints[version]
    reason = f"checkpoint {damaged[0]}" if damaged else ""
    if HINT in names and not _is_good_hint(log_path(table) / HINT, base):
        damaged.append(HINT)
        reason = reason or "the hint at the last checkpoint"
    newest = max(entries, default=-1)
    if base < 0 and (damaged or entries) and _read_entry(table, 0) is None:
        if min(entries, default=2) > 1:
            return Damage(tuple(damaged), reason or "the first entries", lost=True)
        return Damage(tuple(damaged), "the first entry", lacks_first=True)
    cut = _first_damaged(table, base, newest)
    if cut <= newest:
        reason = f"the entry of version {cut}"
        damaged += [name for version, name in sorted(entries.items()) if version >= cut]
    return Damage(tuple(damaged), reason) if damaged else None


def set_aside(table: Path, damage: Damage, disk: Disk) -> None:
    """Rename damaged files, newest first, so that a crash leaves a log without a gap. Raise `OSError` if that fails."""
    log = log_path(table)
    logger.warning(
        "setting aside what a loss of power has damaged table=%s files=%d from=%r",
        table.name,
        len(damage.names),
        damage.reason,
    )
    for name in sorted(damage.names, reverse=True):
        try:
            disk.rename(log / name, log / f"{name}.torn")
        except FileNotFoundError:  # repaired concurrently by another starting process
            continue
    disk.force_directory(log)


def is_whole_parquet(file: Path) -> bool:
    """Return whether a small Parquet file can be read completely. Raise `OSError` on I/O errors and resource limits."""
    try:
        pq.ParquetFile(file).read()
    except (OSError, pa.ArrowException) as error:
        if getattr(error, "errno", None) not in (None, errno.ENOENT):
            raise
        return False  # Arrow's own errors have no number
    return True


def _is_good_hint(file: Path, newest_checkpoint: int) -> bool:
    try:
        hint = json.loads(file.read_bytes())
        return isinstance(hint, dict) and 0 <= int(hint["version"]) <= newest_checkpoint
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _first_damaged(table: Path, base: int, newest: int) -> int:
    """Return the first version after checkpoint `base` whose entry or data is not whole, `newest` + 1 if all are."""
    entries: dict[int, _Entry] = {}
    for version in range(base + 1, newest + 1):
        entry = _read_entry(table, version)
        if entry is None:
            break
        entries[version] = entry
    end = base + 1 + len(entries)
    checked: dict[str, bool] = {}
    while True:
        added: dict[str, tuple[int, int]] = {}
        for version in range(base + 1, end):
            added.update({path: (version, size) for path, size in entries[version].added.items()})
            for path in entries[version].removed:
                added.pop(path, None)
        for path, (_, size) in added.items():
            if path not in checked:
                checked[path] = _is_whole_data(table / path, size)
        damaged = [version for path, (version, _) in added.items() if not checked[path]]
        if not damaged:
            return end
        end = min(damaged)  # files removed by later entries are current again


def _is_whole_data(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size and is_whole_parquet(file)
    except FileNotFoundError:
        return False


def _read_entry(table: Path, version: int) -> _Entry | None:
    """Return an entry, or None if it is missing or not whole."""
    try:
        lines = entry_path(table, version).read_bytes().splitlines()
        actions = [json.loads(line) for line in lines]
    except (FileNotFoundError, ValueError):
        return None
    found = _Entry()
    info = None
    for action in actions:
        if not isinstance(action, dict):
            return None
        info = action.get("commitInfo", info)
        if "add" in action:
            found.added[unquote(action["add"]["path"])] = action["add"]["size"]
        elif "remove" in action:
            found.removed.add(unquote(action["remove"]["path"]))
    if info is None or len(actions) - 1 != int(info.get(ACTIONS, len(actions) - 1)):
        return None
    if version == 0 and not any("metaData" in action for action in actions):
        return None
    return found
