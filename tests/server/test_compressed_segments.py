"""A topic with `segment.compression` whose segment is small and whose records are large: starts and fetches stay bounded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compressed_batches import compressed, zeros
from contract.wire_client import WireClient, code, create_topic, encode, fetch, produce_values
from kafka_reference import Kafkalake
from worst_case import MIB, worst_case

pytestmark = pytest.mark.process

RECORDS = 400
VALUE_BYTES = 900_000
TOPIC = "zeros"


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    """A broker that was killed with 360 MB in a segment of less than 1 MiB, and was started again."""
    with Kafkalake(settings={"fetch.wire.cache.bytes": "0"}) as broker:
        idle = peak_bytes(broker.pid)
        with WireClient(broker.bootstrap_servers, timeout_s=120) as client:
            create_topic(client, TOPIC, segment_compression="zstd")
            request = encode("Produce", 9, 1, produce_values(TOPIC, compressed("zstd", zeros(VALUE_BYTES))))
            client.socket.sendall(request * RECORDS)
            for _ in range(RECORDS):
                answer = client.receive("Produce", 9, 1).responses[0].partition_responses[0]
                assert code(answer.error_code) == 0
        broker.kill()
        broker.start()
        assert peak_bytes(broker.pid) - idle < 100 * MIB
        yield broker


def peak_bytes(pid: int) -> int:
    """The most resident memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_what_was_recovered_is_all_there(broker: Kafkalake) -> None:
    size = next((broker.lake / "logs").rglob(f"{TOPIC}-0/*.arrow")).stat().st_size
    assert size < MIB
    with WireClient(broker.bootstrap_servers) as client:
        assert fetch(client, TOPIC, 0, max_wait=0).high_watermark == RECORDS


@pytest.mark.parametrize("partition_max_bytes", [1, MIB, 50 * MIB])
def test_a_fetch_takes_a_bounded_part(broker: Kafkalake, partition_max_bytes: int) -> None:
    with WireClient(broker.bootstrap_servers, timeout_s=60) as client, worst_case(broker) as cost:
        answer = fetch(client, TOPIC, 3, max_wait=0, partition_max_bytes=partition_max_bytes)
    assert 0 < len(answer.records) < 17 * MIB
    assert cost.held_ms < 100
    assert cost.peak_bytes < 100 * MIB


def test_a_search_by_time_reads_no_values(broker: Kafkalake) -> None:
    asked = [{"partition_index": 0, "timestamp": int(time.time() * 1000) + 3_600_000}]
    with WireClient(broker.bootstrap_servers) as client, worst_case(broker) as cost:
        answer = client.call("ListOffsets", 1, topics=[{"name": TOPIC, "partitions": asked}])
    assert answer.topics[0].partitions[0].offset == -1
    assert cost.held_ms < 100
    assert cost.peak_bytes < 50 * MIB
