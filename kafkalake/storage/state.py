"""`state`: the current offsets of a partition, 256 bytes that any process can read while the broker writes.

Two slots of 128 bytes are written in turn, each with its own checksum and an increasing sequence number. Readers use the newest
valid one. A torn write or read damages one slot, and the other holds the previous state.

    slot: magic "KLST", CRC32C of the rest (uint32), then little-endian, sequence number and the fields of
    `PartitionState`, 128 bytes in all

Written with pwrite, not through a memory map. Readers see it at once in the page cache anyway, a full disk is an error, not a
signal, and `open_files` bounds the descriptors, while maps would need a bound of their own.
"""

from __future__ import annotations

import errno
import logging
import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from kafkalake.errors import LakeError
from kafkalake.machine import boot_id as boot_id
from kafkalake.storage.files import REAL_FILES, Files, read_file, write_all
from kafkalake.storage.open_files import OpenFile, OpenFiles

logger = logging.getLogger(__name__)

STATE_FILE = "state"
SLOT_BYTES = 128
STATE_BYTES = 2 * SLOT_BYTES
_MAGIC = b"KLST"
_PREFIX = struct.Struct("<4sI")
_SLOT = struct.Struct("<qqqqqiqq???xqqqq16sq")
assert _PREFIX.size + _SLOT.size == SLOT_BYTES
_ATTEMPTS = 8
_DAMAGE = frozenset({errno.EIO, errno.EBADMSG, errno.ENODATA, errno.EUCLEAN})
"""The errors of sectors that cannot be read. Others, such as a lack of descriptors, say nothing about the file."""


class PartitionState(NamedTuple):
    """The state of a partition. Offsets are exclusive ends, except `log_start_offset`, the first readable one.

    active_base_offset: base offset of the active segment (or of the one that the next append creates).
    active_position: bytes of whole messages in that segment, 0 without a file.
    recovery_point: offsets below it are on disk, not only in the page cache.
    max_timestamp, max_timestamp_offset: largest timestamp (ms) ever appended and the base offset of the batch it is in; -1: none.
    active_created_ms: wall clock of the active segment's first append, 0: none.
    clean: the log was shut down cleanly, and nothing was written after this state.
    was_cut: records are gone that this replica may be counted for, and it is not known that the controller has heard of it.
    fsync_failed: an fsync has failed in this boot, and records at and above the recovery point may not be on disk, although a later
    one succeeded.
    boot_id: the kernel's boot id at the time of writing. The same boot has the same page cache.
    takeover_offset: the log end when this replica became the leader. While the high watermark is below it, the watermark of
    the leader before may have been larger. 0: it was not, as in files of earlier versions.
    """

    log_start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    log_end_offset: int = 0
    leader_epoch: int = -1
    active_base_offset: int = 0
    active_position: int = 0
    clean: bool = False
    was_cut: bool = False
    fsync_failed: bool = False
    recovery_point: int = 0
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    active_created_ms: int = 0
    boot_id: bytes = bytes(16)
    takeover_offset: int = 0


def encode_slot(state: PartitionState, sequence: int) -> bytes:
    """Return the 128 bytes of slot `sequence % 2`."""
    body = _SLOT.pack(sequence, *state)
    return _PREFIX.pack(_MAGIC, crc32c(body)) + body


def decode_slot(slot: bytes) -> tuple[int, PartitionState] | None:
    """Return the sequence number and state of a slot, None if its checksum fails."""
    if len(slot) != SLOT_BYTES:
        return None
    magic, checksum = _PREFIX.unpack_from(slot)
    body = slot[_PREFIX.size :]
    if magic != _MAGIC or checksum != crc32c(body):
        return None
    sequence, *fields = _SLOT.unpack_from(body)
    return sequence, PartitionState(*fields)


def decode_state(data: bytes) -> tuple[int, PartitionState] | None:
    """Return sequence number and state of the newest valid slot of a state file's bytes, None if there is none."""
    slots = [decode_slot(data[:SLOT_BYTES]), decode_slot(data[SLOT_BYTES:])]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot[0], default=None)


def read_state(path: str | Path) -> PartitionState:
    """Return the state of a partition, from any process, while its broker writes. `path`: the file or the partition's directory.

    Raise `LakeError` if there is no state file or no valid slot.
    """
    file = Path(path)
    if file.name != STATE_FILE:
        file /= STATE_FILE
    for _ in range(_ATTEMPTS):
        try:
            found = decode_state(read_file(REAL_FILES, str(file)))
        except FileNotFoundError:
            raise LakeError(f"{file}: no such file: this is no partition, or it has never been opened") from None
        if found is not None:
            return found[1]
    raise LakeError(f"{file}: neither slot has the right checksum")


def load_state(files: Files, directory: str, *, is_required: bool = False) -> tuple[int, PartitionState] | None:
    """Return the state with its sequence number, for the owner. None if the file is missing or has no valid slot.

    None also if its sectors cannot be read, at the second attempt either. is_required: raise `OSError` then, as of a replica, which
    would have to be copied again as a whole: segments before an unknown log start may be gone. Raise `OSError` if the error says
    nothing about the file.
    """
    path = f"{directory}/{STATE_FILE}"
    for is_last in (False, True):
        try:
            return decode_state(read_file(files, path))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _DAMAGE or (is_last and is_required):
                raise
            if is_last:  # recovered from the log, as for a damaged file
                logger.warning("a state that cannot be read is not used: file=%s error=%s", path, error)
    return None


class StateFile:
    """The state file of the log's owner. Each `write` replaces the older slot."""

    def __init__(self, path: str, open_files: OpenFiles, sequence: int = 0) -> None:
        self.path = path
        self._open_files = open_files
        self._sequence = sequence

    def write(self, state: PartitionState, *, sync: bool = False) -> OpenFile:
        """Publish `state` to readers, with `sync` also durably. Return the file, so that the caller can fsync it later.

        Raise `OSError` if I/O fails.
        """
        file = self._open_files.get(self.path, write=True, create=True)
        sequence = self._sequence + 1
        slot = encode_slot(state, sequence)
        write_all(self._open_files.files, file.descriptor, slot, SLOT_BYTES * (sequence % 2))
        self._sequence = sequence
        if sync:
            self._open_files.files.sync(file.descriptor)
        return file

    def trim(self) -> None:
        """Truncate the file to its two slots, or to 0 without a valid slot. Raise `OSError` if I/O fails."""
        file = self._open_files.get(self.path, write=True, create=True)
        keep = STATE_BYTES if self._sequence else 0
        if self._open_files.files.size(file.descriptor) > keep:
            self._open_files.files.truncate(file.descriptor, keep)
