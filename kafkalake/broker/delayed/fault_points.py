"""The steps of delayed delivery between which tests kill a broker, see `transactions.fault_points`."""

from __future__ import annotations

from enum import Enum


class DelayedPoint(Enum):
    """A point that a broker reaches. The value names it to `KAFKALAKE_KILL_AT`."""

    BATCH_APPENDED = "delayed-batch-appended"
    """The log of the partition has the batch, and its records that wait are not handed in."""
    HAND_IN_JOURNALLED = "delayed-hand-in-journalled"
    """Records wait, and their producer is not answered."""
    INTENTS_JOURNALLED = "delayed-intents-journalled"
    """Intents are below the journal's watermark, and nothing has been sent to the targets."""
    TARGET_APPENDED = "delayed-target-appended"
    """A target has its records, and the journal does not say so."""
    FINISHED_JOURNALLED = "delayed-finished-journalled"
    """The journal says that records wait no longer."""
    CARRIED = "delayed-carried"
    """Records of old segments are at the journal's end too, and the segments are there."""
    TRIMMED = "delayed-trimmed"
    """The old segments are gone."""
