"""The Delta table `cluster`, in which the cluster's image of a version is the table's version of the same number.

A commit is put-if-absent of exactly the next version. It is never repeated after a lost race, because it was decided on an image
that is no longer the newest. Only files of parts that have changed are written and read (`cluster_rows`).

An image is returned to a broker only once it is on the disk, whoever committed it. What it acts on is therefore still there after a
loss of power.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from kafkalake.cluster.control_store import require_next
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import KafkaStorageError, LakeError, StaleImageError
from kafkalake.metadata.tables.cluster_rows import Part, changed_parts, columns_of, with_parts
from kafkalake.metadata.tables.data_files import DataFile, TableDefinition, read_file
from kafkalake.metadata.tables.delta_table import CommitConflict, OpenDeltaTable, TableChange


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last commit tried, and its id in the table's log."""

    image: ClusterImage
    commit_id: str


class DeltaClusterTable:
    """`ControlStore` on Delta. open_table: returns the table, or None if the lake has none and is only read."""

    def __init__(self, open_table: Callable[[], OpenDeltaTable | None], lock: threading.Lock) -> None:
        self._open_table = open_table
        self._lock = lock
        self._image = ClusterImage("")
        self._files: dict[Part, list[DataFile]] = {}
        """The files that `_image` was made of."""
        self._attempt: _Attempt | None = None

    def load(self) -> ClusterImage:
        with self._lock:
            table = self._open_table()
            if table is not None:
                table.refresh()
                self._follow(table)
            return self._image

    def load_newer(self, version: int) -> ClusterImage | None:
        with self._lock:
            table = self._open_table()
            if table is not None:
                table.refresh_if_outdated()
                self._follow(table)
            return self._image if self._image.version > version else None

    def newest(self) -> ClusterImage:
        """Return the newest version, which a loss of power may still take back: for readers, who decide nothing by it.

        Raise `KafkaStorageError` if it cannot be read.
        """
        with self._lock:
            table = self._open_table()
            if table is not None:
                table.refresh_if_outdated()
                self._read(table)
            return self._image

    def commit(self, image: ClusterImage) -> None:
        with self._lock:
            table = self._open_table()
            if table is None:
                raise KafkaStorageError("the lake has no table `cluster`: it was opened to be read")
            table.refresh_if_outdated()
            self._follow(table)
            if self._has_committed(table, image):
                return
            require_next(image, table.version)
            self._commit(table, image)

    def _commit(self, table: OpenDeltaTable, image: ClusterImage) -> None:
        changed = changed_parts(self._image, image)
        removed = [file for part in changed for file in self._files.get(part, ())]
        self._attempt = _Attempt(image, uuid.uuid4().hex)
        try:
            change = TableChange(list(changed.values()), removed)
            table.commit(change, durable=True, commit_id=self._attempt.commit_id)
        except CommitConflict as error:
            raise StaleImageError(f"another commit has made version {image.version} of the cluster") from error
        if table.version == image.version:  # else another commit has already followed
            self._files, self._image = _files_by_part(table), image

    def _has_committed(self, table: OpenDeltaTable, image: ClusterImage) -> bool:
        """Return whether the last attempt was to commit this image, and has succeeded although it seemed to fail."""
        attempt = self._attempt
        return attempt is not None and attempt.image is image and table.has_committed(attempt.commit_id, image.version)

    def _follow(self, table: OpenDeltaTable) -> None:
        """Bring the image to the version of the table, durably. Raise `KafkaStorageError` if that fails."""
        table.force()
        self._read(table)

    def _read(self, table: OpenDeltaTable) -> None:
        if table.version == self._image.version:
            return
        files = _files_by_part(table)
        changed = [part for part in files.keys() | self._files.keys() if files.get(part) != self._files.get(part)]
        try:
            parts = {part: _rows(table, part, files.get(part, ())) for part in sorted(changed)}
            self._files, self._image = files, with_parts(self._image, table.version, parts)
        except LakeError as error:
            raise KafkaStorageError(str(error)) from error


def _rows(table: OpenDeltaTable, part: Part, files: Iterable[DataFile]) -> pa.Table:
    definition = TableDefinition(columns_of(part.kind), history="")
    rows = [definition.schema.empty_table(), *(read_file(table.path, definition, file) for file in files)]
    return pa.concat_tables(rows)


def _files_by_part(table: OpenDeltaTable) -> dict[Part, list[DataFile]]:
    """Return the files of a table by their parts, one each unless a foreign writer has cut them."""
    found: dict[Part, list[DataFile]] = {}
    for file in sorted(table.files(), key=lambda file: file.path):
        found.setdefault(Part(file.partition["kind"], int(file.partition["bucket"])), []).append(file)
    return found
