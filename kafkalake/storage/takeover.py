"""Takes over the log of a broker that may still run, so that its further writes go to unlinked files.

The old broker holds open the files that it writes in place: the last segment, its indexes, and `state`. Each is replaced by a
copy, so its descriptors refer to unlinked files from then on. The log is then recovered from the copies as after a kill, the
last segment is sealed, and a new leader epoch begins in the next one.
"""

from __future__ import annotations

from pathlib import Path

from kafkalake.storage.files import Files, read_all, write_all
from kafkalake.storage.log import Log
from kafkalake.storage.segment_names import SUFFIXES, parse_name
from kafkalake.storage.state import STATE_FILE

_CHUNK_BYTES = 8 << 20
_COPY = ".tmp"


def take_over_files(directory: Path, files: Files) -> None:
    """Replace the files that the log's last owner may still write to by copies. Call it before opening the log.

    Raise `OSError` if I/O fails.
    """
    for name in _written_in_place(directory, files):
        _replace_by_copy(files, str(directory / name))
    if directory.exists():
        files.sync_directory(str(directory))


def begin_leadership(log: Log) -> None:
    """Seal the last owner's segment of an open log and begin a new leader epoch. Raise `KafkaStorageError` if I/O fails."""
    log.take_over(log.leader_epoch + 1)


def _written_in_place(directory: Path, files: Files) -> list[str]:
    """Return the names of the files that the log's last owner may still write to: its last segment's, and `state`."""
    names = sorted(files.list(str(directory))) if directory.exists() else []
    found = {name: parsed for name in names if (parsed := parse_name(name)) is not None and parsed.suffix in SUFFIXES}
    last = max((parsed.base_offset for parsed in found.values()), default=-1)
    of_last = [name for name, parsed in found.items() if parsed.base_offset == last and not parsed.generation]
    return [*of_last, *(name for name in names if name == STATE_FILE)]


def _replace_by_copy(files: Files, path: str) -> None:
    source = files.open(path)
    try:
        target = files.open(path + _COPY, write=True, create=True)
        try:
            files.truncate(target, 0)
            position = 0
            while chunk := read_all(files, source, _CHUNK_BYTES, position):
                write_all(files, target, chunk, position)
                position += len(chunk)
            files.sync(target)
        finally:
            files.close(target)
    finally:
        files.close(source)
    files.rename(path + _COPY, path)
