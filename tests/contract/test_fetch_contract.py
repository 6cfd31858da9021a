"""Fetch: offsets, limits, long poll, sessions, epochs; the same from kafkalake and Apache Kafka."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce, values_of
from kafka_reference import BrokerProcess

NO_EPOCH = -1


def partition(index: int, offset: int, *, max_bytes: int = 1_048_576, leader_epoch: int = NO_EPOCH) -> dict[str, Any]:
    return {
        "partition": index,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }


def ask(
    client: WireClient,
    topics: list[dict[str, Any]],
    *,
    version: int = 12,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: list[dict[str, Any]] | None = None,
    min_bytes: int = 0,
    max_wait: int = 100,
    max_bytes: int = 50_000_000,
) -> Any:
    values: dict[str, Any] = {"max_wait": max_wait, "min_bytes": min_bytes, "max_bytes": max_bytes, "topics": topics}
    if version >= 7:
        values |= {"session_id": session_id, "session_epoch": session_epoch, "forgotten_topics_data": forgotten or []}
    return client.call("Fetch", version, **values)


def told(answer: Any) -> dict[tuple[str, int], list[bytes | None]]:
    """(topic, partition) -> values, of what the answer mentions."""
    return {
        (topic.topic, each.partition_index): [value for _, value in values_of(each.records)]
        for topic in answer.responses
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_from_an_offset_on(client: WireClient, topic: str, version: int) -> None:
    topic_id = create_topic(client, topic)
    for number in range(3):
        produce(client, topic, batch([(None, b"%d" % number)]))
    named = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
    asked = partition(0, 1)
    for name, since in (("current_leader_epoch", 9), ("last_fetched_epoch", 12), ("log_start_offset", 5)):
        if version < since:
            del asked[name]
    if version >= 18:
        asked["high_watermark"] = 1
    answer = ask(client, [{**named, "partitions": [asked]}], version=version)
    got = answer.responses[0].partitions[0]
    assert code(got.error_code) == 0
    assert values_of(got.records) == [(1, b"1"), (2, b"2")]
    assert (got.high_watermark, got.last_stable_offset) == (3, 3)
    if version >= 5:
        assert got.log_start_offset == 0


def test_offsets_outside_of_the_log(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch([(None, b"x")]))
    assert code(fetch(client, topic, 2, max_wait=0).error_code) == 1
    assert code(fetch(client, topic, -1, max_wait=0).error_code) == 1
    at_end = fetch(client, topic, 1, max_wait=0)
    assert code(at_end.error_code) == 0
    assert not at_end.records


def test_partitions_that_are_not_there(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert code(fetch(client, topic, 0, partition=9).error_code) == 3
    assert code(fetch(client, topic + "-other", 0).error_code) == 3


def test_leader_epochs_of_the_past_and_of_the_future(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch([(None, b"x")]))
    assert code(fetch(client, topic, 0, leader_epoch=5).error_code) == 75
    assert code(fetch(client, topic, 0, leader_epoch=0).error_code) == 0


def test_a_batch_is_given_whole_from_its_middle(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch([(None, b"a"), (None, b"b"), (None, b"c")]))
    assert values_of(fetch(client, topic, 2).records) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_the_first_batch_comes_whatever_the_limits(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    for index in (0, 1):
        for _ in range(3):
            produce(client, topic, batch([(None, b"x" * 1000)]), partition=index)
    limited = fetch(client, topic, 0, partition_max_bytes=10)
    assert [offset for offset, _ in values_of(limited.records)] == [0]
    limited = fetch(client, topic, 1, max_bytes=10)
    assert [offset for offset, _ in values_of(limited.records)] == [1]
    both = ask(client, [{"topic": topic, "partitions": [partition(0, 0), partition(1, 0)]}], max_bytes=10)
    assert {key[1]: len(values) for key, values in told(both).items()} == {0: 1, 1: 0}


def test_partition_limit_cuts_between_batches(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    one = batch([(None, b"x" * 1000)])
    for _ in range(5):
        produce(client, topic, one)
    got = fetch(client, topic, 0, partition_max_bytes=3 * len(one))
    assert [offset for offset, _ in values_of(got.records)] == [0, 1, 2]


def test_long_poll_ends_when_its_time_is_up(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    begin = time.monotonic()
    got = fetch(client, topic, 0, max_wait=300)
    assert not got.records
    assert 0.29 <= time.monotonic() - begin < 5


def test_long_poll_ends_when_there_is_enough(client: WireClient, any_broker: BrokerProcess, topic: str) -> None:
    create_topic(client, topic)
    one = batch([(None, b"x" * 100)])

    def write() -> None:
        with WireClient(any_broker.bootstrap_servers) as other:
            for _ in range(3):
                produce(other, topic, one)

    writer = threading.Thread(target=write)
    begin = time.monotonic()
    writer.start()
    got = fetch(client, topic, 0, min_bytes=3 * len(one), max_wait=15_000)
    assert time.monotonic() - begin < 14
    assert len(values_of(got.records)) == 3
    writer.join()


class TestSessions:
    def test_only_what_changed_is_told(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic, 3)
        asked = [{"topic": topic, "partitions": [partition(index, 0) for index in range(3)]}]
        first = ask(client, asked, session_epoch=0)
        assert first.session_id != 0
        assert len(told(first)) == 3
        session = first.session_id
        second = ask(client, [], session_id=session, session_epoch=1)
        assert code(second.error_code) == 0
        assert told(second) == {}
        produce(client, topic, batch([(None, b"new")]), partition=1)
        third = ask(client, [], session_id=session, session_epoch=2)
        assert told(third) == {(topic, 1): [b"new"]}
        moved = [{"topic": topic, "partitions": [partition(1, 1)]}]
        fourth = ask(client, moved, session_id=session, session_epoch=3)
        assert told(fourth) in ({}, {(topic, 1): []})

    def test_partitions_come_and_go(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic, 2)
        for index in (0, 1):
            produce(client, topic, batch([(None, b"%d" % index)]), partition=index)
        first = ask(client, [{"topic": topic, "partitions": [partition(0, 0)]}], session_epoch=0)
        added = [{"topic": topic, "partitions": [partition(1, 0)]}]
        second = ask(client, added, session_id=first.session_id, session_epoch=1)
        assert told(second) == {(topic, 0): [b"0"], (topic, 1): [b"1"]}
        forgotten = [{"topic": topic, "partitions": [0]}]
        third = ask(client, [], forgotten=forgotten, session_id=first.session_id, session_epoch=2)
        assert told(third) == {(topic, 1): [b"1"]}

    def test_a_partition_with_records_waits_its_turn(self, client: WireClient, topic: str) -> None:
        """With room for one batch at a time, each partition is served in turn."""
        create_topic(client, topic, 3)
        for index in range(3):
            produce(client, topic, batch([(None, b"x" * 500)]), partition=index)
        asked = [{"topic": topic, "partitions": [partition(index, 0) for index in range(3)]}]
        answer = ask(client, asked, session_epoch=0, max_bytes=600)
        served = [key[1] for key, values in told(answer).items() if values]
        for epoch in (1, 2):
            moved = [{"topic": topic, "partitions": [partition(served[-1], 1)]}]
            answer = ask(client, moved, session_id=answer.session_id, session_epoch=epoch, max_bytes=600)
            served += [key[1] for key, values in told(answer).items() if values]
        assert sorted(served) == [0, 1, 2]

    def test_wrong_epochs_and_ids(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        asked = [{"topic": topic, "partitions": [partition(0, 0)]}]
        first = ask(client, asked, session_epoch=0)
        assert code(ask(client, [], session_id=first.session_id, session_epoch=5).error_code) == 71
        other = first.session_id % 2**30 + 1
        assert code(ask(client, [], session_id=other, session_epoch=1).error_code) == 70
        assert code(ask(client, [], session_id=first.session_id, session_epoch=1).error_code) == 0

    def test_a_closed_session_is_gone(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        asked = [{"topic": topic, "partitions": [partition(0, 0)]}]
        first = ask(client, asked, session_epoch=0)
        closing = ask(client, asked, session_id=first.session_id, session_epoch=-1)
        assert closing.session_id == 0
        assert code(ask(client, [], session_id=first.session_id, session_epoch=1).error_code) == 70

    def test_an_error_is_told_each_time(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        asked = [{"topic": topic, "partitions": [partition(0, 0), partition(9, 0)]}]
        first = ask(client, asked, session_epoch=0)
        for epoch in (1, 2):
            again = ask(client, [], session_id=first.session_id, session_epoch=epoch)
            errors = {each.partition_index: code(each.error_code) for each in again.responses[0].partitions}
            assert errors == {9: 3}


def test_unknown_topic_ids_are_an_error_of_the_partition(client: WireClient, topic: str) -> None:
    from uuid import UUID

    answer = ask(client, [{"topic_id": UUID(int=12345), "partitions": [partition(0, 0)]}], version=13, session_epoch=-1)
    assert code(answer.responses[0].partitions[0].error_code) == 100
