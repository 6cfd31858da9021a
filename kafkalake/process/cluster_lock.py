"""Allows one `cluster start` on a lake at a time, and lets others find its process.

The lock is the kernel's (`flock`), so it ends with the process. The content of the file says which process that is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.lock_file import open_lock_file, try_flock


@dataclass(frozen=True, slots=True)
class ClusterProcess:
    """The process that runs the brokers of a lake as its children."""

    pid: int
    machine: str

    @property
    def is_here(self) -> bool:
        """Return whether it runs on this machine."""
        return self.machine == socket.gethostname()


@contextmanager
def exclusive_cluster_lock(lake: Path) -> Iterator[None]:
    """Hold the lock. Raise `LakeError` while another process has it."""
    descriptor = open_lock_file(paths.cluster_lock_path(lake))
    try:
        if not try_flock(descriptor):
            holder = _read(descriptor)
            who = "another process" if holder is None else f"process {holder.pid} of {holder.machine}"
            raise LakeError(
                f"the brokers of {lake} are run by {who} already; stop them first: kafkalake cluster stop --lake {lake}"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(ClusterProcess(os.getpid(), socket.gethostname()))).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def cluster_process(lake: Path) -> ClusterProcess | None:
    """Return the process that holds the lock, None if there is none."""
    try:
        descriptor = os.open(paths.cluster_lock_path(lake), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if try_flock(descriptor, fcntl.LOCK_SH) else _read(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> ClusterProcess | None:
    with contextlib.suppress(ValueError, TypeError):
        return ClusterProcess(**json.loads(os.pread(descriptor, 4096, 0)))
    return None
