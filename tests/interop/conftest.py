"""Fixtures of the tests with groups; see `group_processes.py`."""

from group_processes import group, member

__all__ = ["group", "member"]
