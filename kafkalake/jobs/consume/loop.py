"""`jobs/consume.py --group`: runs batches one after another, reports and records each, and stops cleanly on a signal."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from kafkalake.clock import SystemClock
from kafkalake.counted import counted
from kafkalake.errors import LakeError
from kafkalake.jobs.consume.consumption import Batch, Consumption
from kafkalake.jobs.frame import Done, Step
from kafkalake.jobs.lock import parallel_job_lock
from kafkalake.jobs.progress import print_table, require_shown, say, show
from kafkalake.jobs.record import JobRecord
from kafkalake.jobs.signals import end_run
from kafkalake.reader.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = "consume"
_LOOK_S = 1.0


class _Told(threading.Event):
    """Set once a run is to end, by the signal `number`."""

    number = 0


def consume_as_group(
    spark: SparkSession,
    parsed: argparse.Namespace,
    known: ReadOptions,
    options: Mapping[str, str],
    columns: Sequence[str],
) -> int:
    """Copy the group's unread records, and with `--stream` later ones. Return the exit code. Raise the errors of `Consumption`."""
    consumption = Consumption(
        spark, parsed.output, options, output_format=parsed.format, columns=columns, offsets_max=parsed.max_offsets
    )
    with consumption:
        if parsed.dry_run:
            batch = consumption.plan()
            require_shown(show(lambda: _show(batch)))
            return 0
        clock = SystemClock()
        lake, run_id = Path(known.lake), str(uuid.uuid4())
        with (
            _until_told() as told,
            parallel_job_lock(lake, _JOB, run_id, clock.now_ms()) as lock,
            JobRecord(lake, _JOB, run_id, clock, lock.is_recorded) as record,
        ):
            record.earlier(lock)
            records = batches = 0
            unshown = None
            while not told.is_set():
                with _naming_the_end_of(spark, told):
                    for batch in consumption.batches():
                        started_ms = clock.now_ms() - int(1000 * batch.seconds)
                        record.step(_step(batch, known), _done(batch, parsed.output), started_ms)
                        records, batches = records + batch.records, batches + 1
                        unshown = show(partial(_print, batch, parsed.output)) or unshown
                        if told.is_set():
                            break
                if not parsed.stream:
                    break
                record.flush_if_due()
                _wait(told, parsed.interval_seconds, spark)
            record.summarize({"records": records, "batches": batches})
    in_batches = counted(batches, "batch", "batches")
    total = f"{counted(records, 'record')} written to {parsed.output} as group {known.group}, in {in_batches}"
    require_shown(show(lambda: print(total)) or unshown)
    return 0


def _wait(told: _Told, seconds: float, spark: SparkSession) -> None:
    """Wait so long, or until `told` is set. Raise `LakeError` if Spark ends: nothing else of an idle stream needs it."""
    deadline = time.monotonic() + seconds
    while not told.wait(min(max(deadline - time.monotonic(), 0), _LOOK_S)):
        _require_running(spark, told)
        if time.monotonic() >= deadline:
            return


@contextlib.contextmanager
def _naming_the_end_of(spark: SparkSession, told: _Told) -> Iterator[None]:
    """Raise `LakeError` for an error that comes from the end of Spark, of which it says nothing."""
    try:
        yield
    except (PySparkException, Py4JError, OSError):
        _require_running(spark, told)
        raise


def _require_running(spark: SparkSession, told: _Told) -> None:
    """Raise `LakeError` if Spark has ended, or the signal if one has ended both, as systemd's does."""
    if _is_running(spark):
        return
    if told.is_set():
        end_run(told.number)
    raise LakeError("Spark has ended; the next run goes on where this one was")


def _is_running(spark: SparkSession) -> bool:
    """Return whether the JVM is there and has a session. It ends alone if it is killed, such as by SIGTERM to spark-submit."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


@contextlib.contextmanager
def _until_told() -> Iterator[_Told]:
    """Yield an event that SIGTERM or Ctrl-C sets: the current batch is finished, and no other is started.

    The second one is raised: a batch may take hours, and is repeated or found in the output by the next run.
    """
    told = _Told()

    def tell(number: int, frame: FrameType | None) -> None:
        if told.is_set():
            end_run(number)
        told.number = number
        told.set()
        with contextlib.suppress(RuntimeError):  # it came while a line was being printed
            say("consume: ends after this batch; to end now, send the signal again")

    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(batch: Batch) -> None:
    rows = [
        (topic, partition, batch.starts[topic, partition], end, end - batch.starts[topic, partition])
        for (topic, partition), end in sorted(batch.ends.items())
    ]
    print_table(["topic", "partition", "from", "to", "offsets"], rows, right=["partition", "from", "to", "offsets"])
    print("nothing was copied (--dry-run)")


def _print(batch: Batch, output: str) -> None:
    rate = batch.records / batch.seconds if batch.seconds else 0
    read = sum(1 for where, end in batch.ends.items() if end > batch.starts[where])
    print(
        f"{counted(batch.records, 'record')} of {counted(read, 'partition')} written to {output}, version {batch.version}, "
        f"in {batch.seconds:.1f} s ({rate:,.0f}/s)"
    )


def _step(batch: Batch, known: ReadOptions) -> Step:
    topics = sorted({topic for topic, _ in batch.ends})
    before = {f"{topic}-{partition}": start for (topic, partition), start in sorted(batch.starts.items())}
    return Step("copy", topics[0] if len(topics) == 1 else None, None, f"group {known.group} has not read it", before)


def _done(batch: Batch, output: str) -> Done:
    after = {f"{topic}-{partition}": end for (topic, partition), end in sorted(batch.ends.items())}
    return Done({"records": batch.records, **after}, output, batch.version)
