"""The Delta tables written by jobs: `job_runs` (steps of jobs) and `lag` (measurements of the lag report).

An append adds one file. Once there are `FILES_MAX` small files they are joined, so that a job that runs every minute leaves few
files. `forget_before` drops old rows. A table is created by the first job that writes to it.

A lake of many groups has hundreds of millions of rows in `lag`, so no method has all rows in memory unless it returns them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from kafkalake.errors import KafkaStorageError
from kafkalake.metadata import paths
from kafkalake.metadata.tables.data_files import DataFile, TableDefinition, read_file
from kafkalake.metadata.tables.delta_table import OpenDeltaTable, TableChange
from kafkalake.metadata.tables.schemas import TIMESTAMP

FILES_MAX = 32
SMALL_FILE_ROWS = 200_000
JOINED_ROWS_MAX = 1_000_000

JOB_RUNS_SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("job", pa.string()),
        ("kafkalake_version", pa.string()),
        ("action", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("why", pa.string()),
        ("outcome", pa.string()),
        ("before", pa.map_(pa.string(), pa.string())),
        ("after", pa.map_(pa.string(), pa.string())),
        ("changed_table", pa.string()),
        ("changed_version", pa.int64()),
        ("started_at", TIMESTAMP),
        ("ended_at", TIMESTAMP),
    ]
)
"""The steps of a job, one row each, and one row with the action `run` for the whole. Times are UTC. `changed_version` is the
version of the Delta table `changed_table` with the result of the step."""

LAG_SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("measured_at", TIMESTAMP),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),
        ("committed_at", TIMESTAMP),
        ("log_start_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("lag", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("rate_in", pa.float64()),
        ("rate_out", pa.float64()),
        ("catch_up_seconds", pa.float64()),
        ("lost", pa.int64()),
    ]
)
"""The lag of a group in a partition. Offsets and `lag` are in records, rates in records per second. Null: not known."""

_DEFINITIONS = {
    paths.JOB_RUNS: TableDefinition(JOB_RUNS_SCHEMA, history="interval 7 days", expendable=True),
    paths.LAG: TableDefinition(LAG_SCHEMA, history="interval 1 days", expendable=True),
}
_TIME_COLUMN = {paths.JOB_RUNS: "ended_at", paths.LAG: "measured_at"}


def exists(lake: Path, name: str) -> bool:
    """Return whether a job has created the table."""
    return (paths.table_path(lake, name) / "_delta_log").is_dir()


class JobTable:
    """One of `paths.JOB_TABLES`, created if missing, unless it is only read. Not thread-safe."""

    def __init__(self, lake: Path, name: str, *, create: bool = True) -> None:
        """Raise `LakeError` if the table can be neither opened nor created."""
        self._name = name
        self._definition = _DEFINITIONS[name]
        self._table = OpenDeltaTable(paths.table_path(lake, name), self._definition, create=create)

    @property
    def version(self) -> int:
        return self._table.version

    def append(self, rows: pa.Table) -> int:
        """Add rows of the table's schema and return the new version. Raise `KafkaStorageError` if the commit fails."""
        self._table.refresh()
        self._table.commit_decided(lambda: self._appending(rows))
        return self._table.version

    def rows(
        self,
        since_ms: int | None = None,
        columns: list[str] | None = None,
        matching: pads.Expression | None = None,
    ) -> pa.Table:
        """Return the rows from a time (ms since 1970, UTC) on, or all, that are `matching`, unordered.

        Raise `KafkaStorageError` on read errors.
        """
        self._table.refresh()
        files = [str(self._table.path / file.path) for file in self._table.files()]
        wanted = matching
        if since_ms is not None:
            moment = pa.scalar(datetime.fromtimestamp(since_ms / 1000, UTC), TIMESTAMP)
            recent = pads.field(_TIME_COLUMN[self._name]) >= moment
            wanted = recent if matching is None else recent & matching
        try:
            dataset = pads.dataset(files, schema=self._definition.schema, format="parquet")
            return dataset.to_table(columns=columns, filter=wanted)
        except (OSError, pa.ArrowException) as error:
            raise KafkaStorageError(f"cannot read {self._table.path}: {error}") from error

    def forget_before(self, time_ms: int) -> int:
        """Drop rows older than a time and return their number. Raise `KafkaStorageError` if the commit fails.

        Only files with older and newer rows are read.
        """
        self._table.refresh()
        dropped = 0
        column, moment = _TIME_COLUMN[self._name], datetime.fromtimestamp(time_ms / 1000, UTC)

        def change() -> TableChange | None:
            nonlocal dropped
            dropped, replaced, kept = 0, [], []
            for file in self._table.files():
                times = self._times(file)
                if times is not None and times[0] >= moment:
                    continue
                stays = self._definition.schema.empty_table()
                if times is None or times[1] >= moment:
                    rows = read_file(self._table.path, self._definition, file)
                    stays = rows.filter(pc.greater_equal(rows.column(column), pa.scalar(moment, TIMESTAMP)))
                if stays.num_rows < file.records:
                    dropped += file.records - stays.num_rows
                    replaced.append(file)
                    kept.append(stays)
            return TableChange(add=kept, remove=replaced) if replaced else None

        self._table.commit_decided(change)
        return dropped

    def _times(self, file: DataFile) -> tuple[datetime, datetime] | None:
        """Return the oldest and the newest time of a file's rows, or None if its footer does not say them.

        Raise `KafkaStorageError` if it cannot be read.
        """
        try:
            footer = pq.read_metadata(self._table.path / file.path)
        except (OSError, pa.ArrowException) as error:
            raise KafkaStorageError(f"cannot read {self._table.path / file.path}: {error}") from error
        column = footer.schema.names.index(_TIME_COLUMN[self._name])
        parts = [footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups)]
        if not parts or not all(part is not None and part.has_min_max for part in parts):
            return None
        return min(part.min for part in parts), max(part.max for part in parts)

    def maintain(self) -> None:
        """Remove log entries and files needed only by versions past retention. Raise `KafkaStorageError` if that fails."""
        self._table.maintain()

    def _appending(self, rows: pa.Table) -> TableChange:
        joined = self._joined()
        added = pa.concat_tables([rows.cast(self._definition.schema), *(self._table.rows(file) for file in joined)])
        return TableChange(add=[added.combine_chunks()], remove=joined)

    def _joined(self) -> list[DataFile]:
        """Return small files to join with the new one, if there are too many of them."""
        small = [file for file in self._table.files() if file.records < SMALL_FILE_ROWS]
        if len(small) < FILES_MAX:
            return []
        chosen, total = [], 0
        for file in sorted(small, key=lambda file: file.records):
            total += file.records
            if total > JOINED_ROWS_MAX:
                break
            chosen.append(file)
        return chosen
