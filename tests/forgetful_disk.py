"""A disk under Delta's tables that forgets what was not forced to it: contents of files, and names in directories."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from kafkalake.metadata.disk import Disk


class PowerLost(BaseException):
    """The machine stops here. No `Exception`, so that nothing handles it."""


class ForgetfulDisk(Disk):
    """Knows of `root`, whose own name is taken to be there, what would be left of it. `lose_power` makes it so.

    fails_at: the call, counted from now, at which `PowerLost` is raised; `on_call` is called before each.
    """

    def __init__(self, root: Path, aside: Path) -> None:
        self.root = root
        self.fails_at = -1
        self.on_call: Callable[[Path], None] = lambda path: None
        self._aside = aside
        """Links to all files that were forced or named, so that no number of a file is given to another."""
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        aside.mkdir(parents=True, exist_ok=True)

    def force(self, file: Path) -> None:
        self._count(file)
        self._contents[self._number(file)] = file.read_bytes()

    def force_directory(self, directory: Path) -> None:
        self._count(directory)
        self._names[directory] = {name: self._number(directory / name) for name in os.listdir(directory)}

    def rename(self, source: Path, target: Path) -> None:
        self._count(target)
        super().rename(source, target)
        if target.is_dir():
            for directory in [each for each in self._names if source in (each, *each.parents)]:
                self._names[target / directory.relative_to(source)] = self._names.pop(directory)

    def _count(self, path: Path) -> None:
        self.on_call(path)
        self.fails_at -= 1
        if self.fails_at == -1:
            raise PowerLost

    def _number(self, path: Path) -> int:
        number = path.stat().st_ino
        link = self._aside / str(number)
        if path.is_file() and not link.exists():
            os.link(path, link)
        return number

    def lose_power(self, random: Random) -> None:
        """Leave of every name and every file something between what was forced and what is there."""
        left: dict[Path, bytes | None] = {}
        self._leave(self.root, random, left)
        shutil.rmtree(self.root)
        self.root.mkdir()
        for path, content in left.items():
            if content is None:
                path.mkdir()
            else:
                path.write_bytes(content)
        shutil.rmtree(self._aside)
        self.__init__(self.root, self._aside)  # type: ignore[misc]
        for directory, _, files in os.walk(self.root):  # what was read from the disk at the next boot is on it
            for name in files:
                self.force(Path(directory) / name)
            self.force_directory(Path(directory))

    def _leave(self, directory: Path, random: Random, left: dict[Path, bytes | None]) -> None:
        forced = self._names.get(directory, {})
        present = {name: (directory / name).stat().st_ino for name in os.listdir(directory)}
        for name in sorted(forced.keys() | present.keys()):
            path = directory / name
            here = present.get(name)
            number = random.choice((here, forced.get(name)))
            if number is None:
                continue
            if number == here and path.is_dir():
                left[path] = None
                self._leave(path, random, left)
            elif number == here:
                left[path] = self._content(path.read_bytes(), self._contents.get(number), random)
            elif (self._aside / str(number)).exists():
                now = (self._aside / str(number)).read_bytes()
                left[path] = self._content(now, self._contents.get(number), random)

    @staticmethod
    def _content(now: bytes, forced: bytes | None, random: Random) -> bytes:
        if forced == now:
            return now
        kept = random.randrange(len(now) + 1)
        return random.choice((now, b"", now[:kept], now[:kept].ljust(len(now), b"\0"), bytes(len(now)), forced or b""))
