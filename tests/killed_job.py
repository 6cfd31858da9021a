"""A job in a process of its own that ends itself with SIGKILL at a point that jobs name (`kafkalake.jobs.frame.fault_point`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_KILL_AT = """
import importlib, os, signal, sys
from kafkalake.jobs import frame

def die(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

frame.on_fault_point = die
sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[3:]))
"""


def run_killed_at(point: str, module: str, lake: Path) -> None:
    """Run `main` of a job's module on a lake; fails where it does not come to `point`."""
    dead = subprocess.run([sys.executable, "-c", _KILL_AT, module, point, "--lake", str(lake)], capture_output=True)
    assert dead.returncode == -9, dead.stderr
