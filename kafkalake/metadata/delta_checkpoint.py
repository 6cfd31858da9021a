"""Writes checkpoints of a Delta table's log that a power loss cannot leave half written.

delta-rs writes a checkpoint and then `_last_checkpoint`, and fsyncs neither. After a power loss the disk often has the hint, which
replaces an older one, and an empty checkpoint: no reader can open the table. Here delta-rs writes both in a directory beside the
log, with links to the entries covered by the checkpoint, and they are put in place in this order:

    1. the entries and the data files are durable           a checkpoint covers nothing that can still be lost
    2. the checkpoint is fsynced, renamed and its directory fsynced
    3. `_last_checkpoint` names it

A crash at any point leaves a log that every reader can open, and at most a directory, which `remove_leftovers` removes.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from deltalake import DeltaTable

from kafkalake.metadata.disk import Disk

HINT = "_last_checkpoint"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:\S+\.)?parquet")
_SCRATCH = "_checkpoint-"
_LEFTOVER_AFTER_S = 3_600


def log_path(table: Path) -> Path:
    """Return the directory of a table's log."""
    return table / "_delta_log"


def entry_path(table: Path, version: int) -> Path:
    """Return the path of a version's log entry."""
    return log_path(table) / f"{version:020}.json"


def entry_versions(names: Iterable[str]) -> dict[int, str]:
    """Return the entries among the names in a log, by version."""
    return {int(match[1]): name for name in names if (match := _ENTRY.fullmatch(name))}


def checkpoint_versions(names: Iterable[str]) -> dict[int, list[str]]:
    """Return the checkpoints among the names in a log, by version. A multi-part checkpoint has several files."""
    found: dict[int, list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            found.setdefault(int(match[1]), []).append(name)
    return found


def write_checkpoint(table: Path, version: int, disk: Disk) -> None:
    """Write a checkpoint of `version`. The caller has fsynced its entries and files.

    Raise `OSError` or `DeltaError` if that fails. The log is then unchanged, except that the checkpoint may exist.
    """
    log = log_path(table)
    if there := checkpoint_versions(os.listdir(log)).get(version):
        for name in there:
            disk.force(log / name)
        disk.force_directory(log)
        return
    scratch = table / f"{_SCRATCH}{uuid.uuid4()}"
    try:
        _link_log(log, scratch / "_delta_log", version)
        DeltaTable(scratch).create_checkpoint()
        for name in checkpoint_versions(os.listdir(scratch / "_delta_log"))[version]:
            disk.force(scratch / "_delta_log" / name)
            disk.rename(scratch / "_delta_log" / name, log / name)
        disk.force_directory(log)
        disk.replace(log / HINT, (scratch / "_delta_log" / HINT).read_bytes())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_leftovers(table: Path) -> None:
    """Remove directories of processes that died writing a checkpoint. Raise `OSError` if they cannot be listed."""
    for directory in table.glob(f"{_SCRATCH}*"):
        if time.time() - directory.stat().st_mtime > _LEFTOVER_AFTER_S:
            shutil.rmtree(directory, ignore_errors=True)


def _link_log(log: Path, scratch: Path, version: int) -> None:
    """Link into `scratch` the part of a log needed to read `version`: its newest checkpoint and the later entries."""
    scratch.mkdir(parents=True)
    names = os.listdir(log)
    checkpoints = {found: files for found, files in checkpoint_versions(names).items() if found <= version}
    newest = max(checkpoints, default=-1)
    wanted = [name for found, name in entry_versions(names).items() if newest < found <= version]
    for name in [*wanted, *checkpoints.get(newest, ())]:
        try:
            os.link(log / name, scratch / name)
        except OSError:  # a file system without links
            shutil.copyfile(log / name, scratch / name)
