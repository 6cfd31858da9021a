"""Delayed delivery: how late due records are at a consumer while many others wait, and what ten million that wait cost.

A record's value begins with its due time (ms) and its number, so that the consumer sees what is lost, doubled, early or disordered.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
from kafka_reference import Kafkalake, create_topic

from benchmarks.plan import Plan, progress
from benchmarks.rows import Row
from kafkalake import Consumer, Producer
from kafkalake.delayed_headers import DELIVER_AT

TOPIC = "delayed"
PARTITIONS = 4
VALUE_BYTES = 100
ROWS = 50_000
"""Rows of a batch that is sent."""
HOUR_MS = 3_600_000
LATENESS_MS_MAX = 200
MEMORY_MIB_MAX = 512
START_S_MAX = 10
WAIT_S = 600
IDLE_S = 5.0

Int64s = npt.NDArray[np.int64]


def measure(plan: Plan) -> Iterator[Row]:
    if plan.wants("delayed-lateness"):
        yield _lateness(plan)
    if plan.wants("delayed-memory") or plan.wants("delayed-start"):
        yield from _many_waiting(plan)


def _lateness(plan: Plan) -> Row:
    waiting, rate = plan.size(1_000_000, 100_000), plan.size(10_000, 2_000)
    seconds = plan.size(60, 10)
    with plan.kafkalake() as broker:
        create_delayed_topic(broker)
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
            _send_far(producer, waiting)
            progress(f"delayed: {waiting:,} wait; {rate:,} a second come due for {seconds} s")
            begin_ms = _now_ms() + 15_000
            due = begin_ms + np.arange(rate * seconds, dtype=np.int64) * 1000 // rate
            _send(producer, due)
            producer.flush(WAIT_S)
        if _now_ms() > begin_ms:
            raise TimeoutError(
                f"the records were acknowledged {_now_ms() - begin_ms} ms after the first of them was due"
            )
        at_consumer, at_broker = _consume(broker, due)
    p50, p99, most = (float(np.percentile(at_consumer, percent)) for percent in (50, 99, 100))
    return Row(
        "delayed-lateness",
        f"{rate:,} records a second come due, {waiting / 1e6:g} million wait: from due to a consumer, p99",
        f"{p99:.0f} ms (median {p50:.0f}, at most {most:.0f})",
        "-",
        "-",
        f"{LATENESS_MS_MAX} ms",
        p99 <= LATENESS_MS_MAX,
        {
            "waiting": waiting,
            "rate": rate,
            "seconds": seconds,
            "p50_ms": p50,
            "p99_ms": p99,
            "max_ms": most,
            "by_timestamp": {f"p{percent}_ms": float(np.percentile(at_broker, percent)) for percent in (50, 99, 100)},
        },
    )


def create_delayed_topic(broker: Kafkalake) -> None:
    """Create the topic."""
    create_topic(broker, TOPIC, partitions=PARTITIONS, config={"delayed.delivery.enable": "true"})


def _send_far(producer: Producer, records: int) -> None:
    """Send records that are due between an hour and a day from now, in no order."""
    random = np.random.default_rng(1)
    due = _now_ms() + random.integers(HOUR_MS, 24 * HOUR_MS, records)
    began = time.monotonic()
    for start in range(0, records, 1_000_000):
        _send(producer, due[start : start + 1_000_000])
        producer.flush(WAIT_S)
        progress(f"delayed: {min(start + 1_000_000, records):,} sent in {time.monotonic() - began:.0f} s")


def _send(producer: Producer, due: Int64s) -> None:
    """Send a record for each due time, by turns to the partitions."""
    for start in range(0, len(due), ROWS):
        part = due[start : start + ROWS]
        rows = len(part)
        values = np.zeros((rows, VALUE_BYTES), dtype=np.uint8)
        values[:, :16] = np.stack([part, np.arange(start, start + rows)], axis=1).view(np.uint8)
        texts = pa.array(part).cast(pa.string()).cast(pa.binary())
        pairs = pa.StructArray.from_arrays([pa.array([DELIVER_AT] * rows), texts], ["key", "value"])
        batch = pa.record_batch(
            {
                "value": pa.Array.from_buffers(
                    pa.binary(VALUE_BYTES), rows, [None, pa.py_buffer(values.tobytes())]
                ).cast(pa.binary()),
                "headers": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), pairs),
                "partition": pa.array((np.arange(start, start + rows) % PARTITIONS).astype(np.int32)),
            }
        )
        producer.send_arrow(TOPIC, batch)


def _consume(broker: Kafkalake, due: Int64s) -> tuple[Int64s, Int64s]:
    """Return for each record how late it was at the consumer, and by its timestamp. Raise `AssertionError` if one is early,
    out of order or there twice, `TimeoutError` if one does not come."""
    received, stamped = np.zeros(len(due), dtype=np.int64), np.zeros(len(due), dtype=np.int64)
    last = np.zeros(PARTITIONS, dtype=np.int64)
    found = 0
    deadline_ms = due[-1] + WAIT_S * 1000
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        while found < len(due):
            if _now_ms() > deadline_ms:
                raise TimeoutError(f"{len(due) - found:,} of {len(due):,} records were not delivered")
            for batch in consumer.poll_arrow(1.0):
                now_ms = _now_ms()
                values = batch.column("value")
                times, numbers = _words(values).T
                partition = batch.column("partition")[0].as_py()
                assert (np.diff(np.concatenate([[last[partition]], times])) >= 0).all(), "out of order"
                last[partition] = times[-1]
                assert (due[numbers] == times).all()
                assert not received[numbers].any(), "delivered twice"
                received[numbers] = now_ms
                stamped[numbers] = batch.column("timestamp").cast(pa.int64()).to_numpy()
                found += len(batch)
    lateness = received - due
    assert (stamped >= due).all(), "delivered early"
    return lateness, stamped - due


def _words(values: pa.Array) -> Int64s:
    """Return the due time and the number in each value."""
    data = b"".join(value[:16] for value in values.to_pylist())
    return np.frombuffer(data, dtype=np.int64).reshape(-1, 2)


def _many_waiting(plan: Plan) -> Iterator[Row]:
    records = plan.size(10_000_000, 500_000)
    with plan.kafkalake() as broker:
        create_delayed_topic(broker)
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
            _send(producer, np.full(ROWS, _now_ms() + 1000))
            producer.flush(WAIT_S)
            time.sleep(IDLE_S)
            idle = _rss_mib(broker)
            _send_far(producer, records)
        time.sleep(IDLE_S)
        full = _rss_mib(broker)
        broker.stop()
        without = _rss_of_new_broker(plan)
        os.sync()
        starts = [_start_s(broker) for _ in range(3)]
        time.sleep(IDLE_S)
        restarted = _rss_mib(broker)
    more = max(full - idle, restarted - without)
    yield Row(
        "delayed-memory",
        f"broker memory (RSS) with {records / 1e6:g} million records that wait up to a day, beyond that without",
        f"{more:,.0f} MiB ({full - idle:,.0f} after they were sent, {restarted - without:,.0f} after a start)",
        "-",
        "-",
        f"{MEMORY_MIB_MAX} MiB",
        more <= MEMORY_MIB_MAX,
        {"records": records, "idle_mib": idle, "full_mib": full, "new_mib": without, "restarted_mib": restarted},
    )
    yield Row(
        "delayed-start",
        f"start after SIGKILL with {records / 1e6:g} million records that wait, until one that came due meanwhile is delivered",
        f"at most {max(starts):.1f} s",
        "-",
        "-",
        f"{START_S_MAX} s",
        max(starts) <= START_S_MAX,
        {"records": records, "seconds": starts},
    )


def _start_s(broker: Kafkalake) -> float:
    """Return the seconds from the start of a broker that was killed until what came due meanwhile is delivered."""
    if not broker.is_running():
        broker.start()
    partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign(partitions)
        for partition, end in consumer.end_offsets(partitions).items():
            consumer.seek(partition, end)
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            _send(producer, np.array([_now_ms() + 2_000]))
            producer.flush(WAIT_S)
        broker.kill()
        time.sleep(2.5)
        began = time.monotonic()
        broker.start()
        while not consumer.poll(0.05):
            if time.monotonic() - began > WAIT_S:
                raise TimeoutError("what came due was not delivered")
    return time.monotonic() - began


def _rss_of_new_broker(plan: Plan) -> float:
    """Return the memory of a broker that has just delivered a record, MiB."""
    with plan.kafkalake() as broker:
        create_delayed_topic(broker)
        _start_s(broker)
        time.sleep(IDLE_S)
        return _rss_mib(broker)


def _rss_mib(broker: Kafkalake) -> float:
    process = psutil.Process(broker.pid)
    return float(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 2**20)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
