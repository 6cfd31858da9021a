"""Transactional ids: in Delta soon and not torn, the journal behind them short, and expired ones gone for good."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from contract.wire_client import WireClient, code, create_topic
from contract.wire_transactions import NONE, TransactionalClient, end_offsets, find_coordinator, state_of
from deltalake import DeltaTable
from kafka_reference import Kafkalake
from long_runs import first_of
from waiting import wait_until

from kafkalake.broker.transactions.ending import fence
from kafkalake.broker.transactions.records import TransactionRecord, encode
from kafkalake.broker.transactions.states import State
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.record.build import build_batch
from kafkalake.storage.state import read_state

TRANSACTIONAL_ID_NOT_FOUND = "105"
ONE_JOURNAL = {"transaction.state.log.num.partitions": "1"}
PARTITIONS = 4
PUBLISHES = 6


def rows(lake: Path) -> list[dict[str, Any]]:
    return DeltaTable(lake / "metadata" / "transactions").to_pyarrow_table().to_pylist()


def journal_start(broker: Kafkalake) -> int:
    state = read_state(broker.lake / "logs" / "0" / "__transaction_state-0" / "state")
    return 0 if state is None else state.log_start_offset


def test_delta_has_the_newest_state_of_each_id(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "50"})
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "clicks", 2)
        for number in range(3):
            producer = TransactionalClient(client, f"id-{number}", version_2=True)
            assert producer.init(40_000) == NONE
            producer.write("clicks", {0: [b"x"], 1: [b"y"]})
            if number:
                assert producer.end(committed=number == 1) == NONE
        wait_until(
            lambda: [row["state"] for row in rows(broker.lake)] == ["Ongoing", "CompleteCommit", "CompleteAbort"]
        )
    first = rows(broker.lake)[0]
    assert first["partitions"] == [{"topic": "clicks", "partition": 0}, {"topic": "clicks", "partition": 1}]
    assert (first["timeout"], first["producer_epoch"], first["client_version"]) == (40_000, 0, 2)
    assert abs(first["started_at"].timestamp() - time.time()) < 60


@pytest.mark.parametrize(
    "flush_messages", first_of([pytest.param(1, id="forced to the disk"), pytest.param(2**63 - 1, id="page cache")], 1)
)
def test_no_version_of_partitions_shows_a_part_of_a_transaction(kafkalake_broker: Any, flush_messages: int) -> None:
    """Each transaction writes as much to each partition, so in each version all last stable offsets are the same."""
    settings = {"metadata.publish.interval.ms": "1", "log.flush.interval.messages": str(flush_messages)}
    broker = kafkalake_broker(settings=settings)
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "clicks", PARTITIONS)
        producer = TransactionalClient(client, "copier", version_2=True)
        assert producer.init() == NONE
        deadline, transactions = time.monotonic() + 10, 0
        table = DeltaTable(broker.lake / "metadata" / "partitions")
        first = table.version()
        while table.version() < first + PUBLISHES and time.monotonic() < deadline:
            table.update_incremental()
            producer.write("clicks", {partition: [b"x"] for partition in range(PARTITIONS)})
            assert producer.end(committed=transactions % 3 > 0) == NONE
            transactions += 1
        wait_until(lambda: set(end_offsets(client, "clicks", PARTITIONS, read_committed=True)) == {2 * transactions})
    broker.stop()
    store = DeltaMetadataStore(broker.lake, create=False)
    last = store.load_snapshot().version
    seen = set()
    for version in range(last + 1):
        found = [row for row in store.load_partitions(version) if row.topic == "clicks"]
        stable = {row.last_stable_offset for row in found}
        assert len(stable) <= 1, found
        seen |= stable
    assert max(seen) == 2 * transactions
    assert len(seen) > 2


def test_the_journal_is_trimmed_and_no_id_is_forgotten(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "100", **ONE_JOURNAL})
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "clicks", 1)
        quiet = TransactionalClient(client, "quiet", version_2=True)
        open_one = TransactionalClient(client, "open", version_2=True)
        assert (quiet.init(), open_one.init()) == (NONE, NONE)
        open_one.write("clicks", {0: [b"x"]})
        values = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        for _ in range(52):
            sent = [client.send("InitProducerId", 5, transactional_id=f"id-{n}", **values) for n in range(100)]
            assert all(code(client.receive("InitProducerId", 5, each).error_code) == NONE for each in sent)
        wait_until(lambda: journal_start(broker) >= 5_000)
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        for each in (quiet, open_one):
            each.client = client
        assert (state_of(client, "quiet"), state_of(client, "open")) == ("Empty", "Ongoing")
        assert open_one.end(committed=True) == NONE
        assert quiet.init() == NONE and quiet.epoch == 1
        other = TransactionalClient(client, "id-7", version_2=True)
        assert other.init() == NONE and other.epoch == 52
        wait_until(lambda: end_offsets(client, "clicks", 1, read_committed=True) == [2])


def test_ids_that_nobody_uses_expire_and_stay_away(kafkalake_broker: Any) -> None:
    settings = {
        "metadata.publish.interval.ms": "50",
        "transactional.id.expiration.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    broker = kafkalake_broker(settings=settings)
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "clicks", 1)
        ended, still_open = (TransactionalClient(client, name, version_2=True) for name in ("ended", "open"))
        for each in (ended, still_open):
            assert each.init() == NONE
            each.write("clicks", {0: [b"x"]})
        assert ended.end(committed=True) == NONE
        wait_until(lambda: state_of(client, "ended") == TRANSACTIONAL_ID_NOT_FOUND)
        wait_until(lambda: [row["transactional_id"] for row in rows(broker.lake)] == ["open"])
        assert state_of(client, "open") == "Ongoing"
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        assert state_of(client, "ended") == TRANSACTIONAL_ID_NOT_FOUND
        again = TransactionalClient(client, "ended", version_2=True)
        assert again.init() == NONE
        assert again.producer_id != ended.producer_id


@pytest.mark.parametrize("journal", ["__transaction_state", "__consumer_offsets"])
def test_a_marker_that_a_client_writes_into_a_journal_stops_no_start(kafkalake_broker: Any, journal: str) -> None:
    broker = kafkalake_broker(settings={**ONE_JOURNAL, "offsets.topic.num.partitions": "1"})
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "clicks", 1)
        find_coordinator(client, "group", 0)
        producer = TransactionalClient(client, "id", version_2=True)
        assert producer.init(40_000) == NONE
        producer.write("clicks", {0: [b"x"]})
        marker = {
            "producer_id": producer.producer_id + 1,
            "producer_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": journal, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        answer = client.call("WriteTxnMarkers", 1, markers=[marker]).markers[0].topics[0].partitions[0]
        assert code(answer.error_code) == NONE
        assert producer.end(committed=True) == NONE
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        assert end_offsets(client, "clicks", 1, read_committed=True) in (
            [2],
            [3],
        )  # the start may write its marker again
        assert TransactionalClient(client, "id", version_2=True).init(40_000) == NONE


def limit_journal(client: WireClient, bytes_max: int) -> None:
    """Set the `max.message.bytes` of the journal."""
    config = {"name": "max.message.bytes", "config_operation": 0, "value": str(bytes_max)}
    resource = {"resource_type": 2, "resource_name": "__transaction_state", "configs": [config]}
    answer = client.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
    assert code(answer.responses[0].error_code) == NONE


def size_of(record: TransactionRecord) -> int:
    """Return the size of a record in the journal, which `max.message.bytes` limits."""
    return len(build_batch([encode(record)], 0).body)


def open_transaction(client: WireClient, timeout_ms: int) -> TransactionalClient:
    """Open a transaction whose record in the journal is as long as the journal takes, and shorter than that of its abort.

    It has all partitions of the topic `clicks`, which is created.
    """
    records = (
        TransactionRecord("id", 0, 0, timeout_ms, State.ONGOING, frozenset(("clicks", n) for n in range(count)))
        for count in range(1, 100)
    )
    record = next(each for each in records if size_of(each) < size_of(fence(each, 0)))
    partitions = range(len(record.partitions))
    create_topic(client, "clicks", len(partitions))
    producer = TransactionalClient(client, "id", version_2=False)
    assert producer.init(timeout_ms) == NONE
    limit_journal(client, size_of(record) - 1)
    assert set(producer.add("clicks", partitions)) != {NONE}
    limit_journal(client, size_of(record))
    producer.write("clicks", {partition: [b"x"] for partition in partitions})
    return producer


def has_ended(client: WireClient) -> bool:
    """Return whether the records of the only transaction and its markers can be read."""
    partitions = len(client.call("Metadata", 12, topics=[{"name": "clicks"}]).topics[0].partitions)
    return end_offsets(client, "clicks", partitions, read_committed=True) == [2] * partitions


def test_a_transaction_that_its_journal_just_takes_is_aborted_at_its_timeout(kafkalake_broker: Any) -> None:
    """Its last record is longer than those before: it says that the producer has a new epoch."""
    broker = kafkalake_broker(settings=ONE_JOURNAL)
    with WireClient(broker.bootstrap_servers) as client:
        open_transaction(client, 3_000)
        wait_until(lambda: state_of(client, "id") == "CompleteAbort")
        assert has_ended(client)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_transaction_ends_after_its_journal_takes_only_shorter_records(
    kafkalake_broker: Any, committed: bool
) -> None:
    broker = kafkalake_broker(settings=ONE_JOURNAL)
    with WireClient(broker.bootstrap_servers) as client:
        producer = open_transaction(client, 60_000)
        limit_journal(client, 1)
        assert producer.end(committed=committed) == NONE
        wait_until(lambda: state_of(client, "id") == ("CompleteCommit" if committed else "CompleteAbort"))
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        wait_until(lambda: state_of(client, "id") == ("CompleteCommit" if committed else "CompleteAbort"))
        assert has_ended(client)
