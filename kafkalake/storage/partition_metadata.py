"""`partition.metadata`: which topic a partition's directory belongs to.

A directory is named after its topic, and a name is no identity: a topic that is created again has the name, and the directory, of
the one before. The file has Kafka's own name and format:

    version: 0
    topic_id: qLgPoSNLQmGwWbvXL1kcpQ

The file is written once, when the directory is made, and forced to the disk together with the directory's own name before
anything else is put there. A directory without it was made by kafkalake 0.1 (or its broker was killed while it made it); the next
broker that opens it writes it.
"""

from __future__ import annotations

import os
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
    """Return the topic's id; None where the bytes are not those of such a file."""
    found = _CONTENT.fullmatch(data.decode("ascii", "replace"))
    return decode_uuid(found[1]) if found else None


def read_topic_id(directory: str | Path, files: Files = REAL_FILES) -> UUID | None:
    """Return the id of the topic that a partition's directory belongs to; None where it does not say (a lake of 0.1).

    Raise `LakeError` where the file is damaged, `OSError` where it cannot be read.
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
    """Make the directory of a partition of that topic, or make sure that it is one; what is made is durable.

    Raise `InconsistentTopicIdError` where it belongs to another topic, `LakeError`, `OSError`.
    """
    make_durable_directory(files, directory)
    found = read_topic_id(directory, files)
    if found is None:
        # A directory that is there without the file may have been made just before a kill, and its name not forced.
        files.sync_directory(os.path.dirname(directory))
        replace_file(files, f"{directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(topic_id), sync=True)
    elif found != topic_id:
        raise InconsistentTopicIdError(
            f"{directory} belongs to topic id {encode_uuid(found)}, not to {encode_uuid(topic_id)}"
        )
