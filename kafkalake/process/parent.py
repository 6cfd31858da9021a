"""Has a child process end with its parent, also where the parent is killed and can do nothing about it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_VARIABLE = "KAFKALAKE_PARENT_PID"
"""Environment variable with the id of the process with which this one shall end."""
_PR_SET_PDEATHSIG = 1


def environment_of_child() -> dict[str, str]:
    """Return the environment for a child that calls `end_with_parent`."""
    return {**os.environ, _VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Have the kernel end this process (SIGTERM) with its parent, if the parent requested it. Call it when the process starts."""
    parent = os.environ.get(_VARIABLE, "")
    if not parent.isdecimal() or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # the parent died before the call
        os.kill(os.getpid(), signal.SIGTERM)
