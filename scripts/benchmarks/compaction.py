"""Compaction of 10 M records of 100 bytes with 1 M keys, 1 GB in ten segments, on two cores: `jobs/compaction.py` as users run it.

The rate counts records that were there before. It is given twice: of the job's own work, as `job_runs` has it, and of the whole
process with Spark's start. Memory is that of the process and all its children, sampled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from kafka_reference import PROJECT

from benchmarks.memory import Samples
from benchmarks.plan import Plan, progress
from benchmarks.rows import Row, number
from kafkalake.metadata.paths import JOB_RUNS
from kafkalake.metadata.tables.job_tables import JobTable
from kafkalake.wire.arrow_batch import batch_from_arrow

TOPIC = "states"
BATCH_RECORDS = 2_000
SEGMENTS = 10
PROMISED = 500_000
DRIVER_MEMORY_MIB = 2_048
"""`spark.driver.memory` of a session that kafkalake starts."""


def measure(plan: Plan) -> list[Row]:
    records, keys = plan.size(10_000_000, 1_000_000), plan.size(1_000_000, 100_000)
    with tempfile.TemporaryDirectory(prefix="kafkalake-benchmark-", dir=plan.directory) as directory:
        lake = Path(directory) / "lake"
        progress(f"compaction: writing {records:,} records with {keys:,} keys")
        size = _write(lake, records, keys)
        os.sync()
        cores = sorted(os.sched_getaffinity(0))[:2]
        started = time.monotonic()
        job = subprocess.Popen(
            [sys.executable, str(PROJECT / "jobs" / "compaction.py"), "--lake", str(lake)],
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            stdout=subprocess.PIPE,
            text=True,
        )
        with Samples(job.pid) as samples:
            output, _ = job.communicate(timeout=600)
        whole_s = time.monotonic() - started
        if job.returncode:
            raise RuntimeError(f"the job failed: {output}")
        progress(output.strip())
        (run,) = [row for row in JobTable(lake, JOB_RUNS).rows().to_pylist() if row["action"] == "compact"]
    after = dict(run["after"])
    work_s = float(after["seconds"])
    left = int(after["records"])
    if not 0.9 * keys <= left <= keys:
        raise RuntimeError(f"{left:,} records are left of {keys:,} keys")
    return [
        Row(
            "compaction",
            f"Compaction, {records:,} records, {keys:,} keys, {size / 1e9:.1f} GB, 2 cores: without (with) Spark's start",
            f"{number(records / work_s)} ({number(records / whole_s)}) records/s; {max(samples.mib):,.0f} MiB at most",
            "-",
            "-",
            f"{PROMISED:,} records/s",
            records / work_s >= PROMISED,
            {
                "work_s": work_s,
                "whole_s": whole_s,
                "records": records,
                "keys": keys,
                "bytes": size,
                "left": left,
                "mib": [round(value) for value in samples.mib],
                "driver_memory_mib": DRIVER_MEMORY_MIB,
            },
        )
    ]


def _write(lake: Path, records: int, keys: int) -> int:
    """A sealed lake, as a broker that was stopped leaves it; the bytes of its segments."""
    from dataclasses import replace

    from written_lake import WrittenLake

    written = WrittenLake(lake)
    written.create(TOPIC, index_interval_bytes=4096)
    row = written.topics[TOPIC]
    written.store.alter_topics([replace(row, config={"cleanup.policy": "compact"})])
    log = written.logs[TOPIC, 0]
    random = np.random.default_rng(1)
    width = 12
    value = bytes(100 - width)
    for begin in range(0, records, BATCH_RECORDS):
        numbers = random.integers(0, keys, BATCH_RECORDS)
        batch = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([b"%012d" % key for key in numbers.tolist()], pa.binary()),
                "value": pa.array([value] * BATCH_RECORDS, pa.binary()),
            }
        )
        log.append([batch_from_arrow(batch, timestamp_ms=1_000 + begin)], 0)
        if (begin + BATCH_RECORDS) % (records // SEGMENTS) == 0:
            log.advance_high_watermark(log.log_end_offset)
            log.roll()
    written.publish()
    size = sum(row.bytes for row in written.store.load_segments(TOPIC))
    written.close()
    return size
