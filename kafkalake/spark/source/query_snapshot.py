"""Shares one snapshot among all scans of a query: a self-join must read the same records twice.

Spark plans each scan separately, in any free Python process. The first scan of a query records the partition ends,
and later ones end there too. The record is a small file on the driver's machine, named after the query and removed
by a later query.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from kafkalake.reader.read import PartitionSnapshot, Read

_KEPT_S = 3600


def as_first_seen(read: Read, query: str, directory: Path | None = None) -> Read:
    """Return `read`, ending where the first scan of each topic in `query` ended. An empty `query` means no sharing."""
    options, snapshots = read.options, read.partitions
    if not query or options.version is not None or options.as_of_ms is not None:
        return read
    directory = directory or _directory()
    file = directory / hashlib.sha256(f"{query}\n{options.lake}\n{options.isolation}".encode()).hexdigest()
    try:
        seen: dict[str, dict[str, int]] = json.loads(file.read_text())
    except (OSError, ValueError):
        seen = {}
        _remove_old(directory)
    ends = {**{_topic(snapshot): {} for snapshot in snapshots}, **seen}
    for snapshot in snapshots:
        if _topic(snapshot) not in seen:
            ends[_topic(snapshot)][str(snapshot.partition)] = snapshot.end_offset
    if ends != seen:
        partial = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        partial.write_text(json.dumps(ends))
        partial.replace(file)
    # A partition that the first scan did not see is excluded, like a record that it did not see.
    seen_first = [
        replace(snapshot, end_offset=max(snapshot.start_offset, min(snapshot.end_offset, end)))
        for snapshot in snapshots
        if (end := ends[_topic(snapshot)].get(str(snapshot.partition))) is not None
    ]
    return read.of(seen_first)


def _topic(snapshot: PartitionSnapshot) -> str:
    """Return a key for the topic with this id, as distinct from later topics of its name."""
    return f"{snapshot.topic}#{snapshot.topic_id}"


def _directory() -> Path:
    """Return the directory of the files, writable only by this user. Raise `PermissionError` if it is not."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    root = Path(runtime) if runtime and os.access(runtime, os.W_OK) else Path(tempfile.gettempdir())
    directory = root / f"kafkalake-queries-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory} is no directory of this user alone: others could change what queries read")
    return directory


def _remove_old(directory: Path) -> None:
    oldest = time.time() - _KEPT_S
    with contextlib.suppress(OSError):
        for file in directory.iterdir():
            if file.lstat().st_mtime < oldest:
                file.unlink(missing_ok=True)
