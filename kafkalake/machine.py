"""Which machine this is, and whose files a directory holds.

A host name says little: the pods of a StatefulSet keep theirs on another node, and each new container has a new one on the same
node. The kernel's boot id is one of a kind, the same in all of a machine's containers, and another after each start.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
_ONE_MACHINE = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose disk or memory one kernel has at a time: two that mount it at once destroy it."""


@cache
def boot_id() -> bytes:
    """16 bytes that name the running kernel's boot; zeros where that cannot be told."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def is_of_one_machine(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether `path` lies on a file system that only one running kernel can have mounted, by its type.

    False for network file systems, for unknown ones, and where it cannot be told.
    """
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return False
    found, kind = "", ""
    real = os.path.realpath(path)
    for line in lines:
        mounted, _, source = line.partition(" - ")
        point = mounted.split()[4].encode().decode("unicode_escape")  # a space is \040
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found):
            found, kind = point, source.split()[0]
    return kind in _ONE_MACHINE
