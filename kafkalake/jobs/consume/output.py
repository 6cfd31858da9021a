"""Writes a group's records together with their end offsets: both in one commit, or neither.

    Delta     `txn` of the commit: application `kafkalake-consume-<group>`, version = that of the previous commit plus one, so
              that Delta accepts only one of two runs that continue from the same commit; its `userMetadata` holds the offsets
    Parquet   each batch is a directory `batch=<n>` with the offsets in `_offsets.json`, renamed into place when complete

A run that dies before the commit leaves nothing visible to readers. After one that dies later, the next run starts behind it.
Records are on disk before `write` returns, because the group's offsets, committed then, must not outlive them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kafkalake.errors import LakeError, file_sentence
from kafkalake.jobs.consume.forced_output import force_commits, force_directory_of_files
from kafkalake.metadata.disk import DISK, Disk
from kafkalake.metadata.lock_file import open_lock_file, try_flock
from kafkalake.metadata.paths import local_path, why_no_delta_path
from kafkalake.reader.positions import from_json, to_json
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_METADATA_KEY = "kafkalakeConsume"
_HISTORY_COMMITS = 1_000
_OFFSETS_FILE = "_offsets.json"
_STAGING = "_staging-"
_BATCH = "batch"
_OWN_NAME = re.compile(rf"[_.]|{_BATCH}=\d+\Z")
_VERSIONS = 1 << 62
"""Versions of a group's commits start above this. kafkalake 0.1 used the sum of the offsets, which is smaller."""
Offsets = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition and the ids of the topics, in the format of `positions.to_json`."""


class ConsumedOutput(Protocol):
    """The output of one group."""

    def offsets(self, committed: Mapping[TopicPartition, int]) -> Offsets | None:
        """Return the end offsets of the output's records, or None if it has none of the group. `committed`: the group's offsets."""
        ...

    def write(self, frame: DataFrame, offsets: Offsets) -> tuple[int, int]:
        """Add the records of `frame`, which end at `offsets`. Return (records, version or number of the batch)."""
        ...

    def close(self) -> None:
        """Release the output for other writers."""
        ...


class DeltaOutput:
    """A Delta table, which other jobs and other groups may also write."""

    def __init__(self, spark: SparkSession, path: str, group: str, disk: Disk = DISK) -> None:
        """Raise `LakeError` if not all of Delta's readers would find the table."""
        if why := why_no_delta_path(path):
            raise LakeError(f"{path!r} cannot be the output: {why}")
        self._spark = spark
        self._path = path
        self._disk = disk
        self._forced: int | None = None
        self._group = group
        self._application = f"kafkalake-consume-{group}"
        self._version: int | None = None

    def offsets(self, committed: Mapping[TopicPartition, int]) -> Offsets | None:
        """Raise `LakeError` if the table cannot be read, or has records of the group, but its log no longer their end offsets."""
        # Read the version first: a run that commits in between then has the version that this one would write.
        self._version = self._transaction_version()
        newest = self._newest()
        if newest is None and self._version is not None:
            newest = self._newest(commits=None)
        if newest is not None:
            return newest[0]
        if self._version is None:
            return None
        if len(committed) == 1 and self._version == sum(committed.values()):
            return to_json(committed)
        raise LakeError(
            f"{self._path} has records of group {self._group}, but its log no longer holds up to which offsets: set the offsets of "
            "another group to where the output ends, and go on as that one"
        )

    def write(self, frame: DataFrame, offsets: Offsets) -> tuple[int, int]:
        """Raise `LakeError` if another run of the group committed first, Spark's exceptions, or `OSError`."""
        run = str(uuid.uuid4())
        metadata = {_METADATA_KEY: self._group, "run": run, "offsets": offsets}
        version = max(self._version or 0, _VERSIONS) + 1
        options = {
            "txnAppId": self._application,
            "txnVersion": str(version),
            "userMetadata": json.dumps(metadata),
        }
        frame.write.format("delta").mode("append").options(**options).save(self._path)
        newest = self._newest(run)
        self._version = version
        if newest is None:
            raise LakeError(
                f"another run of group {self._group} is writing to {self._path}: nothing was written by this one"
            )
        force_commits(Path(self._path.removeprefix("file:")).absolute(), self._forced, newest[2], self._disk)
        self._forced = newest[2]
        return newest[1], newest[2]

    def close(self) -> None:
        """Do nothing, since no lock is held."""

    def _newest(
        self, run: str | None = None, commits: int | None = _HISTORY_COMMITS
    ) -> tuple[Offsets, int, int] | None:
        """Return (offsets, records, version) of the group's newest commit, or of `run`, among the last `commits` (None: all)."""
        from delta.tables import DeltaTable
        from pyspark.sql import functions as f

        if not DeltaTable.isDeltaTable(self._spark, self._path):
            return None
        history = DeltaTable.forPath(self._spark, self._path).history(commits)
        ours = history.filter(f.get_json_object("userMetadata", f"$.{_METADATA_KEY}") == self._group)
        if run is not None:
            ours = ours.filter(f.get_json_object("userMetadata", "$.run") == run)
        row = ours.orderBy(f.desc("version")).select("version", "userMetadata", "operationMetrics").first()
        if row is None:
            return None
        return json.loads(row.userMetadata)["offsets"], int(row.operationMetrics.get("numOutputRows", 0)), row.version

    def _transaction_version(self) -> int | None:
        from deltalake import DeltaTable as OpenedTable
        from deltalake.exceptions import DeltaError

        try:
            if not OpenedTable.is_deltatable(self._path):
                return None
            return OpenedTable(self._path).transaction_version(self._application)
        except (DeltaError, OSError) as error:  # OSError: of a file system that delta-rs does not know, or not reach
            raise LakeError(f"{self._path} cannot be read: {str(error).splitlines()[0]}") from error


class ParquetOutput:
    """A local directory with one directory per batch, written by one group, one run at a time."""

    def __init__(self, path: str, group: str, disk: Disk = DISK) -> None:
        """Raise `LakeError` if another run or another group writes here, or the path or the directory is something else."""
        found = local_path(path)
        if found is None:
            raise LakeError(
                f"{path} cannot be the output: Parquet files go to a directory of this machine's file systems"
            )
        self._path = found.absolute()
        self._group = group
        self._disk = disk
        disk.make_directory(self._path)
        self._lock = open_lock_file(self._path / "_lock")
        if not try_flock(self._lock):
            os.close(self._lock)
            raise LakeError(f"another run is writing to {self._path}")
        for left in self._path.glob(f"{_STAGING}*"):
            shutil.rmtree(left)  # left by a run that died
        strange = [entry.name for entry in self._path.iterdir() if not _OWN_NAME.match(entry.name)]
        if strange:
            self.close()
            raise LakeError(f"{self._path} holds {strange[0]}, which no run of consume wrote: name an empty directory")

    def offsets(self, committed: Mapping[TopicPartition, int]) -> Offsets | None:
        """Raise `LakeError` if the batches are another group's, or the last one does not say where it ends."""
        batch = self._batches() - 1
        if batch < 0:
            return None
        file = self._batch(batch) / _OFFSETS_FILE
        try:
            said = json.loads(file.read_text())
            group, offsets = said["group"], said["offsets"]
            from_json(offsets)
        except OSError as error:
            raise LakeError(f"it is not known where the output ends: {file_sentence(error)}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LakeError(f"it is not known where the output ends: {file} is damaged") from error
        if group != self._group:
            raise LakeError(f"{self._path} is written by group {group}")
        ends: Offsets = offsets
        return ends

    def write(self, frame: DataFrame, offsets: Offsets) -> tuple[int, int]:
        """Raise `LakeError` for a column that readers would not find, Spark's exceptions, or `OSError`."""
        import pyarrow.parquet as pq

        hidden = next((name for name in frame.columns if name.lower() == _BATCH), None)
        if hidden is not None:
            raise LakeError(
                f"readers take the column {hidden} of Parquet files for the number of their directory: leave it out (--columns), "
                "or write --format delta"
            )
        staging = self._path / f"{_STAGING}{uuid.uuid4()}"
        frame.write.parquet(str(staging))
        records = sum(pq.read_metadata(file).num_rows for file in staging.glob("*.parquet"))
        batch = self._batches()
        said = {"group": self._group, "records": records, "offsets": offsets}
        (staging / _OFFSETS_FILE).write_text(json.dumps(said))
        force_directory_of_files(staging, self._disk)
        self._disk.rename(staging, self._batch(batch))
        self._disk.force_directory(self._path)
        return records, batch

    def close(self) -> None:
        """Release the directory for other writers. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _batch(self, number: int) -> Path:
        return self._path / f"{_BATCH}={number:08d}"

    def _batches(self) -> int:
        return 1 + max((int(entry.name.partition("=")[2]) for entry in self._path.glob(f"{_BATCH}=*")), default=-1)
