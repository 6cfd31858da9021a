"""Journals that lack records: what follows the damage counts, at every start after it, until the damaged segment is gone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from contract.wire_client import WireClient, create_topic
from contract.wire_transactions import NONE, TransactionalClient, end_offsets, state_of
from faults.test_group_offsets_durable import commit, committed, coordinator
from kafka_reference import Kafkalake
from waiting import wait_until

from kafkalake.storage.state import read_state

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "file.delete.delay.ms": "0",
}
NEVER_PUBLISHED = {"metadata.publish.interval.ms": "1000000"}
SOON_PUBLISHED = {"metadata.publish.interval.ms": "100"}


def segments(broker: Kafkalake, topic: str) -> list[Path]:
    return sorted((broker.lake / "logs" / "0" / f"{topic}-0").glob("*.arrow"))


def lose_tail(broker: Kafkalake, topic: str) -> None:
    """The last of the newest segment did not reach the disk."""
    path = segments(broker, topic)[-1]
    os.truncate(path, path.stat().st_size - 64)


def flip_bit(broker: Kafkalake, topic: str) -> None:
    """In the body of one of the newest segment's last messages."""
    path = segments(broker, topic)[-1]
    data = bytearray(path.read_bytes())
    data[-700] ^= 0x10
    path.write_bytes(data)


def kill_and_start(broker: Kafkalake, times: int = 1) -> None:
    for _ in range(times):
        broker.kill()
        broker.start()


@pytest.mark.parametrize("damage", [lose_tail, flip_bit])
def test_offsets_committed_after_damage_outlive_every_kill(kafkalake_broker: Any, damage: Any) -> None:
    broker = kafkalake_broker(settings=SETTINGS | NEVER_PUBLISHED)
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 8)
        for number in range(20):
            commit(client, "etl", {number % 8: number})
    broker.kill()
    damage(broker, "__consumer_offsets")
    broker.start()
    with coordinator(broker, "etl") as client:
        offsets = committed(client, "etl")
        assert len(offsets) == 8 and sum(offsets.values()) >= sum(range(12, 20)) - 3 * 8
        commit(client, "etl", {0: 77})
    kill_and_start(broker)
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == offsets | {0: 77}
        commit(client, "etl", {1: 78})
    kill_and_start(broker, times=2)
    with coordinator(broker, "etl") as client:
        assert committed(client, "etl") == offsets | {0: 77, 1: 78}


@pytest.mark.parametrize("damage", [lose_tail, flip_bit])
def test_transactions_begun_after_damage_end_and_no_epoch_comes_twice(kafkalake_broker: Any, damage: Any) -> None:
    broker = kafkalake_broker(settings=SETTINGS | NEVER_PUBLISHED)
    given: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}

    def begin(client: WireClient, name: str, *, timeout_ms: int = 60_000) -> TransactionalClient:
        producer = TransactionalClient(client, name, version_2=True)
        assert producer.init(timeout_ms) == NONE
        given[name].append((producer.producer_id, producer.epoch))
        assert producer.produce("clicks", [b"x"]) == NONE
        return producer

    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "clicks", 1)
        for _ in range(3):
            for name in given:
                assert begin(client, name).end(committed=True) == NONE
        begin(client, "a")
    broker.kill()
    damage(broker, "__transaction_state")
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        begin(client, "b", timeout_ms=2_000)
    kill_and_start(broker, times=2)
    with WireClient(broker.bootstrap_servers) as client:
        wait_until(lambda: state_of(client, "b") == "CompleteAbort")
        assert begin(client, "a").end(committed=True) == NONE
        end = end_offsets(client, "clicks", 1, read_committed=False)
        wait_until(lambda: end_offsets(client, "clicks", 1, read_committed=True) >= end)
    for epochs in given.values():
        assert sorted(set(epochs)) == epochs


def test_a_damaged_segment_goes_once_delta_has_what_follows_it(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings=SETTINGS | NEVER_PUBLISHED)
    with coordinator(broker, "etl") as client, WireClient(broker.bootstrap_servers) as other:
        create_topic(client, "clicks", 8)
        commit(client, "etl", {number: number for number in range(8)})
        producer = TransactionalClient(other, "copier", version_2=True)
        assert producer.init() == NONE
        producer.write("clicks", {0: [b"x"]})
        assert producer.end(committed=True) == NONE
        # A kill before the last record is acknowledged leaves a torn tail, which is no damage.
        wait_until(lambda: state_of(other, "copier") == "CompleteCommit")
    broker.kill()
    journals = ("__consumer_offsets", "__transaction_state")
    damaged = [segments(broker, topic)[-1] for topic in journals]
    for topic in journals:
        lose_tail(broker, topic)
    mended = kafkalake_broker(settings=SETTINGS | SOON_PUBLISHED)
    with coordinator(mended, "etl") as client, WireClient(mended.bootstrap_servers) as other:
        offsets = committed(client, "etl")
        wait_until(lambda: not any(path.exists() for path in damaged))
        again = TransactionalClient(other, "copier", version_2=True)
        assert again.init() == NONE
        assert (again.producer_id, again.epoch) > (producer.producer_id, producer.epoch)
    kill_and_start(mended)
    assert mended.stderr_path.read_text().count("damaged journal") == len(journals)  # of the first start only
    with coordinator(mended, "etl") as client:
        assert committed(client, "etl") == offsets
    for topic in journals:
        state = read_state(mended.lake / "logs" / "0" / f"{topic}-0")
        assert state is not None and state.log_start_offset > 0
