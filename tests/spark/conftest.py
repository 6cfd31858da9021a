"""Fixtures of the tests of a lake as a catalogue; see `lake_catalog.py`."""

from lake_catalog import broker, clicks, session, sql

__all__ = ["broker", "clicks", "session", "sql"]
