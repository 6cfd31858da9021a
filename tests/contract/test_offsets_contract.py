"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords; the same from kafkalake and Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce
from contract.wire_transactions import find_coordinator

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def list_offset(
    client: WireClient, topic: str, timestamp: int, *, version: int = 9, partition: int = 0, **more: int
) -> Any:
    asked = {"partition_index": partition, "timestamp": timestamp, **more}
    answer = client.call("ListOffsets", version, replica_id=-1, topics=[{"name": topic, "partitions": [asked]}])
    return answer.topics[0].partitions[0]


@pytest.fixture
def timed(client: WireClient, topic: str) -> str:
    """A topic with records at 1000, 3000, 2000 and 4000 ms, offsets 0 to 3, one a batch."""
    create_topic(client, topic, 1, message_timestamp_before_max_ms=str(2**63 - 1))
    for timestamp in (1000, 3000, 2000, 4000):
        produce(client, topic, batch([(None, b"x")], timestamp=timestamp))
    return topic


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_knows_both_ends(client: WireClient, timed: str, version: int) -> None:
    assert list_offset(client, timed, LATEST, version=version).offset == 4
    assert list_offset(client, timed, EARLIEST, version=version).offset == 0


BY_TIME = {0: (0, 1000), 1000: (0, 1000), 1001: (1, 3000), 2500: (1, 3000), 3000: (1, 3000), 3001: (3, 4000)}


@pytest.mark.parametrize("timestamp", BY_TIME)
def test_the_first_record_at_or_after_a_time(client: WireClient, timed: str, timestamp: int) -> None:
    found = list_offset(client, timed, timestamp)
    assert (found.offset, found.timestamp) == BY_TIME[timestamp]
    assert found.leader_epoch == 0


def test_no_record_after_a_time(client: WireClient, timed: str) -> None:
    found = list_offset(client, timed, 4001)
    assert (code(found.error_code), found.offset, found.timestamp) == (0, -1, -1)


def test_the_record_with_the_largest_timestamp(client: WireClient, timed: str) -> None:
    produce(client, timed, batch([(None, b"x")], timestamp=3500))
    found = list_offset(client, timed, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (3, 4000)


def test_an_empty_partition(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert list_offset(client, topic, LATEST).offset == 0
    assert list_offset(client, topic, EARLIEST).offset == 0
    found = list_offset(client, topic, MAX_TIMESTAMP)
    assert (code(found.error_code), found.offset, found.timestamp) == (0, -1, -1)
    assert list_offset(client, topic, 5).offset == -1


def test_ends_of_tiers_where_nothing_is_tiered(client: WireClient, timed: str) -> None:
    assert list_offset(client, timed, EARLIEST_LOCAL).offset == 0
    found = list_offset(client, timed, LATEST_TIERED)
    assert (code(found.error_code), found.offset) == (0, -1)


def test_errors_of_partitions(client: WireClient, timed: str) -> None:
    assert code(list_offset(client, timed, LATEST, partition=5).error_code) == 3
    assert code(list_offset(client, timed + "-other", LATEST).error_code) == 3
    assert code(list_offset(client, timed, LATEST, current_leader_epoch=7).error_code) == 75
    twice = [{"partition_index": 0, "timestamp": LATEST}] * 2
    answer = client.call("ListOffsets", 6, replica_id=-1, topics=[{"name": timed, "partitions": twice}])
    assert {code(each.error_code) for each in answer.topics[0].partitions} == {42}


@pytest.mark.parametrize("version", (2, 3, 4))
def test_where_a_leader_epoch_ended(client: WireClient, timed: str, version: int) -> None:
    def end_of(epoch: int) -> tuple[int, int, int]:
        asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}]
        answer = client.call("OffsetForLeaderEpoch", version, topics=[{"topic": timed, "partitions": asked}])
        found = answer.topics[0].partitions[0]
        return code(found.error_code), found.leader_epoch, found.end_offset

    assert end_of(0) == (0, 0, 4)
    assert end_of(9) == (0, -1, -1)


def delete_before(client: WireClient, topic: str, offset: int, version: int = 2) -> tuple[int, int]:
    asked = [{"partition_index": 0, "offset": offset}]
    answer = client.call("DeleteRecords", version, topics=[{"name": topic, "partitions": asked}], timeout=10_000)
    found = answer.topics[0].partitions[0]
    return code(found.error_code), found.low_watermark


@pytest.mark.parametrize("version", (0, 1, 2))
def test_deleted_records_are_gone(client: WireClient, timed: str, version: int) -> None:
    assert delete_before(client, timed, 2, version) == (0, 2)
    assert list_offset(client, timed, EARLIEST).offset == 2
    assert code(fetch(client, timed, 1).error_code) == 1
    assert fetch(client, timed, 2).log_start_offset == 2
    assert list_offset(client, timed, 0).offset == 2


def test_delete_up_to_the_high_watermark_and_not_beyond(client: WireClient, timed: str) -> None:
    assert delete_before(client, timed, 5)[0] == 1
    assert delete_before(client, timed, -1) == (0, 4)
    assert list_offset(client, timed, EARLIEST).offset == 4
    assert delete_before(client, timed, 2) == (0, 4)
    assert delete_before(client, timed, -5)[0] == 1


def test_records_of_internal_topics_are_not_deleted(client: WireClient, topic: str) -> None:
    find_coordinator(client, topic, 0)
    assert delete_before(client, "__consumer_offsets", -1) == (17, -1)
