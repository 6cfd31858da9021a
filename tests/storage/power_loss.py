"""A disk that forgets what was not forced to it, as one does whose power fails: contents of files, and names in directories."""

from __future__ import annotations

import os
import shutil
import stat
from random import Random
from typing import Any

from kafkalake.storage.files import RealFiles

SECTOR_BYTES = 512
"""A disk writes so many whole, or not at all."""


class ForgetfulFiles(RealFiles):
    """Real files that know what would be left of them. `lose_power` then makes it so.

    A file that was forced has its content, but its name only once the directory was forced too; the same goes for a directory.
    """

    def __init__(self) -> None:
        self._contents: dict[int, bytes] = {}
        """By number of the file: what is on the disk of those that were changed since."""
        self._names: dict[str, dict[str, int]] = {}
        """By directory: the names, and numbers of files, that are on the disk, of those that were changed since."""
        self._held: dict[int, int] = {}
        """A descriptor of each of these files: they can be read without a name, and no other gets their number."""

    def _hold(self, path: str) -> int:
        number = os.stat(path).st_ino
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY)
        return number

    def _naming(self, path: str) -> None:
        directory = os.path.dirname(path)
        if directory not in self._names:
            self._names[directory] = {name: self._hold(f"{directory}/{name}") for name in os.listdir(directory)}

    def _changing(self, descriptor: int) -> None:
        number = os.fstat(descriptor).st_ino
        if number not in self._held:
            self._hold(f"/proc/self/fd/{descriptor}")
        if number not in self._contents:
            self._contents[number] = self._content(number)

    def _content(self, number: int) -> bytes:
        descriptor = self._held[number]
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if create and not os.path.exists(path):
            self._naming(path)
        return super().open(path, write=write, create=create)

    def write(self, descriptor: int, data: Any, position: int) -> int:
        self._changing(descriptor)
        return super().write(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._changing(descriptor)
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._contents.pop(os.fstat(descriptor).st_ino, None)

    def rename(self, source: str, target: str) -> None:
        self._naming(source)
        self._naming(target)
        self._hold(source)
        super().rename(source, target)
        for directory in [each for each in self._names if each == source or each.startswith(f"{source}/")]:
            self._names[target + directory[len(source) :]] = self._names.pop(directory)

    def unlink(self, path: str) -> None:
        self._naming(path)
        super().unlink(path)

    def make_directory(self, path: str) -> None:
        missing = path
        while not os.path.isdir(missing):
            parent = os.path.dirname(missing)
            if os.path.isdir(parent):
                self._naming(missing)
            else:
                self._names[parent] = {}
            missing = parent
        super().make_directory(path)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self._names.pop(path, None)

    def lose_power(self, random: Random) -> None:
        """Leave of each file and each directory that was changed something between what was on the disk and what is in memory."""
        for number, before in self._contents.items():
            left = _between(before, self._content(number), random)
            with open(f"/proc/self/fd/{self._held[number]}", "wb") as file:
                file.write(left)
        for directory in sorted(self._names, reverse=True):
            if os.path.isdir(directory):  # it may be gone with the one that it was in
                self._leave_names(directory, random)
        self._let_go()
        self.__init__()  # type: ignore[misc]

    def __del__(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def _leave_directories(
        self, directory: str, before: dict[str, int], present: dict[str, int], random: Random
    ) -> dict[str, int]:
        """Take some renames of directories back. Return the names before without those of directories that are gone."""
        names = {number: name for name, number in present.items()}
        for name, number in sorted(before.items()):
            if present.get(name) == number or not stat.S_ISDIR(os.fstat(self._held[number]).st_mode):
                continue
            before = {each: of for each, of in before.items() if each != name}
            if number in names and name not in present and random.random() < 0.5:
                os.rename(f"{directory}/{names[number]}", f"{directory}/{name}")
                present[name] = present.pop(names[number])
            elif number not in names:
                continue
            now = next(each for each, of in present.items() if of == number)
            before[now] = number  # whether it moved is decided, it is not lost
        return before

    def _leave_names(self, directory: str, random: Random) -> None:
        before = self._names[directory]
        present = {name: os.stat(f"{directory}/{name}").st_ino for name in os.listdir(directory)}
        before = self._leave_directories(directory, before, present, random)
        for name in sorted(before.keys() | present.keys()):
            path, now = f"{directory}/{name}", present.get(name)
            number = random.choice((now, before.get(name)))
            if number == now:
                continue
            if now is not None:
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            if number is not None:
                with open(path, "wb") as file:
                    file.write(self._content(number))


def _between(before: bytes, after: bytes, random: Random) -> bytes:
    if len(before) == len(after) <= SECTOR_BYTES:
        return random.choice((before, after))
    choice = random.randrange(4)
    if choice == 0:
        return before
    if choice == 1:
        return after
    kept = next((n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
    kept = random.randrange(min(kept, len(after)), len(after) + 1)
    left = after[:kept] + before[kept:]
    return left if choice == 2 else left.ljust(len(after), b"\0")  # the length was written, the blocks were not
