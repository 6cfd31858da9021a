"""The maintenance job: keeps metadata tables small and removes unneeded files.

    tables      removes old log entries and files after `metadata.retention.ms`, old rows of `lag` and `job_runs` after --keep-days
    segments    of a stopped broker: removes files that retention or compaction took out of the log `file.delete.delay.ms` ago
    staged      removes the files of killed writes from Spark
    orphans     lists files and directories that belong to nothing, and leaves them alone

A running broker unlinks the files of removed segments itself. For one that is down the job holds its lock, opens each such log
like the broker, and closes it. Log start, indexes and `state` are then consistent. A broker that starts meanwhile has to wait.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import ConfigurationError
from kafkalake.jobs.arguments import number
from kafkalake.jobs.frame import Done, Job, Run, Step, fault_point
from kafkalake.jobs.frame import check_arguments as check_job
from kafkalake.jobs.frame import main as run_job
from kafkalake.jobs.progress import print_table
from kafkalake.log_starts import raised_log_start
from kafkalake.metadata import paths
from kafkalake.metadata.catalog import directories_of, registration_of, segments_by_id
from kafkalake.metadata.lock_file import holding_logs, running_brokers
from kafkalake.metadata.tables.data_files import size_on_disk
from kafkalake.metadata.tables.job_tables import JobTable, exists
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentRow
from kafkalake.reader.live_partitions import log_start
from kafkalake.reader.topic_settings import broker_settings
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.generations import RewrittenSegment, covering, stale_files
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE
from kafkalake.storage.log import Log
from kafkalake.storage.partition_metadata import PARTITION_METADATA_FILE
from kafkalake.storage.retired_directories import RETIRED
from kafkalake.storage.rewritten_files import RUN_PREFIX
from kafkalake.storage.segment_names import DATA_SUFFIX, SUFFIXES, parse_name
from kafkalake.storage.snapshot import SNAPSHOT_SUFFIX
from kafkalake.storage.staging import StagedJob, remove_staged, stale_staging
from kafkalake.storage.state import STATE_FILE, read_state
from kafkalake.topic_partition import PartitionId, TopicPartition

TABLE, UNLINK, STAGED, ORPHAN = "clean table", "unlink segments", "remove staged files", "orphan"
KEEP_DAYS = 30
STAGED_HOURS = 24.0

_DAY_MS = 86_400_000
_OTHER_FILES = (STATE_FILE, LEADER_EPOCHS_FILE, PARTITION_METADATA_FILE)


@dataclass(frozen=True, slots=True)
class _Removed:
    """A replica with files that are no longer part of its log, and whose broker is down."""

    directory: Path
    topic_id: UUID
    broker_id: int
    log_start_offset: int
    swapped: tuple[RewrittenSegment, ...]
    files: int


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of the partition that `row` describes. is_only: there is no other."""

    row: PartitionRow
    broker_id: int
    is_only: bool


class Maintenance(Job):
    name = "maintenance"
    summary = "Keep metadata tables small, remove files that nothing needs, list orphans."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--keep-days", metavar="DAYS", type=number, default=KEEP_DAYS, help=f"of lag and job_runs ({KEEP_DAYS})"
        )

        parser.add_argument(
            "--staged-hours",
            metavar="HOURS",
            type=number,
            default=STAGED_HOURS,
            help=f"how old staged files are left-overs ({STAGED_HOURS:g})",
        )

    def check(self, arguments: argparse.Namespace) -> None:
        for name in ("keep_days", "staged_hours"):
            if getattr(arguments, name) < 0:
                raise ConfigurationError(
                    f"--{name.replace('_', '-')} {getattr(arguments, name):g}: it cannot be negative"
                )

    def plan(self, run: Run) -> Sequence[Step]:
        names = [name for name in (*paths.TABLES, *paths.JOB_TABLES) if exists(run.lake, name)]
        steps = [Step(TABLE, None, None, _why_clean(run, name), _size_on_disk(run, name), name) for name in names]
        replicas = replicas_of(run.lake, run.store.load_partitions(), run.store.newest_image())
        segments = _swapped_segments(run.store.load_segments())
        running = running_brokers(run.lake, run.store.load_brokers(), run.clock.now_ms())
        steps += _removed(run, replicas, segments, running)
        older_ms = int(run.arguments.staged_hours * 3_600_000)
        for job in stale_staging(run.lake, run.clock.now_ms(), older_than_ms=older_ms):
            hours = (run.clock.now_ms() - job.newest_ms) / 3_600_000
            before = {"files": job.files, "bytes": job.bytes, "path": str(job.path.relative_to(run.lake))}
            steps.append(Step(STAGED, None, None, f"nothing was written there for {hours:.1f} h", before, job))
        for path, why in orphans(run.lake, replicas, segments, run.reading):
            steps.append(Step(ORPHAN, None, None, why, {"path": str(path.relative_to(run.lake))}))
        return steps

    def perform(self, run: Run, step: Step) -> Done:
        if step.action == TABLE:
            return self._clean_table(run, step.detail)
        if step.action == UNLINK:
            return _unlink(run, step.detail)
        if step.action == STAGED:
            job: StagedJob = step.detail
            remove_staged(job)
            return Done({"files": 0})
        return Done({}, outcome="reported")

    def report(self, run: Run) -> None:
        print_table(
            ["subject", "action", "what", "before", "after", ""],
            [
                (
                    step.subject,
                    step.action,
                    step.detail if step.action == TABLE else step.why,
                    _pairs(step.before),
                    _pairs(done.after),
                    "" if done.outcome == "done" else done.outcome,
                )
                for step, done in run.performed
            ],
        )

    def _clean_table(self, run: Run, name: str) -> Done:
        if name in paths.TABLES:
            retention_ms = broker_settings(run.lake, run.store.control_store.load().config).broker.metadata_retention_ms
            run.store.maintain_table(name, retention_ms)
            forgotten = 0
        else:
            table = JobTable(run.lake, name)
            forgotten = table.forget_before(max(run.clock.now_ms() - int(run.arguments.keep_days * _DAY_MS), 0))
            table.maintain()
        fault_point(f"cleaned {name}")
        return Done(_size_on_disk(run, name) | ({"rows forgotten": forgotten} if forgotten else {}))


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    return run_job(Maintenance(), arguments)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a command line that `main` would refuse."""
    check_job(Maintenance(), arguments)


def _pairs(values: object) -> str:
    return ", ".join(f"{value} {name}" for name, value in dict(values).items())  # type: ignore[call-overload]


def _swapped_segments(rows: Iterable[SegmentRow]) -> dict[PartitionId[str], list[RewrittenSegment]]:
    """Return the segments that count, by topic id and partition, ascending."""
    return {
        key: [RewrittenSegment(row.base_offset, row.next_offset, row.generation) for row in segments]
        for key, segments in segments_by_id(rows).items()
    }


def replicas_of(lake: Path, rows: Iterable[PartitionRow], image: ClusterImage) -> dict[Path, Replica]:
    """Return the replicas of the partitions in `partitions`, on this host or not, by directory."""
    found = {}
    for row in rows:
        registration = registration_of(image, row.topic_id, row.partition, row)
        for broker_id, directory in directories_of(lake, registration, row.topic, row.partition).items():
            found[directory] = Replica(row, broker_id, is_only=len(registration.replicas) == 1)
    return found


def _removed(
    run: Run,
    replicas: Mapping[Path, Replica],
    segments: dict[TopicPartition, list[RewrittenSegment]],
    running: frozenset[int],
) -> Iterator[Step]:
    """Yield steps for replicas of stopped brokers with files of segments that are no longer part of the log."""
    topics = {topic.topic_id: topic for topic in run.topics}
    quiet_ms = run.clock.now_ms() - _last_commit_ms(run.lake)
    for directory, replica in replicas.items():
        row, topic = replica.row, topics.get(replica.row.topic_id)
        step = None
        if replica.broker_id not in running and topic is not None:
            current = segments.get((row.topic_id, row.partition), [])
            delay_ms = run.topic_configs[topic.topic].file_delete_delay_ms
            with run.reading(row.topic, row.partition):
                step = _unlinked(directory, replica, current, quiet_ms=quiet_ms, delay_ms=delay_ms)
        if step is not None:
            yield step


def _unlinked(
    directory: Path, replica: Replica, current: Sequence[RewrittenSegment], *, quiet_ms: int, delay_ms: int
) -> Step | None:
    """Return the step for a replica, None if it has no such files. Raise `LakeError` or `OSError` if it cannot be read."""
    row = replica.row
    if not (directory / STATE_FILE).exists():
        return None
    names = REAL_FILES.list(str(directory))
    state = read_state(directory)
    start = log_start(state, row)
    gone = {name for name, _ in stale_files(names, current, start).superseded} | _below(names, current, start)
    if not gone:
        return None
    swapped = tuple(each for each in current if each.generation)
    size = sum(os.path.getsize(directory / name) for name in gone)
    why = f"removed from the log more than file.delete.delay.ms={delay_ms} ago"
    detail: _Removed | None = _Removed(directory, UUID(row.topic_id), replica.broker_id, start, swapped, len(gone))
    if quiet_ms < delay_ms:
        why, detail = f"file.delete.delay.ms={delay_ms} has not passed yet", None
    elif not (replica.is_only or state.clean):  # its recovery says whether acknowledged records are gone
        why, detail = f"broker {replica.broker_id} was killed, and removes them at its next start", None
    return Step(UNLINK, row.topic, row.partition, why, {"files": len(gone), "bytes": size}, detail)


def _why_clean(run: Run, name: str) -> str:
    if name in paths.TABLES:
        days = broker_settings(run.lake, run.store.control_store.load().config).broker.metadata_retention_ms / _DAY_MS
        return f"{name}: versions older than metadata.retention.ms ({days:g} days) and files that no later one has"
    return f"{name}: rows older than {run.arguments.keep_days:g} days (--keep-days)"


def _size_on_disk(run: Run, name: str) -> dict[str, int]:
    return size_on_disk(paths.table_path(run.lake, name))._asdict()


def _last_commit_ms(lake: Path) -> int:
    """Return the latest possible time of a removal of segments from any log: the newest commit to the tables that define it."""
    times = []
    for table in (paths.SEGMENTS, paths.PARTITIONS):
        log = paths.table_path(lake, table) / "_delta_log"
        names = [name for name in REAL_FILES.list(str(log)) if name.endswith(".json")]
        times += [int(os.path.getmtime(log / name) * 1000) for name in names]
    return max(times, default=0)


def _below(names: Sequence[str], current: Sequence[RewrittenSegment], log_start_offset: int) -> set[str]:
    """Return the files of segments that end at or below the log start."""
    parsed = {name: found for name in names if (found := parse_name(name)) and found.suffix in SUFFIXES}
    bases = sorted({each.base_offset for each in parsed.values() if each.suffix == DATA_SUFFIX})
    ends = dict(pairwise(bases))  # the last one is never below: it may still be active
    for base in bases:
        known = covering(current, base)
        if known is not None:
            ends[base] = known.next_offset
    return {
        name for name, each in parsed.items() if ends.get(each.base_offset, log_start_offset + 1) <= log_start_offset
    }


def _unlink(run: Run, partition: _Removed | None) -> Done:
    """Open a log as its broker would, with no deletion delay, and close it."""
    if partition is None:
        return Done({}, outcome="waiting")
    with holding_logs(run.lake, partition.broker_id) as held:
        if not held:
            return Done({}, outcome="skipped")  # its broker is running and removes the files
        before = len(REAL_FILES.list(str(partition.directory)))
        config = LogConfig(file_delete_delay_ms=0)
        directory, topic_id = str(partition.directory), partition.topic_id
        log = Log.open(directory, config, run.clock, swapped=partition.swapped, topic_id=topic_id)
        log.delete_records_before(
            raised_log_start(log.log_start_offset, partition.log_start_offset, log.high_watermark)
        )
        fault_point("log start moved")
        log.remove_deleted_files()
        log.close()
        fault_point("unlinked")
        return Done({"files": before - len(REAL_FILES.list(str(partition.directory)))})


def orphans(
    lake: Path,
    replicas: Mapping[Path, Replica],
    segments: dict[TopicPartition, list[RewrittenSegment]],
    reading: Callable[[str, int], AbstractContextManager[None]],
) -> Iterator[tuple[Path, str]]:
    """Yield everything below `logs` outside any replica, or in a replica outside any segment, and why.

    reading: the context in which a partition, by topic and number, is looked at, as `Run.reading`.
    """
    known = {f"{replica.row.topic}-{replica.row.partition}" for replica in replicas.values()}
    for broker in _within(lake / paths.LOG_DIRECTORY):
        if not broker.is_dir() or not broker.name.isdecimal():
            yield broker, "not a broker's directory"
            continue
        for directory in filter(Path.is_dir, _within(broker)):
            replica = replicas.get(directory)
            if directory.name.endswith(RETIRED):
                yield directory, "of a deleted topic: its broker removes it, at the latest at its next start"
            elif replica is not None:
                row = replica.row
                current = segments.get((row.topic_id, row.partition), [])
                found: list[tuple[Path, str]] = []
                with reading(row.topic, row.partition):
                    found = list(_orphans_in(directory, current, row.log_start_offset))
                yield from found
            elif directory.name in known:
                yield directory, f"of a partition of which broker {broker.name} is no replica"
            else:
                yield directory, "of no topic in the lake"


def _within(directory: Path) -> list[Path]:
    return [directory / name for name in sorted(REAL_FILES.list(str(directory)))]


def _orphans_in(directory: Path, current: Sequence[RewrittenSegment], log_start: int) -> Iterator[tuple[Path, str]]:
    names = REAL_FILES.list(str(directory))
    uncommitted = set(stale_files(names, current, log_start).uncommitted)
    bases = {each.base_offset for name in names if (each := parse_name(name)) and each.suffix == DATA_SUFFIX}
    for name in sorted(names):
        parsed = parse_name(name)
        if name in uncommitted or name.startswith(RUN_PREFIX):
            yield directory / name, "of a compaction that has not ended; the next one removes what a killed one left"
        elif parsed is None:
            if name not in _OTHER_FILES and not name.endswith((".tmp", SNAPSHOT_SUFFIX)):
                yield directory / name, "no file of a log"
        elif parsed.suffix in SUFFIXES and parsed.base_offset not in bases:
            yield directory / name, "its segment is not there"
