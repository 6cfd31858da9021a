"""Kills the broker at a named point, so that tests can crash it reliably between two steps.

`KAFKALAKE_KILL_AT` names a file that is read at each point: `NAME` or `NAME:COUNT` (the COUNT-th time since the content changed) of
a `FaultPoint`, here or in `staged`. Without the variable a point costs a call of an empty function.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

KILL_AT = "KAFKALAKE_KILL_AT"


def kill_as_asked(environment: Mapping[str, str]) -> Callable[[Enum], None]:
    """Return the function to call at each point."""
    path = environment.get(KILL_AT)
    return _KillAt(Path(path)) if path else lambda point: None


class _KillAt:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._wanted = ""
        self._reached = 0

    def __call__(self, point: Enum) -> None:
        wanted = self._path.read_text()
        if wanted != self._wanted:
            self._wanted, self._reached = wanted, 0
        name, _, count = wanted.partition(":")
        if name == point.value:
            self._reached += 1
            if self._reached == int(count or 1):
                os.kill(os.getpid(), signal.SIGKILL)
