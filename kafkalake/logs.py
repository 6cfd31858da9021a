"""What the broker says on stderr: one line for what an operator wants to know.

    2026-01-31T12:00:00.123Z INFO broker.topic_admin topic created topic=clicks partitions=4

Messages are a few words, then `key=value`; values with spaces are quoted by who writes them. A traceback follows its line.
"""

from __future__ import annotations

import logging
import sys
import time


class _Lines(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(shortname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.shortname = record.name.removeprefix("kafkalake.")
        return super().format(record)


LEVELS = ("debug", "info", "warning", "error")


def write_to_stderr(level: str) -> None:
    """Send kafkalake's log lines of `level` (debug, info, warning, error) and above to stderr, warnings of libraries too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("kafkalake").setLevel(level.upper())
