"""Identifies this machine and whether it alone can mount a file system.

A host name is not enough: the pods of a StatefulSet keep theirs on another node, and each new container has a new one on the same
node. The kernel's boot id is unique, the same in all of a machine's containers, and changes with each boot.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
_ONE_MACHINE = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems on the disk or memory of a single kernel: mounting one on two at once destroys it."""


@cache
def boot_id() -> bytes:
    """Return the 16 bytes that identify the running kernel's boot, or zeros if unknown."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def is_of_one_machine(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Return whether the type of the file system of `path` allows only one running kernel to have it mounted.

    False for network file systems, for unknown ones, and if the type cannot be determined.
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
