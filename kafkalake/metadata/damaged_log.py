"""What a loss of power leaves of a Delta table's log, and how a broker's start mends it: all of it, in one look.

A file that was not forced to the disk may be whole, cut, empty, full of zeros, or gone. What had to be durable was forced before
it was acknowledged, with everything before it, so what is damaged was never acknowledged, and neither was what stands behind it.

    a checkpoint that cannot be read           set aside; the one before it and the entries after that say the same
    a hint that names no whole checkpoint      set aside; it only saves readers a listing
    an entry that is missing, cut or empty     set aside, with all that follow it
    an entry that names a damaged data file    the same
    the first entry                            made anew: it says what the table's definition says

Set aside: renamed to `<name>.torn`, so that an operator can look at it and Delta's readers pass over it. Entries of another
broker or job that are being written appear whole, so a log in use has nothing that looks damaged; what looks so is looked at twice,
because a listing made meanwhile may have a gap.
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
"""In the `commitInfo` of our commits: how many actions follow. Without it an entry cut at the end of a line would look whole."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """Files of a log that do not count: `names`, and the version from which on entries do not, if any, and why.

    lacks_first: the log begins at version 0, whose entry is not whole, and others follow it. lost: the log cannot be read at all,
    because no whole checkpoint stands for its first entries, which were removed.
    """

    names: tuple[str, ...] = ()
    reason: str = ""
    lacks_first: bool = False
    lost: bool = False


@dataclass(slots=True)
class _Entry:
    """What one entry says of data files: path -> size of those it adds, and those it removes."""

    added: dict[str, int] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


def find_damage(table: Path) -> Damage | None:
    """What of a table's log is damaged; None where nothing is, or there is no log. Raises `OSError`."""
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
    """Rename what is damaged, the newest first: a process that dies meanwhile leaves a log without a gap. Raises `OSError`."""
    log = log_path(table)
    _log.warning(
        "setting aside what a loss of power has damaged table=%s files=%d from=%r",
        table.name,
        len(damage.names),
        damage.reason,
    )
    for name in sorted(damage.names, reverse=True):
        try:
            disk.rename(log / name, log / f"{name}.torn")
        except FileNotFoundError:  # another process that starts mends it too
            continue
    disk.force_directory(log)


def is_whole_parquet(file: Path) -> bool:
    """Whether all of a small Parquet file can be read. Raises `OSError` where the disk or a limit prevents looking."""
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
    """The first version after the checkpoint `base` whose entry or data is not whole; `newest` + 1 where all are."""
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
        end = min(damaged)  # what later entries had removed counts again


def _is_whole_data(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size and is_whole_parquet(file)
    except FileNotFoundError:
        return False


def _read_entry(table: Path, version: int) -> _Entry | None:
    """An entry; None where it is missing or not whole."""
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
