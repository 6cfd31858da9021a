"""The cluster id of a lake: created by the first broker, stored in `metadata/cluster-id`, 22 characters as in Kafka."""

from __future__ import annotations

import logging
import re
import uuid
from pathlib import Path

from kafkalake.errors import LakeError
from kafkalake.metadata.disk import DISK
from kafkalake.metadata.paths import METADATA_DIRECTORY
from kafkalake.uuid_text import encode_uuid

_FILE = "cluster-id"
_ID = re.compile(r"[A-Za-z0-9_-]{22}")

logger = logging.getLogger(__name__)


def known_cluster_id(lake: Path) -> str | None:
    """Return the id, or None before the first broker or if the file is damaged. Raise `LakeError` if it cannot be read."""
    try:
        text = (lake / METADATA_DIRECTORY / _FILE).read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LakeError(f"cannot read the cluster id of {lake}: {error.strerror or error}.") from error
    return text if _ID.fullmatch(text) else None


def cluster_id(lake: Path) -> str:
    """Return the id, creating it if there is none or the file is damaged (empty after a power loss, say).

    Raise `LakeError` if it cannot be read or written.
    """
    known = known_cluster_id(lake)
    if known is not None:
        return known
    path = lake / METADATA_DIRECTORY / _FILE
    made = encode_uuid(uuid.uuid4())
    if path.exists():
        logger.warning("the cluster id was damaged and is made anew file=%s cluster_id=%s", path, made)
    try:
        DISK.replace(path, made.encode())
    except OSError as error:
        raise LakeError(f"cannot write the cluster id {path}: {error.strerror or error}.") from error
    return made
