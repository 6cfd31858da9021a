"""A broker whose disk hangs where a test says: `python broker_that_hangs.py FLAG PART ARGUMENTS...`.

While the file FLAG is there, fsync and fdatasync of files with PART in their path do not return. ARGUMENTS are the command line's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def hanging_command(command: Sequence[str], flag: Path, part: str) -> list[str]:
    """The command that starts a broker, so that it starts one that hangs."""
    begin = list(command).index("-m")
    return [*command[:begin], __file__, str(flag), part, *command[begin + 2 :]]


def hanging(sync: Callable[[int], None], flag: str, part: str) -> Callable[[int], None]:
    """`sync`, which waits as long as the test says."""

    def wait_and_sync(descriptor: int) -> None:
        while os.path.exists(flag) and part in os.readlink(f"/proc/self/fd/{descriptor}"):
            time.sleep(0.05)
        sync(descriptor)

    return wait_and_sync


if __name__ == "__main__":
    _, flag, part, *arguments = sys.argv
    os.fsync, os.fdatasync = hanging(os.fsync, flag, part), hanging(os.fdatasync, flag, part)
    sys.argv = ["kafkalake", *arguments]
    from kafkalake.cli.main import main

    main()
