"""The temporary file to which a follower copies a sealed segment of its leader, piece by piece, until it is whole."""

from __future__ import annotations

import contextlib

from kafkalake.buffers import Buffer
from kafkalake.storage.files import Files, write_all
from kafkalake.storage.log_access import LogAccess
from kafkalake.storage.replica_read import SegmentRef
from kafkalake.storage.segment_names import DATA_SUFFIX, file_name


class SegmentCopy:
    """A segment of a generation, of which the first `position` bytes are copied. `segment`: the whole, None before the first bytes.

    What an earlier process has left of the file is not used. Methods block on I/O and raise `KafkaStorageError`.
    """

    def __init__(self, access: LogAccess, base_offset: int, generation: int) -> None:
        self._access = access
        self.path = f"{access.directory}/{file_name(base_offset, DATA_SUFFIX, generation)}.copy.tmp"
        self.base_offset = base_offset
        self.generation = generation
        self.position = 0
        self.segment: SegmentRef | None = None

    def write(self, data: Buffer, segment: SegmentRef) -> None:
        """Append bytes of a segment to the file."""
        with self._access.guarded("copy"):
            self._access.check_open()
            self._write(self._access.files, data)
        self.segment = segment
        self.position += len(data)

    def _write(self, files: Files, data: Buffer) -> None:
        descriptor = files.open(self.path, write=True, create=True)
        try:
            if not self.position:
                files.truncate(descriptor, 0)
            write_all(files, descriptor, data, self.position)
        finally:
            files.close(descriptor)

    def remove(self) -> None:
        """Remove the file, if it is there."""
        with contextlib.suppress(OSError):
            self._access.files.unlink(self.path)
