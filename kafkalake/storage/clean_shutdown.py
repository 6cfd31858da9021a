"""`clean-shutdown`: the note of a broker that has closed all its logs in order, with the broker epoch that it had then.

A broker that registers with that epoch as its previous one proves that it lost no record since, so that it stays eligible to lead
(KIP-966). The note is taken away before the first log is opened, so a broker that is killed later has none.

    magic "KLCS", CRC32C of the rest (uint32), broker epoch int64
"""

from __future__ import annotations

import logging
import struct

from crc32c import crc32c

from kafkalake.storage.files import Files, read_file, replace_file

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_FILE = "clean-shutdown"
NO_EPOCH = -1
_NOTE = struct.Struct("<4sIq")
_EPOCH = struct.Struct("<q")
_MAGIC = b"KLCS"


def note_clean_shutdown(files: Files, directory: str, broker_epoch: int) -> None:
    """Note durably in the broker's directory that all its logs were closed in order. Raise `OSError` if I/O fails."""
    body = _EPOCH.pack(broker_epoch)
    note = _NOTE.pack(_MAGIC, crc32c(body), broker_epoch)
    replace_file(files, f"{directory}/{CLEAN_SHUTDOWN_FILE}", note, sync=True)


def take_clean_shutdown(files: Files, directory: str) -> int:
    """Remove the note durably and return its broker epoch, -1 without one or if it is damaged.

    Raise `OSError` if it cannot be removed: no log may be opened then, because the note would outlive the order that it proves.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return NO_EPOCH
    except OSError as error:  # it proves nothing
        logger.warning("the note of a clean shutdown cannot be read: file=%s error=%s", path, error)
        data = b""
    files.unlink(path)
    files.sync_directory(directory)
    return _decode(data)


def _decode(data: bytes) -> int:
    if len(data) != _NOTE.size:
        return NO_EPOCH
    magic, checksum, epoch = _NOTE.unpack(data)
    return int(epoch) if magic == _MAGIC and checksum == crc32c(_EPOCH.pack(epoch)) else NO_EPOCH
