"""Records a job's work as rows of the Delta table `job_runs`: one per step, and one with the action `run` for the whole.

Rows are written every few seconds and at the end, also when the job fails or is ended by SIGTERM or Ctrl-C, so that thousands of
steps are few commits. A killed run leaves the rows of its steps except those of the last seconds. The next run records that it
was killed, and when it had started. A step that was done but not recorded is safe: the next run finds nothing to do there, and the
step's change is a version of that table, with its time, in Delta's own history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads

from kafkalake import __version__
from kafkalake.clock import Clock
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.jobs.signals import recording_the_end, signal_of
from kafkalake.metadata import paths
from kafkalake.metadata.tables.job_tables import JOB_RUNS_SCHEMA, JobTable

if TYPE_CHECKING:
    from kafkalake.jobs.frame import Done, Step
    from kafkalake.jobs.lock import JobLock, LockHolder, ParallelJobLock

RUN = "run"
DONE, FAILED, STOPPED, KILLED, DELETED = "done", "failed", "stopped", "killed", "deleted"
FLUSH_INTERVAL_MS = 5_000
_ROWS_MAX = 1_000


class JobRecord:
    """The rows of one run. On exit of the context, the remaining rows and the row of the run are written."""

    def __init__(
        self, lake: Path, job: str, run_id: str, clock: Clock, on_end: Callable[[], None] = lambda: None
    ) -> None:
        """on_end: called once the end is recorded. Raise `LakeError` if the table can be neither opened nor created."""
        self._on_end = on_end
        self._summary: Mapping[str, Any] = {}
        self._failed = False
        self._table = JobTable(lake, paths.JOB_RUNS)
        self._job = job
        self._run_id = run_id
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._flushed_ms = clock.monotonic_ms()
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> JobRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise `KafkaStorageError` if the rows cannot be written."""
        with recording_the_end():
            if isinstance(error, KeyboardInterrupt):
                self._add(RUN, STOPPED, self._started_ms, why=f"ended by {signal_of(error).name}", after=self._summary)
            elif error is not None:
                self._add(RUN, FAILED, self._started_ms, after={"error": one_line_message(error)})
            else:
                self._add(RUN, FAILED if self._failed else DONE, self._started_ms, after=self._summary)
            self.flush()
            self._on_end()

    def summarize(self, summary: Mapping[str, Any], *, failed: bool = False) -> None:
        """Set what the row of the run tells, and whether the run failed although it came to its end."""
        self._summary, self._failed = summary, failed

    def step(self, step: Step, done: Done, started_ms: int) -> None:
        """Record a step that was performed or failed."""
        self._add(
            step.action,
            done.outcome,
            started_ms,
            topic=step.topic,
            partition=step.partition,
            why=step.why,
            before=step.before,
            after=done.after,
            changed_table=done.table,
            changed_version=done.version,
        )
        self.flush_if_due()

    def _killed(self, holder: LockHolder) -> None:
        """Record at once that an earlier run was killed, unless its end is recorded. Raise `KafkaStorageError` if that fails."""
        ended = (pads.field("run_id") == holder.run_id) & (pads.field("action") == RUN)
        if self._table.rows(holder.started_ms, ["run_id"], ended).num_rows:
            return  # killed before the lock file was emptied
        self._add(
            RUN,
            KILLED,
            holder.started_ms,
            run_id=holder.run_id,
            kafkalake_version=holder.kafkalake_version,
            why=f"{holder.process} ended without recording it",
            after={"found_by": self._run_id},
        )
        self.flush()

    def earlier(self, lock: JobLock | ParallelJobLock) -> None:
        """Record at once that earlier runs were killed. Raise `KafkaStorageError`, `LakeError` or `OSError` if that fails."""
        for holder in lock.unrecorded:
            self._killed(holder)
        lock.earlier_are_recorded()

    def flush_if_due(self) -> None:
        """Write the buffered rows if the oldest of them waits for long, or there are many. Raise as `flush`."""
        if len(self._rows) >= _ROWS_MAX or self._clock.monotonic_ms() - self._flushed_ms >= FLUSH_INTERVAL_MS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows. Raise `KafkaStorageError` if they cannot be written."""
        if self._rows:
            self._table.append(pa.Table.from_pylist(self._rows, schema=JOB_RUNS_SCHEMA))
        self._rows = []
        self._flushed_ms = self._clock.monotonic_ms()

    def _add(
        self,
        action: str,
        outcome: str,
        started_ms: int,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Buffer a row. others: any columns of `JOB_RUNS_SCHEMA`."""
        self._rows.append(
            {
                "run_id": self._run_id,
                "job": self._job,
                "kafkalake_version": __version__,
                "action": action,
                "outcome": outcome,
                "why": "",
                "before": [(name, str(value)) for name, value in (before or {}).items()],
                "after": [(name, str(value)) for name, value in (after or {}).items()],
                "started_at": started_ms * 1000,
                "ended_at": self._clock.now_ms() * 1000,
                **others,
            }
        )
