"""Committed offsets: acknowledged is durable, in Delta soon and once, and the journal behind them stays short."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from contract.test_consumer_groups_contract import beat, describe, enter_consumer, partitions
from contract.test_groups_contract import enter
from contract.wire_client import WireClient, code, create_topic
from deltalake import DeltaTable
from kafka_reference import Kafkalake
from long_runs import first_of
from waiting import wait_until

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.storage.state import read_state

PARTITIONS = 100
TIMEOUT_S = 30
ONE_JOURNAL = {"offsets.topic.num.partitions": "1"}


def coordinator(broker: Kafkalake, group: str) -> WireClient:
    client = WireClient(broker.bootstrap_servers)
    found = client.call("FindCoordinator", 4, key_type=0, coordinator_keys=[group]).coordinators[0]
    assert code(found.error_code) == 0
    return client


def commit(client: WireClient, group: str, offsets: dict[int, int]) -> None:
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
        for index, offset in offsets.items()
    ]
    topics = [{"name": "clicks", "partitions": partitions}]
    answer = client.call(
        "OffsetCommit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    assert {code(each.error_code) for each in answer.topics[0].partitions} == {0}


def committed(client: WireClient, group: str) -> dict[int, int]:
    answer = client.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)
    assert code(answer.error_code) == 0
    return {each.partition_index: each.committed_offset for topic in answer.topics for each in topic.partitions}


def rows(lake: Path) -> list[dict[str, Any]]:
    return DeltaTable(lake / "metadata" / "group_offsets").to_pyarrow_table().to_pylist()


def test_a_commit_is_in_delta_within_the_publish_interval(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker()
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 1)
        commit(client, "etl", {0: 42})
        began = time.monotonic()
        wait_until(lambda: rows(broker.lake))
        assert time.monotonic() - began < 5  # 1 s, and what a busy machine adds
    (row,) = rows(broker.lake)
    assert (row["group"], row["topic"], row["partition"], row["offset"]) == ("etl", "clicks", 0, 42)


@pytest.mark.parametrize("interval_ms", first_of(["20", "100000"], 1))
def test_what_was_acknowledged_survives_kills_and_is_published_once(kafkalake_broker: Any, interval_ms: str) -> None:
    """With the long interval nothing but the stop publishes: everything is replayed from the journal."""
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": interval_ms, **ONE_JOURNAL})
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 8)
    acknowledged: dict[int, int] = {}
    for kill in range(4):
        with coordinator(broker, "etl") as client:
            assert committed(client, "etl") == acknowledged
            for number in range(60):
                offsets = {number % 8: kill * 1_000 + number, (number + 3) % 8: kill * 1_000 + number}
                commit(client, "etl", offsets)
                acknowledged |= offsets
        broker.kill()
        broker.start()
    broker.restart()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == acknowledged
    published = rows(broker.lake)
    places = [(row["partition"], row["journal_offset"]) for row in published]
    assert len(places) == len(set(places))
    newest = {row["partition"]: row["offset"] for row in sorted(published, key=lambda row: row["journal_offset"])}
    assert newest == acknowledged


@pytest.mark.parametrize(
    "flush_messages", first_of([pytest.param(2**63 - 1, id="page cache"), pytest.param(1, id="forced to the disk")], 1)
)
def test_the_journal_is_trimmed_and_groups_are_not_lost(kafkalake_broker: Any, flush_messages: int) -> None:
    settings = {
        "metadata.publish.interval.ms": "100",
        "log.flush.interval.messages": str(flush_messages),
        "group.consumer.session.timeout.ms": "60000",
    }
    broker = kafkalake_broker(settings=settings | ONE_JOURNAL)
    state = broker.lake / "logs" / "0" / "__consumer_offsets-0" / "state"
    with coordinator(broker, "stable") as client:
        create_topic(client, "clicks", PARTITIONS)
        member = enter(client, "stable", session_timeout=60_000)
        for name in ("one", "two"):
            enter_consumer(client, "new", "clicks", name)
        commit(client, "moved", {0: 7})
        enter_consumer(client, "moved", "clicks", "one")
        for number in range(60):
            commit(client, "etl", dict.fromkeys(range(PARTITIONS), number))
        wait_until(lambda: (found := read_state(state)) is not None and found.log_start_offset >= 5_000)
        for number in range(60, 80):
            commit(client, "etl", dict.fromkeys(range(PARTITIONS), number))
    broker.kill()
    broker.start()
    with coordinator(broker, "stable") as client:
        assert committed(client, "etl") == dict.fromkeys(range(PARTITIONS), 79)
        (group,) = client.call("DescribeGroups", 5, groups=["stable"]).groups
        assert (group.group_state, [each.member_id for each in group.members]) == ("Stable", [member.member_id])
        heard = client.call("Heartbeat", 4, group_id="stable", generation_id=1, member_id=member.member_id)
        assert code(heard.error_code) == 0
        new = describe(client, "new")
        assert {each.member_id: each.member_epoch for each in new.members} == {"one": 1, "two": 2}
        assert len(partitions(new.members[0].target_assignment)) == PARTITIONS // 2
        assert code(beat(client, "new", "two", 2).error_code) == 0
        assert committed(client, "moved") == {0: 7}
        assert code(beat(client, "moved", "one", 1).error_code) == 0


@pytest.mark.long
def test_a_hundred_thousand_offsets_are_there_seconds_after_a_start(kafkalake_broker: Any) -> None:
    """Some of them from Delta, the rest from the journal."""
    groups, offsets = [f"group-{number}" for number in range(1_000)], dict.fromkeys(range(PARTITIONS), 7)
    broker = kafkalake_broker()
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", PARTITIONS)
        for group in groups:
            commit(client, group, offsets)
        wait_until(lambda: rows(broker.lake))
    broker.kill()
    began = time.monotonic()
    broker.start()
    with coordinator(broker, "etl") as client:
        assert all(committed(client, group) == offsets for group in (groups[0], groups[499], groups[-1]))
        assert len(client.call("ListGroups", 4, states_filter=[]).groups) == len(groups)
    assert time.monotonic() - began < 20  # about 4 s, and what a busy machine adds


def test_offsets_of_a_deleted_topic_go(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "50"})
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 1)
        commit(client, "etl", {0: 42})
        client.call("DeleteTopics", 5, topic_names=["clicks"], timeout=10_000)
        wait_until(lambda: not committed(client, "etl"))
        wait_until(lambda: any(row["offset"] is None for row in rows(broker.lake)))
    broker.restart()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == {}


def test_members_that_wait_are_sent_away_when_the_broker_stops(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings={"group.initial.rebalance.delay.ms": "600000"})
    with coordinator(broker, "etl") as client:
        sent = client.send(
            "JoinGroup",
            3,
            group_id="etl",
            session_timeout=10_000,
            rebalance_timeout=600_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        with WireClient(broker.bootstrap_servers) as other:
            wait_until(
                lambda: [each.group_id for each in other.call("ListGroups", 4, states_filter=[]).groups] == ["etl"]
            )
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 10
        answer = client.receive("JoinGroup", 3, sent)
    assert code(answer.error_code) == 16


def test_a_journal_that_lost_its_tail_gives_no_offset_twice(kafkalake_broker: Any) -> None:
    """After a loss of power Delta, which is forced to the disk, may know more than the journal."""
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "20", **ONE_JOURNAL})
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 3)
        for number in range(20):
            commit(client, "etl", {0: number, 1: number})
    broker.stop()
    shutil.rmtree(broker.lake / "logs" / "0" / "__consumer_offsets-0")
    broker.start()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == {0: 19, 1: 19}
        commit(client, "etl", {0: 5, 2: 7})
        assert committed(client, "etl") == {0: 5, 1: 19, 2: 7}
    broker.kill()
    broker.start()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == {0: 5, 1: 19, 2: 7}
    broker.restart()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == {0: 5, 1: 19, 2: 7}


def test_a_damaged_journal_does_not_keep_the_broker_from_starting(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "20", **ONE_JOURNAL})
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 3)
        for number in range(20):
            commit(client, "etl", {0: number})
        wait_until(lambda: 19 in [row["offset"] for row in rows(broker.lake)])
    broker.stop()
    (segment,) = (broker.lake / "logs" / "0" / "__consumer_offsets-0").glob("*.arrow")
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    segment.write_bytes(damaged)
    broker.start()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == {0: 19}
        commit(client, "etl", {0: 25})
    assert "damaged journal" in broker.stderr_tail(200)
    broker.kill()
    broker.start()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == {0: 25}


@pytest.mark.parametrize("published", [True, False])
def test_a_kill_between_a_topics_deletion_and_its_tombstones_leaves_no_offset_to_the_next_topic_of_that_name(
    kafkalake_broker: Any, published: bool
) -> None:
    """The deletion is in Delta, and nothing else of it is anywhere."""
    interval_ms = "20" if published else "1000000"
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": interval_ms, **ONE_JOURNAL})
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 1)
        commit(client, "etl", {0: 100})
        if published:
            wait_until(lambda: rows(broker.lake))
            assert rows(broker.lake)[0]["topic_id"] is not None
    broker.kill()
    store = DeltaMetadataStore(broker.lake, create=False)
    store.delete_topics([row.topic_id for row in store.load_topics() if row.topic == "clicks"])
    broker.start()
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 1)
        assert committed(client, "etl") == {}
        commit(client, "etl", {0: 7})
    broker.kill()
    broker.start()
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == {0: 7}
