"""Stores the initial offsets of a stream in its checkpoint.

Spark requests the initial offsets again if a query dies before its first batch is done. `latest`, and times, would resolve
differently by then, and the records in between would be lost. The file has the format of Spark's Kafka source, so that a query that
changes its format from `kafka` to `kafkalake` continues with its checkpoint.

Source: Spark, `KafkaSourceInitialOffsetWriter`: a zero byte, "v1", the offsets as JSON.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from urllib.parse import quote

import pyarrow
import pyarrow.fs

from kafkalake.errors import LakeError

_FILE = "0"
_HEADER = b"\0v1\n"


def initial_offsets(
    location: str, first: Callable[[], dict[str, object]], *, is_repeatable: bool = False
) -> dict[str, object]:
    """Return the initial offsets from the source's part of the checkpoint, at `location`, or else those of `first`, and store them.

    `location` is empty if Spark does not give it (without kafkalake's jar). Nothing is stored then, nor if pyarrow cannot access
    the file system (such as `s3a:`) and `first` always returns the same (`is_repeatable`). Raise `LakeError` if the
    file has other content, or if offsets that would change later cannot be stored.
    """
    if not location:
        return first()
    try:
        system, path = _file_system(location)
    except (pyarrow.ArrowException, OSError) as error:
        if is_repeatable:
            return first()
        raise LakeError(
            f"the first offsets cannot be kept in the checkpoint, which is at {location} ({error}), and a query that dies before "
            "its first batch is done would begin elsewhere: start it at earliest or at given offsets, or move the checkpoint"
        ) from error
    file = f"{path}/{_FILE}"
    if system.get_file_info(file).type == pyarrow.fs.FileType.File:
        with system.open_input_file(file) as opened:
            return _decoded(opened.read(), file)
    found = first()
    system.create_dir(path, recursive=True)
    partial = f"{path}/.{_FILE}.{uuid.uuid4()}.tmp"
    with system.open_output_stream(partial) as stream:
        stream.write(_HEADER + json.dumps(found, separators=(",", ":")).encode())
    system.move(partial, file)
    return found


def _file_system(location: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return file system and path. Spark gives the path as Hadoop displays it: unescaped, whatever its scheme."""
    scheme, colon, rest = location.partition(":")
    if not colon or scheme == "file":
        path = (rest if colon else location).removeprefix("//")
        return pyarrow.fs.LocalFileSystem(), path
    system, path = pyarrow.fs.FileSystem.from_uri(f"{scheme}:{quote(rest, safe='/:@')}")
    return system, path


def _decoded(data: bytes, file: str) -> dict[str, object]:
    version, _, text = data.removeprefix(b"\0").partition(b"\n")
    try:
        if version != b"v1":
            raise ValueError(version)
        found: dict[str, object] = json.loads(text)
    except ValueError as error:
        raise LakeError(f"{file} holds no first offsets of a stream: {data[:80]!r}") from error
    return found
