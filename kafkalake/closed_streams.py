"""Standard output or error whose reader has gone, or whose disk is full."""

from __future__ import annotations

import os
from typing import TextIO


def silence(stream: TextIO) -> None:
    """Redirect a stream, and what it has buffered, to the null device, so that closing it at exit raises no error."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
    finally:
        os.close(null)
