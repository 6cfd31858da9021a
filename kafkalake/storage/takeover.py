"""Taking over the log of a broker that may still run: whatever it goes on writing lands in files that nobody reads.

It holds files open and writes into them in place: the last segment, its indexes, and `state`. Each is replaced by a copy, so its
descriptors point at files without a name from then on. The log is then recovered from the copies as after a kill, the last
segment is sealed, and a new leader epoch begins in the next one.
"""

from __future__ import annotations

from pathlib import Path

from kafkalake.storage.files import Files, read_all, write_all
from kafkalake.storage.log import Log
from kafkalake.storage.segment import SUFFIXES, parse_name
from kafkalake.storage.state import STATE_FILE

_CHUNK_BYTES = 8 << 20
_COPY = ".tmp"


def take_over_files(directory: Path, files: Files) -> None:
    """Before a log is opened: put copies in the places of the files that its last owner may still write to. Raise `OSError`."""
    for name in _written_in_place(directory):
        _replace_by_copy(files, str(directory / name))
    if directory.exists():
        files.sync_directory(str(directory))


def begin_leadership(log: Log) -> None:
    """After a log was opened: seal what the last owner wrote, and begin an epoch that it never had. Raise `KafkaStorageError`."""
    log.roll()
    log.begin_epoch(log.leader_epoch + 1)


def _written_in_place(directory: Path) -> list[str]:
    """Names of the files that the last owner of a log may still write to: those of its last segment, and `state`."""
    names = sorted(path.name for path in directory.iterdir()) if directory.exists() else []
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
