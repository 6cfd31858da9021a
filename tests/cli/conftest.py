"""Fixtures of the command line's tests; see `command_line.py`."""

from command_line import kafkalake, on, process

__all__ = ["kafkalake", "on", "process"]
