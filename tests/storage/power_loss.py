"""A disk that forgets what was not forced to it, as one does whose power fails."""

from __future__ import annotations

import os
from random import Random
from typing import Any

from kafkalake.storage.files import RealFiles


class ForgetfulFiles(RealFiles):
    """Real files that know what would be left of them. `lose_power` then makes it so."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._before: dict[str, bytes | None] = {}
        """By path: what was on the disk before the changes that were not forced to it; None: no file."""

    def _changing(self, path: str) -> None:
        if path not in self._before:
            try:
                with open(path, "rb") as file:
                    self._before[path] = file.read()
            except FileNotFoundError:
                self._before[path] = None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if create and not os.path.exists(path):
            self._changing(path)
        descriptor = super().open(path, write=write, create=create)
        self._paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: Any, position: int) -> int:
        self._changing(self._paths[descriptor])
        return super().write(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._changing(self._paths[descriptor])
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._before.pop(self._paths[descriptor], None)

    def rename(self, source: str, target: str) -> None:
        self._changing(target)
        super().rename(source, target)
        if self._before.pop(source, None) is None:
            self._before.setdefault(target, None)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._before.pop(path, None)

    def lose_power(self, random: Random) -> None:
        """Leave of each file that was changed something between what was on the disk and what is in memory."""
        for path, before in self._before.items():
            try:
                with open(path, "rb") as file:
                    after = file.read()
            except FileNotFoundError:
                continue
            left = _between(before, after, random)
            if left is None:
                os.unlink(path)
            else:
                with open(path, "wb") as file:
                    file.write(left)
        self._before.clear()


def _between(before: bytes | None, after: bytes, random: Random) -> bytes | None:
    choice = random.randrange(4)
    if choice == 0:
        return before
    if choice == 1:
        return after
    before = before or b""
    kept = next((n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
    kept = random.randrange(min(kept, len(after)), len(after) + 1)
    left = after[:kept] + before[kept:]
    return left if choice == 2 else left.ljust(len(after), b"\0")  # the length was written, the blocks were not
