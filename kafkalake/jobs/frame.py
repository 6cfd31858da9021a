"""The frame of every job: arguments, a plan with dry run, progress, rows in `job_runs`, an exit code.

A job is two functions over a `Run`. `plan` returns what to do and why, as `Step`s, and changes nothing. `perform` does
one step (`begin` the work common to all), and must be safe to repeat, because a job may die at any point and is then simply
run again. The frame does the rest:

    lock        one run of a kind on a lake at a time (`lock.py`); the kernel releases the lock when the process ends
    --dry-run   prints the table of steps, and nothing else
    steps       performed in order; the failure of one does not stop the others, nor does a partition that cannot be read
    job_runs    one row per step, and one for the run (`record.py`); for a killed run, the next one writes it
    exit code   0 success, 1 failure (one sentence on stderr), 2 usage error, 130 Ctrl-C; SIGTERM ends the process (`signals.py`)

`main` is a job's command line; `run_steps` is for callers that want its steps, such as procedures of Spark's catalogue.

`fault_point` names the points at which tests kill a job.
"""

from __future__ import annotations

import argparse
import os
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kafkalake.clock import Clock, SystemClock
from kafkalake.counted import counted
from kafkalake.errors import ConfigurationError, KafkaLakeError, LakeError
from kafkalake.extras import missing_extra
from kafkalake.jobs.arguments import JobParser, RaisingParser, parse_arguments
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.jobs.lock import JobLock, exclusive_job_lock
from kafkalake.jobs.progress import Progress, print_table, require_shown, say, show
from kafkalake.jobs.record import DELETED, FAILED, JobRecord
from kafkalake.jobs.signals import ended_by_signals, handle_again
from kafkalake.jobs.topics import select_topics
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.lake_format import require_writable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.reader.read_options import LAKE_VARIABLE
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalake.config.topics import TopicConfig

on_fault_point: Callable[[str], None] = lambda name: None  # noqa: E731
"""Hook of `fault_point`: does nothing, unless a test sends SIGKILL here."""


def fault_point(name: str) -> None:
    """Mark a point at which a job may die. `name`: the work done by then."""
    on_fault_point(name)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: `action` on a topic or partition (None: on the lake), `why`, and the state `before`.

    `detail` is private data for the job's own `perform`. `warning`: a line for stderr.
    """

    action: str
    topic: str | None
    partition: int | None
    why: str
    before: Mapping[str, Any] = field(default_factory=dict)
    detail: Any = None
    warning: str | None = None

    @property
    def subject(self) -> str:
        """The subject as text: `clicks-0`, `clicks`, or `lake`."""
        if self.topic is None:
            return "lake"
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Done:
    """The state `after` a step, and the version of the Delta table `table` that contains its change (None: no table).

    `outcome` is `done`, or one word on why there was nothing left to do, such as `skipped`.
    """

    after: Mapping[str, Any] = field(default_factory=dict)
    table: str | None = None
    version: int | None = None
    outcome: str = "done"


class Run:
    """The context of a job: the lake, its metadata, the arguments, the selected topics."""

    def __init__(self, lake: Path, arguments: argparse.Namespace, clock: Clock, spark: SparkSession | None) -> None:
        """Raise `LakeError` if there is no lake."""
        self.lake = lake
        self.arguments = arguments
        self.clock = clock
        self.run_id = str(uuid.uuid4())
        self.store = DeltaMetadataStore(lake, create=False)
        self.performed: list[tuple[Step, Done]] = []
        self.notes: list[tuple[Step, Done]] = []
        self._left_out: dict[TopicPartition, Step] = {}
        self._spark = spark

    def note(self, step: Step, done: Done) -> None:
        """Add a row to `job_runs` that was no step of the plan."""
        self.notes.append((step, done))

    @contextmanager
    def reading(self, topic: str, partition: int) -> Iterator[None]:
        """Leave a partition out if the block cannot read it: the run goes on, and fails at its end if the topic is still there."""
        try:
            yield
        except (KafkaLakeError, OSError) as error:
            if self.is_deleted(topic):
                return
            step = Step("leave out", topic, partition, one_line_message(error))
            self._left_out.setdefault((topic, partition), step)

    def is_deleted(self, topic: str | None) -> bool:
        """Return whether one of the run's topics was deleted since it was listed, whatever has its name now."""
        listed = next((each.topic_id for each in self.topics if each.topic == topic), None)
        try:
            found = None if listed is None or topic is None else self.store.find_topic(topic)
        except (KafkaLakeError, OSError):
            return False  # nothing is known of it
        return listed is not None and (found is None or found.topic_id != listed)

    @property
    def left_out(self) -> list[Step]:
        """The partitions that could not be read, each with `why`."""
        return list(self._left_out.values())

    @cached_property
    def topics(self) -> list[TopicRow]:
        """The topics that `--topic` or `--pattern` name, or all. Raise `UnknownTopicOrPartitionError` or `ConfigurationError`."""
        return select_topics(self.store.load_topics(), self.arguments.topic, self.arguments.pattern)

    @cached_property
    def topic_configs(self) -> dict[str, TopicConfig]:
        """The settings of `topics` by name, as used by the lake's brokers, running or not."""
        from kafkalake.reader.topic_settings import topic_configs

        return topic_configs(self.lake, self.store.control_store.load().config, self.topics)

    @property
    def spark(self) -> SparkSession:
        """The session, started on first use: a job that only changes metadata starts no JVM.

        Without Delta's jar: jobs read and write Delta through delta-rs, and need no registry to download the jar.
        """
        if self._spark is None:
            from kafkalake.spark.spark_session import session

            self._spark = session(self.lake, app_name=f"kafkalake {self.arguments.job}", delta=False)
            handle_again()
        return self._spark


class Job(ABC):
    """A job of one kind. One object per run."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for users."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027
        """Add the job's own arguments to the common ones."""

    def check(self, arguments: argparse.Namespace) -> None:  # noqa: B027
        """Raise `ConfigurationError` for arguments that make no sense, before anything is opened."""

    @abstractmethod
    def plan(self, run: Run) -> Sequence[Step]:
        """Return the steps to perform, without changing anything. Raise `KafkaLakeError` on failure."""

    def begin(self, run: Run, steps: Sequence[Step]) -> None:  # noqa: B027
        """Do the common work of all steps before the first, in one commit, not thousands. Raise `KafkaLakeError` on failure."""

    @abstractmethod
    def perform(self, run: Run, step: Step) -> Done:
        """Do one step. May be called again for a step that was wholly or partly done already. Raise `KafkaLakeError` on failure."""

    def report(self, run: Run) -> None:  # noqa: B027
        """Print the results after all steps, even if there were none. Only for a command line."""

    def finish(self, run: Run) -> int:
        """Do what follows all steps, even if there were none. Return the exit code for a run without failed steps."""
        return 0


def main(job: Job, arguments: Sequence[str], *, spark: SparkSession | None = None, clock: Clock | None = None) -> int:
    """Run a job's command line and return the exit code. Results go to stdout, progress and errors to stderr.

    spark: a running session. Raise `SystemExit` with code 2 for usage errors, as argparse does.
    """
    parsed = parse_arguments(parser_of(job), arguments)
    return ended_by_signals(job.name, lambda: _run(job, parsed, clock, spark))


def _run(job: Job, parsed: argparse.Namespace, clock: Clock | None, spark: SparkSession | None) -> int:
    try:
        run = _begun(job, parsed, clock, spark)
        return _show_plan(job, run) if parsed.dry_run else _perform(job, run, shows=True)
    except Exception as error:
        return _say(job, error)


def run_steps(
    job: Job,
    arguments: Sequence[str],
    *,
    spark: SparkSession | None = None,
    clock: Clock | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[tuple[Step, Done | None]]:
    """Run a job and return its steps, each with its result (None in a dry run). Print no results.

    is_cancelled: asked before each step; the run then fails, with what it has done. Raise `ConfigurationError` for arguments that
    make no sense, `LakeError` and others, in one sentence, for a run that failed or cannot begin.
    """
    try:
        run = _begun(job, parse_arguments(parser_of(job, RaisingParser), arguments), clock, spark)
        if run.arguments.dry_run:
            steps = job.plan(run)
            return [(step, None) for step in (*steps, *run.left_out)]
        _perform(job, run, is_cancelled=is_cancelled)
    except Exception as error:
        if isinstance(error, KafkaLakeError) or not _is_expected(error):
            raise
        raise LakeError(one_line_message(error)) from error
    return [*run.performed, *run.notes]


def check_arguments(job: Job, arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a command line that `main` would refuse, before anything is opened."""
    _checked(job, parse_arguments(parser_of(job, RaisingParser), arguments))


def _checked(job: Job, parsed: argparse.Namespace) -> argparse.Namespace:
    parsed.job = job.name
    if not parsed.lake:
        raise ConfigurationError(f"no lake: name it with --lake DIR or in the environment variable {LAKE_VARIABLE}")
    job.check(parsed)
    return parsed


def _begun(job: Job, parsed: argparse.Namespace, clock: Clock | None, spark: SparkSession | None) -> Run:
    _checked(job, parsed)
    lake = paths.require_lake(paths.lake_directory(parsed.lake).absolute())
    require_writable(lake)
    os.umask(paths.lake_umask(lake))
    return Run(lake, parsed, clock or SystemClock(), spark)


def _show_plan(job: Job, run: Run) -> int:
    steps = job.plan(run)
    rows = [(step.subject, step.action, step.why, _pairs(step.before)) for step in steps]
    unshown = show(lambda: print_table(["subject", "would do", "why", "now"], rows))
    for step in steps:
        if step.warning:
            say(f"{job.name}: warning: {step.warning}")
    for step in run.left_out:
        say(f"{job.name}: {step.subject}: {step.why}")
    summary = f"{job.name}: {counted(len(steps), 'step')} would be done; nothing was changed (--dry-run)"
    require_shown(unshown or show(lambda: print(summary)))
    return 1 if run.left_out else 0


def _perform(job: Job, run: Run, *, shows: bool = False, is_cancelled: Callable[[], bool] = lambda: False) -> int:
    with exclusive_job_lock(run.lake, job.name, run.run_id, run.clock.now_ms()) as lock:
        return _perform_locked(job, run, lock, shows, is_cancelled)


def _perform_locked(job: Job, run: Run, lock: JobLock, shows: bool, is_cancelled: Callable[[], bool]) -> int:
    record = JobRecord(run.lake, job.name, run.run_id, run.clock, lock.is_recorded)
    failures: list[str] = []
    unshown = None
    with record:
        record.earlier(lock)
        steps = job.plan(run)
        fault_point("planned")
        job.begin(run, steps)
        with Progress(job.name, len(steps)) as progress:
            for step in steps:
                if is_cancelled():
                    raise LakeError(
                        f"cancelled after {len(run.performed)} of {counted(len(steps), 'step')}, which stay done"
                    )
                if step.warning:
                    progress.say(f"warning: {step.warning}")
                started_ms = run.clock.now_ms()
                try:
                    done = job.perform(run, step)
                except Exception as error:
                    if not _is_expected(error):
                        raise
                    if run.is_deleted(step.topic):
                        record.step(step, Done(outcome=DELETED), started_ms)
                        progress.say(f"{step.subject}: the topic was deleted meanwhile")
                        continue
                    failures.append(f"{step.subject}: {one_line_message(error)}")
                    record.step(step, Done({"error": one_line_message(error)}, outcome=FAILED), started_ms)
                    progress.say(failures[-1])
                else:
                    run.performed.append((step, done))
                    record.step(step, done, started_ms)
                progress.advance(f"{step.subject}: {step.action}")
            for step in run.left_out:
                failures.append(f"{step.subject}: {step.why}")
                record.step(step, Done(outcome=FAILED), run.clock.now_ms())
                progress.say(failures[-1])
        fault_point("performed")
        if shows:
            unshown = show(lambda: job.report(run))
        code = job.finish(run)
        for step, done in run.notes:
            record.step(step, done, run.clock.now_ms())
        count = len(steps) + len(run.left_out)
        record.summarize({"steps": count, "failed": len(failures)}, failed=bool(failures))
    if failures:
        raise LakeError(f"{len(failures)} of {counted(count, 'step')} failed, the first: {failures[0]}")
    if code == 0:
        require_shown(unshown)
    return code


def _say(job: Job, error: Exception) -> int:
    say(f"{job.name}: {one_line_message(error)}")
    if os.environ.get("KAFKALAKE_DEBUG") or not _is_expected(error):
        traceback.print_exc()
    return 1


def _is_expected(error: Exception) -> bool:
    """Return whether an error's sentence is enough. A programming error keeps its traceback."""
    spark = type(error).__module__.split(".")[0] in ("pyspark", "py4j")
    return spark or isinstance(error, KafkaLakeError | OSError) or missing_extra(error) is not None


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def parser_of(job: Job, kind: type[argparse.ArgumentParser] = JobParser) -> argparse.ArgumentParser:
    """Return a parser with the common arguments and the job's own."""
    parser = kind(prog=job.name, description=job.summary, allow_abbrev=False)
    parser.add_argument(
        "--lake", metavar="DIR", default=os.environ.get(LAKE_VARIABLE), help=f"the lake (default: ${LAKE_VARIABLE})"
    )
    topics = parser.add_mutually_exclusive_group()
    topics.add_argument("--topic", metavar="NAMES", help="the topic, or several: clicks,orders (default: all)")
    topics.add_argument("--pattern", metavar="REGEX", help="all topics whose whole name matches")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and why, and do nothing")
    job.add_arguments(parser)
    return parser
