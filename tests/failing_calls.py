"""Calls of the system that fail in a running process: writes, also short ones, fsyncs, renames, openings and reads of a directory.

`failing_calls.c` does it, in each process that is started with `FailingCalls.environment`: in Python, Arrow and Delta's writer
alike. It needs a C compiler.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path

from waiting import wait_until

SOURCE = Path(__file__).with_suffix(".c")
_CONTROL = struct.Struct("4i")
_NEVER = 0


class Kind(IntFlag):
    """The kinds of calls, as in `failing_calls.c`."""

    WRITE = 1
    SYNC = 2
    NAME = 4
    REMOVE = 8
    TRUNCATE = 16
    CREATE = 32
    READ = 64

    CHANGE = WRITE | SYNC | NAME | REMOVE | TRUNCATE | CREATE
    ANY = CHANGE | READ


class FailingCalls:
    """The faults of the processes that have its `environment`, for files below `files`. None fails before `fail`."""

    def __init__(self, directory: Path, files: Path) -> None:
        """`directory`: for the compiled library and the log. Raise `AssertionError` without a C compiler."""
        compiler = shutil.which("cc")
        assert compiler is not None, "these tests need a C compiler: apt-get install gcc libc6-dev"
        library, control, self.log = (directory / f"failing_calls.{suffix}" for suffix in ("so", "control", "log"))
        command = [compiler, "-O1", "-fPIC", "-shared", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        control.write_bytes(bytes(mmap.PAGESIZE))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "FAILING_DIRECTORY": str(files),
            "FAILING_CONTROL": str(control),
            "FAILING_LOG": str(self.log),
        }

    def fail(self, kinds: Kind, per_million: int, short_per_million: int = 0) -> None:
        """From now on let so many of a million calls of these kinds fail, and so many writes be short."""
        struct.pack_into("3i", self._control, 0, per_million, short_per_million, kinds)

    def stop(self) -> None:
        """Let no call fail any more."""
        self.fail(Kind(0), _NEVER)

    def injected(self) -> int:
        """Return the number of faults so far."""
        return int(_CONTROL.unpack_from(self._control)[3])

    def wait_for(self, more: int) -> None:
        """Wait until so many further faults have come."""
        wanted = self.injected() + more
        wait_until(lambda: self.injected() >= wanted, lambda: f"{self.injected()} faults of {wanted}")
