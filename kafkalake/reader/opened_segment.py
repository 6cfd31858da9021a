"""Opens the segment of a slice, on this host, for the topic that was planned."""

from __future__ import annotations

import os
import socket

from kafkalake.errors import LakeError
from kafkalake.storage.partition_metadata import read_topic_id
from kafkalake.storage.segment_reader import FIRST_CHUNK_BYTES, SEGMENTS, SegmentReader
from kafkalake.uuid_text import encode_uuid


def open_segment(
    path: str, size: int = -1, *, topic_id: str = "", first_chunk_bytes: int = FIRST_CHUNK_BYTES
) -> SegmentReader:
    """Open the segment at `path` for one pass over its first `size` bytes (-1: all). Close it by using it in a `with`.

    Raise `LakeError` if this host cannot read it, or if its directory no longer belongs to topic `topic_id`.
    """
    try:
        reader = SEGMENTS.open(path, size, first_chunk_bytes=first_chunk_bytes)
    except OSError as error:
        raise LakeError(
            f"{path} cannot be read on host {socket.gethostname()}: {error.strerror}. Every executor must see the "
            "lake under the same path; where it does, retention or compaction has removed the segment since the "
            "query was planned"
        ) from None
    _check_topic(path, topic_id)
    return reader


def _check_topic(path: str, topic_id: str) -> None:
    """Raise `LakeError` if an opened file's directory names another topic: a later topic of the same name has the same paths.

    Called after the file is open, because a new directory names its topic before it gets any file.
    """
    if not topic_id:
        return
    directory = os.path.dirname(path)
    found = read_topic_id(directory)
    if found is not None and encode_uuid(found) != topic_id:
        raise LakeError(
            f"{directory} belongs to another topic since the query was planned: the topic was deleted and created again "
            f"(its id was {topic_id}, and is {encode_uuid(found)} now)"
        )
