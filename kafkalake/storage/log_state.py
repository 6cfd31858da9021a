"""The state of a log beside its segments: its offsets, producers, leader epochs and largest timestamp.

Owns the files `leader-epochs` and `<offset>.snapshot`. Changes need the log's lock, reads none.
"""

from __future__ import annotations

import logging

from kafkalake.errors import OffsetOutOfRangeError
from kafkalake.storage.active_segment import SegmentContent
from kafkalake.storage.append_group import AppendGroup
from kafkalake.storage.files import replace_file
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE, encode_leader_epochs
from kafkalake.storage.log_access import LogAccess
from kafkalake.storage.recovery import Recovered
from kafkalake.storage.replay import Replay, replay_epochs, replay_headers
from kafkalake.storage.replica_run import ReplicaRun
from kafkalake.storage.snapshot import Snapshot, Snapshots

logger = logging.getLogger(__name__)


class LogState:
    """The offsets are those of `Log`. `max_timestamp_offset`: base offset of the batch with `max_timestamp`."""

    def __init__(self, access: LogAccess, recovered: Recovered) -> None:
        self._access = access
        self._epochs_path = f"{access.directory}/{LEADER_EPOCHS_FILE}"
        self.was_cut = recovered.was_cut
        self._has_unsaved_epochs = False
        self._has_unforced_epochs = False
        self.load(recovered)

    def load(self, recovered: Recovered) -> None:
        """Begin with what recovery found."""
        state = recovered.state
        self.snapshots = Snapshots(self._access.directory, self._access.files, recovered.listing.snapshots)
        self.producers = recovered.producers
        self.epochs = recovered.epochs
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.high_watermark = min(state.high_watermark, state.log_end_offset)
        self.producers.advance_high_watermark(self.high_watermark)
        self.last_stable_offset = max(state.log_start_offset, self.producers.stable_offset(self.high_watermark))
        self.leader_epoch = state.leader_epoch
        self.max_timestamp = state.max_timestamp
        self.max_timestamp_offset = state.max_timestamp_offset
        self.takeover_offset = state.takeover_offset
        """The log end when this replica became the leader, 0 without a meaning. See `PartitionState`."""

    def appended(self, group: AppendGroup) -> None:
        """Count a group whose bytes are written."""
        self.log_end_offset = group.next_offset
        self._note_timestamp(group.max_timestamp, group.max_timestamp_offset)
        if group.leader_epoch > self.epochs.latest:
            self.epochs.assign(group.leader_epoch, group.base_offset)
            self.leader_epoch = max(self.leader_epoch, group.leader_epoch)
            self._save_epochs()
        elif self._has_unsaved_epochs:
            self._save_epochs()

    def copied(self, run: ReplicaRun) -> None:
        """Count a leader's messages whose bytes are written."""
        self.log_end_offset = run.next_offset
        self._note_timestamp(run.max_timestamp, run.max_timestamp_offset)
        if len(run.headers):
            replay_headers(run.headers, self.producers, 0, self._access.clock.now_ms())
        if run.leader_epoch > self.epochs.latest:
            replay_epochs(run.headers, self.epochs)
            self.leader_epoch = max(self.leader_epoch, run.leader_epoch)
            self._save_epochs()

    def extended(self, replay: Replay, content: SegmentContent) -> None:
        """Count a copied segment that continues the log, from which `replay` has collected. Raise `OSError` if I/O fails."""
        self.epochs.truncate_end(replay.base_offset)
        for epoch, start in replay.epochs.entries():
            self.epochs.assign(epoch, start)
        self.leader_epoch = max(self.leader_epoch, self.epochs.latest)
        self.producers, self.log_end_offset = replay.producers, content.next_offset
        self._note_timestamp(content.max_timestamp, content.max_timestamp_offset)
        self._save_epochs()
        self.save_snapshot()

    def _note_timestamp(self, timestamp: int, offset: int) -> None:
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset for a larger high watermark."""
        return max(self.last_stable_offset, self.producers.stable_offset(high_watermark))

    def advance_high_watermark(self, offset: int, last_stable_offset: int) -> None:
        """Make the records below `offset` visible in this process."""
        self.producers.advance_high_watermark(offset)
        self.high_watermark = offset
        self.last_stable_offset = last_stable_offset

    def move_start(self, offset: int) -> None:
        """Begin the log at `offset`."""
        self.log_start_offset = offset
        self.last_stable_offset = max(self.last_stable_offset, offset)

    def take_back_start(self, before: int) -> None:
        """Begin the log where it began before a start that could not be written."""
        self.log_start_offset = before
        self.last_stable_offset = max(before, self.producers.stable_offset(self.high_watermark))

    def begin_epoch(self, epoch: int) -> None:
        """Begin a newer leader epoch at the log end, as the leader. Its first record brings it to the file."""
        self.epochs.assign(epoch, self.log_end_offset)
        self.leader_epoch, self.takeover_offset = epoch, self.log_end_offset
        self._has_unsaved_epochs = self._has_unforced_epochs = True

    def force_epochs(self) -> None:
        """Force the leader epochs to disk, before more offsets count as on disk. Raise `OSError` if I/O fails."""
        if self._has_unforced_epochs:
            replace_file(self._access.files, self._epochs_path, encode_leader_epochs(self.epochs), sync=True)
            self._has_unsaved_epochs = self._has_unforced_epochs = False

    def forget_epochs_before_start(self) -> None:
        """Remove the leader epochs that ended before the log start."""
        if self.epochs.truncate_start(self.log_start_offset):
            self._save_epochs()

    def truncate(self, segment_base_offset: int, offset: int) -> None:
        """Remove leader epochs at and above `offset`, and the snapshots above the segment that is cut there."""
        self.snapshots.remove_above(segment_base_offset)
        self.truncate_epochs(offset)

    def lower_high_watermark(self, offset: int) -> None:
        """Show no record at or above `offset`, before they are removed."""
        self.high_watermark = min(self.high_watermark, offset)
        self.last_stable_offset = min(self.last_stable_offset, self.high_watermark)

    def truncate_epochs(self, offset: int) -> None:
        """Remove the leader epochs that began at or above `offset`."""
        if self.epochs.truncate_end(offset):
            self._save_epochs()

    def forget_all(self) -> None:
        """Remove all leader epochs and snapshots. Raise `OSError` if I/O fails."""
        self.snapshots.remove_above(-1)
        self.truncate_epochs(0)

    def save_snapshot(self) -> None:
        """Write the producers as of the log end. Raise `OSError` if I/O fails."""
        self.snapshots.save(
            Snapshot(self.log_end_offset, self.producers, self.max_timestamp, self.max_timestamp_offset)
        )

    def _save_epochs(self) -> None:
        """Write the leader epochs. A failure is only logged: the batch headers hold the same, and the next append tries again."""
        self._has_unsaved_epochs = self._has_unforced_epochs = True
        try:
            replace_file(self._access.files, self._epochs_path, encode_leader_epochs(self.epochs), sync=False)
            self._has_unsaved_epochs = False
        except OSError as error:
            logger.warning("leader epochs not written: file=%s error=%s", self._epochs_path, error)

    def out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        """Return the error of a read outside of the log."""
        return OffsetOutOfRangeError(f"offset {offset} is outside of [{self.log_start_offset}, {self.log_end_offset}]")
