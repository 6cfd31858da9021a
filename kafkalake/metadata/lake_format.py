"""The version of a lake's layout on disk, so that an older kafkalake refuses a newer lake with a clear message.

`metadata/format.json` has `format` (of the lake's files), `min_reader` and `min_writer` (the lowest format a program must support
to read and to change the lake) and `written_by`. A broker writes it at startup. A lake without the file is of version 0.1, which
has format 1 too.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalake.errors import LakeError
from kafkalake.metadata.disk import DISK

FORMAT = 1
"""The format written and supported by this version."""
MIN_READER = 1
MIN_WRITER = 1

_FILE = Path("metadata") / "format.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LakeFormat:
    """The content of the file."""

    format: int = 1
    min_reader: int = 1
    min_writer: int = 1
    written_by: str = "kafkalake 0.1"


def read_format(lake: Path) -> LakeFormat:
    """Return the format of a lake, the default if the file is missing or damaged. Raise `LakeError` if it cannot be read."""
    try:
        content = (lake / _FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return LakeFormat()
    except OSError as error:
        raise LakeError(f"cannot read {lake / _FILE}: {error.strerror or error}.") from error
    try:
        said = json.loads(content)
        return LakeFormat(
            int(said["format"]), int(said["min_reader"]), int(said["min_writer"]), str(said.get("written_by", "?"))
        )
    except (ValueError, KeyError, TypeError):
        logger.warning("%s is damaged; a broker that starts writes it anew", lake / _FILE)
        return LakeFormat()


def require_readable(lake: Path) -> None:
    """Raise `LakeError` if this version must not read the lake."""
    found = read_format(lake)
    if found.min_reader > FORMAT:
        raise _newer(lake, found, found.min_reader, "read")


def require_writable(lake: Path) -> None:
    """Raise `LakeError` if this version must not change the lake."""
    found = read_format(lake)
    if max(found.min_reader, found.min_writer) > FORMAT:
        raise _newer(lake, found, max(found.min_reader, found.min_writer), "change")


def write_format(lake: Path, version: str) -> None:
    """Record this version as the lake's writer unless it is recorded or the format is newer. Raise `LakeError` if that fails."""
    ours = LakeFormat(FORMAT, MIN_READER, MIN_WRITER, f"kafkalake {version}")
    found = read_format(lake)
    if found.format > FORMAT or (found == ours and (lake / _FILE).exists()):
        return
    try:
        DISK.replace(lake / _FILE, (json.dumps(asdict(ours)) + "\n").encode())
    except OSError as error:
        raise LakeError(f"cannot write {lake / _FILE}: {error.strerror or error}.") from error


def _newer(lake: Path, found: LakeFormat, needed: int, to_do: str) -> LakeError:
    return LakeError(
        f"the lake at {lake} was written by {found.written_by}: to {to_do} it takes a version of kafkalake that knows "
        f"format {needed}, this one knows {FORMAT}. Install a newer kafkalake."
    )
