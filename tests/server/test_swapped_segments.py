"""Jobs that replace sealed segments, seen by a broker that runs, one that starts, Spark's plan and `log verify`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest
from kafka_clients import Confluent, Record, create_topic
from kafka_reference import Kafkalake
from long_runs import first_of
from rewritten_segments import rewritten
from waiting import wait_until

from kafkalake.cli.log import problems_of
from kafkalake.clock import SystemClock
from kafkalake.errors import SegmentsChangedError
from kafkalake.metadata.cleaning import swap
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.schemas import SegmentRow
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.read_options import parse_options

RECORDS = [Record(b"k%d" % (i % 7), b"v%d" % i + bytes(300), timestamp_ms=1_700_000_000_000 + i) for i in range(400)]
SETTINGS = {"file.delete.delay.ms": "1000", "internal.segment.bytes": "14000"}
PUBLISHED_SOON = {"metadata.publish.interval.ms": "200"}
CLOCK = SystemClock()


def write_topic(broker: Kafkalake) -> tuple[DeltaMetadataStore, list[SegmentRow]]:
    """400 records in several sealed segments and an active one, published; the sealed ones."""
    create_topic(broker.bootstrap_servers, "clicks", config=SETTINGS)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for begin in range(0, 400, 20):
        for record in RECORDS[begin : begin + 20]:
            producer.produce("clicks", record.value, record.key, 0, timestamp=record.timestamp_ms)
        assert producer.flush(30) == 0
    store = DeltaMetadataStore(broker.lake)
    wait_until(lambda: len(store.load_segments("clicks")) >= 5, timeout_s=90)
    wait_until(lambda: [row.high_watermark for row in store.load_partitions()] == [400], timeout_s=90)
    return store, store.load_segments("clicks")


def values_from(broker: Kafkalake, start: int) -> list[bytes | None]:
    return [
        record.value for record in Confluent().read(broker.bootstrap_servers, "clicks", 0, start, len(RECORDS) - start)
    ]


def planned(lake: Path) -> tuple[int, set[str]]:
    """Log start and segment files of a plan as Spark makes it."""
    (snapshot,) = begin_read(parse_options({"lake": str(lake), "path": "clicks"})).partitions
    return snapshot.start_offset, {Path(segment.path).name for segment in snapshot.segments}


@pytest.mark.parametrize("stopped", first_of(["running", "killed", "stopped"], 2))
def test_every_reader_follows_a_swap_and_the_old_files_go(
    kafkalake_broker: Callable[..., Kafkalake], stopped: str
) -> None:
    broker = kafkalake_broker(settings=PUBLISHED_SOON)
    store, rows = write_topic(broker)
    if stopped != "running":
        broker.stop() if stopped == "stopped" else broker.kill()
    replaced, rest = rows[:3], rows[3:]
    new = rewritten(broker.lake, replaced, 1)
    swap(broker.lake, store, replaced, [new], CLOCK)

    assert store.load_segments("clicks")[: len(rest) + 1] == [new, *rest]
    start, files = planned(broker.lake)
    assert (start, Path(new.path).name in files) == (0, True)
    assert not files & {Path(row.path).name for row in replaced}
    assert list(problems_of(broker.lake)) == []
    with pytest.raises(SegmentsChangedError):
        swap(broker.lake, store, replaced, [new], CLOCK)
    if stopped != "running":
        assert store.load_snapshot().segments[0] == new, "time travel finds the new version without a broker"
        broker.start()
    assert values_from(broker, 0) == [record.value for record in RECORDS]
    wait_until(lambda: not any((broker.lake / row.path).exists() for row in replaced), timeout_s=40)
    assert values_from(broker, 0) == [record.value for record in RECORDS]
    wait_until(lambda: store.load_snapshot().segments[0] == new, timeout_s=90)
    broker.kill()
    broker.start()
    assert values_from(broker, 5) == [record.value for record in RECORDS[5:]]
    assert list(problems_of(broker.lake)) == []
    assert new in store.load_segments("clicks")


def test_a_swap_to_files_that_are_not_there_is_refused_and_the_next_one_followed(
    kafkalake_broker: Callable[..., Kafkalake],
) -> None:
    """A wrong job, or two that do not see each other: Delta names what is not whole, and the old files are all there is."""
    broker = kafkalake_broker(settings=PUBLISHED_SOON)
    store, rows = write_topic(broker)
    missing, short, right = rows[:2], rows[2:3], rows[3:4]
    absent = replace(rewritten(broker.lake, missing, 1), path=missing[0].path)
    (broker.lake / missing[0].path).with_name(f"{missing[0].base_offset:020d}-1.arrow").unlink()
    cut = rewritten(broker.lake, short, 1)
    os.truncate(broker.lake / cut.path, cut.bytes - 400)
    swap(broker.lake, store, missing, [absent], CLOCK)
    swap(broker.lake, store, short, [cut], CLOCK)
    new = rewritten(broker.lake, right, 1)
    swap(broker.lake, store, right, [new], CLOCK)
    wait_until(lambda: not any((broker.lake / row.path).exists() for row in right), timeout_s=40)
    assert all((broker.lake / row.path).exists() for row in (*missing, *short))
    assert values_from(broker, 0) == [record.value for record in RECORDS]
    broker.kill()
    broker.start()
    assert values_from(broker, 0) == [record.value for record in RECORDS]
    assert all((broker.lake / row.path).exists() for row in (*missing, *short))
    wait_until(
        lambda: (
            {(row.base_offset, row.generation) for row in store.load_segments("clicks")[:4]}
            == {(row.base_offset, 1 if row in right else 0) for row in rows[:4]}
        ),
        timeout_s=30,
    )
