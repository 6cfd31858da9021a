"""`partition.metadata`: the id of the topic that owns a partition's directory.

A directory is named after its topic, but a recreated topic reuses the name and the directory of the deleted one. The file has
Kafka's own name and format:

    version: 0
    topic_id: qLgPoSNLQmGwWbvXL1kcpQ

The file is written once, when the directory is created, and fsynced together with the directory's own name before any other file
is created there. A directory without it was created by kafkalake 0.1 (or its broker was killed during creation). The next
broker that opens it writes the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

from kafkalake.errors import InconsistentTopicIdError, LakeError
from kafkalake.storage.files import REAL_FILES, Files, make_durable_directory, read_file, replace_file
from kafkalake.uuid_text import decode_uuid, encode_uuid

PARTITION_METADATA_FILE = "partition.metadata"
_CONTENT = re.compile(r"version:\s*0\s+topic_id:\s*([A-Za-z0-9_-]{22})\s*")


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Return the file's bytes."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def decode_partition_metadata(data: bytes) -> UUID | None:
    """Return the topic's id, None if the bytes are damaged."""
    found = _CONTENT.fullmatch(data.decode("ascii", "replace"))
    return decode_uuid(found[1]) if found else None


def read_topic_id(directory: str | Path, files: Files = REAL_FILES) -> UUID | None:
    """Return the id of the topic that owns a partition's directory, None without the file (a lake of 0.1).

    Raise `LakeError` if the file is damaged, `OSError` if it cannot be read.
    """
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    try:
        topic_id = decode_partition_metadata(read_file(files, path))
    except FileNotFoundError:
        return None
    if topic_id is None:
        raise LakeError(
            f"{path}: damaged, so nobody knows which topic the records beside it belong to. Write the two lines "
            "`version: 0` and `topic_id: ...` into it, with the id that `kafkalake topics describe` shows, "
            "or move the directory away."
        )
    return topic_id


def claim_directory(files: Files, directory: str, topic_id: UUID) -> None:
    """Create the directory of a partition of that topic durably, or check that the topic owns the existing one.

    Raise `InconsistentTopicIdError` if another topic owns it, `LakeError` if the file is damaged, `OSError` if I/O fails.
    """
    found = read_topic_id(directory, files)
    if found is None:
        make_durable_directory(files, directory)
        replace_file(files, f"{directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(topic_id), sync=True)
    elif found != topic_id:
        raise InconsistentTopicIdError(
            f"{directory} belongs to topic id {encode_uuid(found)}, not to {encode_uuid(topic_id)}"
        )
