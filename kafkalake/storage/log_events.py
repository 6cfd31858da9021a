"""The events that a log reports of its segments."""

from __future__ import annotations

from typing import Protocol

from kafkalake.storage.sealed_segment import SealedSegment


class LogEvents(Protocol):
    """The receiver of a log's events. Each call comes in the thread that makes the change, with the log's lock held."""

    def segment_sealed(self, segment: SealedSegment) -> None:
        """Handle a newly sealed segment."""

    def segment_removed(self, base_offset: int, generation: int) -> None:
        """Handle a sealed segment that is no longer part of the log."""


class NoEvents:
    """The receiver of a log that nobody observes."""

    def segment_sealed(self, segment: SealedSegment) -> None:
        pass

    def segment_removed(self, base_offset: int, generation: int) -> None:
        pass
