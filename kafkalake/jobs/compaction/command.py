"""The compaction job: keeps the newest record of each key, and merges small segments into larger ones.

`storage.cleaning` decides what to compact, `key_offsets` does the work in Spark, and this module publishes the result, so
that a reader sees either the old segments or the new ones, whatever dies:

    1. remove the leftovers of killed jobs
    2. write new segments into a directory of this run
    3. move them beside the old ones, under names of a generation that is not read yet
    4. replace the old ones by them in one commit to `segments`
    5. record in `cleaning` how far the partition is compacted

Before 4 nothing has changed. After it everything has, and the broker or the next run completes the rest: a segment whose
generation is not in `cleaning` shows that 5 is missing, and the same range is not compacted again. The broker reads
the new files after its next look at Delta, and removes the old ones after `file.delete.delay.ms`. While none runs, the next
run or the next start does.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalake.config.topics import TopicConfig
from kafkalake.counted import counted
from kafkalake.errors import CorruptSegmentError, SegmentsChangedError
from kafkalake.jobs.cleaned_partitions import CleanedPartition, cleaned_partitions, cleaned_topics
from kafkalake.jobs.compaction.key_offsets import (
    Output,
    ProducerEvents,
    Source,
    Work,
    producer_events,
    rewrite_segments,
)
from kafkalake.jobs.frame import Done, Job, Run, Step, fault_point
from kafkalake.jobs.frame import check_arguments as check_job
from kafkalake.jobs.frame import main as run_job
from kafkalake.jobs.progress import print_table
from kafkalake.metadata import cleaning, paths
from kafkalake.metadata.catalog import directories_of, registration_of, segments_by_id
from kafkalake.metadata.lock_file import running_brokers
from kafkalake.metadata.tables.schemas import CleaningRow, SegmentRow, TopicRow
from kafkalake.reader.read_options import parse_options
from kafkalake.reader.snapshot import take_snapshot
from kafkalake.storage.cleaning import CleanableSegment, Compaction, CompactionRule, decide_compaction
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.lost_records import lost_range
from kafkalake.storage.rewritten_files import move_segment, remove_files, remove_runs, remove_segment, run_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT, REMEMBER = "compact", "remember"


@dataclass(frozen=True, slots=True)
class _Partition:
    """The input of a decision on a partition. `rows`: the segments to clean, ascending; `files`: where each one's file is.

    broker_id, directory: the replica that gets the new segments. The others get them from it.
    """

    topic: TopicRow
    broker_id: int
    directory: Path
    config: TopicConfig
    rows: Sequence[SegmentRow]
    files: Sequence[str]
    decision: Compaction
    generation: int


class CompactionJob(Job):
    name = "compaction"
    summary = "Keep the newest record of each key, in topics whose cleanup.policy says compact."

    def plan(self, run: Run) -> Sequence[Step]:
        remembered = {row.key: row for row in run.store.load_cleaning()}
        steps = []
        for log in cleaned_partitions(run, _compacted(run)):
            row = CleaningRow(log.topic.topic, log.topic.topic_id, log.number)
            said = remembered.get(row.key, row)
            step = _step(log, run.topic_configs[log.topic.topic], said, run.clock.now_ms())
            steps += [step] if step is not None else []
        return steps

    def begin(self, run: Run, steps: Sequence[Step]) -> None:
        """Remove the leftovers of killed jobs in every selected topic."""
        segments = segments_by_id(run.store.load_segments())
        running = running_brokers(run.lake, run.store.load_brokers(), run.clock.now_ms())
        topics = {topic.topic_id: topic for topic in _compacted(run)}
        image = run.store.newest_image()
        for row in run.store.load_partitions():
            topic = topics.get(row.topic_id)
            if topic is None:
                continue
            current = segments.get((row.topic_id, row.partition), [])
            gone_ms = run.clock.now_ms() - run.topic_configs[topic.topic].file_delete_delay_ms
            registration = registration_of(image, row.topic_id, row.partition, row)
            for broker_id, directory in directories_of(run.lake, registration, row.topic, row.partition).items():
                kept_ms = None if broker_id in running else gone_ms
                with run.reading(row.topic, row.partition):
                    if directory.is_dir():
                        _remove_leftovers(directory, current, row.log_start_offset, kept_ms)
        fault_point("leftovers removed")

    def perform(self, run: Run, step: Step) -> Done:
        if step.action == REMEMBER:
            row = replace(step.detail, updated_at_ms=run.clock.now_ms())
            return Done({"cleaned_offset": row.cleaned_offset}, paths.CLEANING, run.store.update_cleaning([row]))
        return self._compact(run, step)

    def _compact(self, run: Run, step: Step) -> Done:
        partition: _Partition = step.detail
        spark = run.spark  # started before this partition's time is taken
        started = time.monotonic()
        with run_directory(partition.directory, run.run_id) as own:
            found = _rewrite(run, spark, partition, own)
            fault_point("segments written")
            old, new, unchanged = _move(run, partition, found)
            fault_point("segments moved")
            version = None
            if new:
                try:
                    version = cleaning.swap(run.lake, run.store, old, new, run.clock)
                except SegmentsChangedError:
                    for row in new:
                        remove_segment(partition.directory, row.base_offset, row.generation)
                    raise
            fault_point("committed")
        last = partition.rows[-1]
        run.store.update_cleaning(
            [
                CleaningRow(
                    last.topic,
                    last.topic_id,
                    last.partition,
                    last.next_offset,
                    partition.generation,
                    run.clock.now_ms(),
                )
            ]
        )
        fault_point("remembered")
        seconds = time.monotonic() - started
        records = sum(row.records for row in partition.rows)
        after = {
            "segments": len(new) + unchanged,
            "records": sum(row["records"] for row in found),
            "bytes": sum(row["bytes"] for row in found),
            "cleaned_offset": last.next_offset,
            "seconds": round(seconds, 2),
            "records_per_second": round(records / seconds),
        }
        return Done(after, paths.SEGMENTS if new else None, version)

    def report(self, run: Run) -> None:
        names = ("segments", "records", "bytes")
        compacted = [(step, done) for step, done in run.performed if step.action == COMPACT]
        rows = [
            (step.subject, *(value for name in names for value in (step.before[name], done.after[name])), step.why)
            for step, done in compacted
        ]
        if rows:
            columns = ["partition", "segments", "now", "records", "now", "bytes", "now", "why"]
            print_table(columns, rows, right=columns[1:7])
        gone = sum(step.before["records"] - done.after["records"] for step, done in compacted)
        print(f"{counted(len(rows), 'partition')} compacted, {counted(gone, 'record')} removed")


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    return run_job(CompactionJob(), arguments)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a command line that `main` would refuse."""
    check_job(CompactionJob(), arguments)


def _step(log: CleanedPartition, config: TopicConfig, said: CleaningRow, now_ms: int) -> Step | None:
    """Return the step for a partition, given its row `said` of `cleaning`, or None if there is nothing to do."""
    start = log.state.log_start_offset
    kept = [(row, file) for row, file in zip(log.rows, log.files, strict=True) if row.next_offset > start]
    rows = [row for row, _ in kept]
    known = _with_committed(said, rows)
    decision = decide_compaction(
        [_cleanable(row, file) for row, file in kept],
        _rule(config),
        cleaned_offset=known.cleaned_offset,
        end_offset=log.state.last_stable_offset,
        now_ms=now_ms,
    )
    before: dict[str, int] = {"cleaned_offset": said.cleaned_offset}
    if decision.why is None:
        why = f"a run that was killed has compacted it up to offset {known.cleaned_offset}"
        return None if known == said else Step(REMEMBER, log.topic.topic, log.number, why, before, known)
    rows = rows[: sum(len(group) for group in decision.groups)]
    generation = 1 + max([known.generation, *(row.generation for row in rows)])
    files = [file for _, file in kept[: len(rows)]]
    partition = _Partition(log.topic, log.broker_id, log.directory, config, rows, files, decision, generation)
    before |= {
        "segments": len(rows),
        "records": sum(row.records for row in rows),
        "bytes": sum(row.bytes for row in rows),
    }
    return Step(COMPACT, log.topic.topic, log.number, decision.why, before, partition)


def _rule(config: TopicConfig) -> CompactionRule:
    return CompactionRule(
        config.min_cleanable_dirty_ratio,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        config.delete_retention_ms,
        config.segment_bytes,
    )


def _with_committed(said: CleaningRow, rows: Sequence[SegmentRow]) -> CleaningRow:
    """Return the row of `cleaning`, updated with the commit of a run that was killed before it updated the row."""
    unsaid = [row for row in rows if row.generation > said.generation]
    if not unsaid:
        return said
    cleaned_offset = max(said.cleaned_offset, *(row.next_offset for row in unsaid))
    return replace(said, cleaned_offset=cleaned_offset, generation=max(row.generation for row in unsaid))


def _cleanable(row: SegmentRow, file: str) -> CleanableSegment:
    smallest, largest = row.min_timestamp_ms, row.max_timestamp_ms
    lost = False
    with contextlib.suppress(OSError, CorruptSegmentError):  # the rewrite reports these errors, if it happens
        lost = lost_range(file, row.bytes) is not None
    return CleanableSegment(
        row.base_offset,
        row.next_offset,
        row.bytes,
        -1 if smallest is None else smallest,
        -1 if largest is None else largest,
        lost,
    )


def _compacted(run: Run) -> list[TopicRow]:
    return [topic for topic in cleaned_topics(run) if run.topic_configs[topic.topic].compacts]


def _rewrite(run: Run, spark: SparkSession, partition: _Partition, own: Path) -> list[Any]:
    """Write the new segments below `own`. Return a result row for each group."""
    groups = partition.decision.groups
    group_of = {number: group for group, numbers in enumerate(groups) for number in numbers}
    sources = tuple(
        Source(number, group_of[number], file, row.base_offset, row.next_offset, row.bytes)
        for number, (row, file) in enumerate(zip(partition.rows, partition.files, strict=True))
    )
    assigned = f'{{"{partition.topic.topic}": [{partition.rows[0].partition}]}}'
    options = parse_options({"lake": str(run.lake), "assign": assigned})
    (snapshot,) = take_snapshot(options, run.store).partitions
    aborted = snapshot.aborted_transactions(sources[0].base_offset)
    work = Work(
        str(own),
        partition.generation,
        sources,
        tuple((entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted),
        (secrets.randbits(63), secrets.randbits(63)),
        run.clock.now_ms(),
        partition.config.delete_retention_ms,
        partition.config.index_interval_bytes,
        partition.config.segment_compression,
    )
    outputs = _outputs(sources, groups, producer_events(spark, sources))
    return rewrite_segments(spark, work, outputs)


def _outputs(
    sources: Sequence[Source],
    groups: Sequence[Sequence[int]],
    events: Mapping[int, Mapping[int, ProducerEvents]],
) -> list[Output]:
    """Return the producer state that each group needs: open transactions from before it, and last batches in it."""
    outputs = []
    open_producers: set[int] = set()
    for numbers in groups:
        last_batches: dict[int, int] = {}
        began = frozenset(open_producers)
        for number in numbers:
            for producer, found in events.get(number, {}).items():
                if found.last_batch >= 0:
                    last_batches[producer] = found.last_batch
                if found.ended:
                    open_producers.discard(producer)
                if found.open:
                    open_producers.add(producer)
        outputs.append(Output(tuple(sources[number].path for number in numbers), began, last_batches))
    return outputs


def _move(run: Run, partition: _Partition, found: Iterable[Any]) -> tuple[list[SegmentRow], list[SegmentRow], int]:
    """Move new segments beside the old ones. Return the removed rows, the added rows, and the number of unchanged segments."""
    old: list[SegmentRow] = []
    new: list[SegmentRow] = []
    unchanged = 0
    for row in sorted(found, key=lambda row: row["group"]):
        rows = [partition.rows[number] for number in partition.decision.groups[row["group"]]]
        if not row["changed"] and len(rows) == 1:
            unchanged += 1
            continue
        generation = partition.generation
        data = move_segment(row["directory"], partition.directory, row["base_offset"], generation)
        fault_point("a segment moved")
        old += rows
        new.append(
            replace(
                rows[0],
                next_offset=row["next_offset"],
                generation=generation,
                path=paths.relative_path(run.lake, data),
                broker_id=partition.broker_id,
                records=row["records"],
                bytes=row["bytes"],
                min_timestamp_ms=row["min_timestamp"],
                max_timestamp_ms=row["max_timestamp"],
                sealed_at_ms=run.clock.now_ms(),
            )
        )
    REAL_FILES.sync_directory(str(partition.directory))
    return old, new, unchanged


def _remove_leftovers(
    directory: Path, rows: Sequence[SegmentRow], log_start_offset: int, kept_since_ms: int | None
) -> None:
    """Remove uncommitted files. If no broker runs to do it, also remove old generations replaced before a given time."""
    current = [RewrittenSegment(row.base_offset, row.next_offset, row.generation) for row in rows]
    sealed_ms = {row.base_offset: row.sealed_at_ms for row in rows}
    superseded = remove_runs(directory, current, log_start_offset).superseded
    if kept_since_ms is not None:
        gone = [name for name, newer in superseded if sealed_ms[newer.base_offset] <= kept_since_ms]
        remove_files(directory, gone)
