"""Transactions: what a broker answers to good and bad requests, the same from kafkalake and Apache Kafka."""

from __future__ import annotations

import time
from typing import Any

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce, values_of
from contract.wire_transactions import (
    NONE,
    TransactionalClient,
    committed_offset,
    end_offsets,
    find_coordinator,
    state_of,
)
from waiting import wait_until

UNKNOWN_TOPIC_OR_PARTITION = 3
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
TOPIC_AUTHORIZATION_FAILED = 29
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
OPERATION_NOT_ATTEMPTED = 55
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TRANSACTION_ABORTABLE = 120
INVALID_REQUEST = 42
INVALID_REGULAR_EXPRESSION = 128

FLOWS = pytest.mark.parametrize("version_2", [False, True], ids=["older clients", "transactions version 2"])


def new(client: WireClient, topic: str, *, version_2: bool = True, **init: Any) -> TransactionalClient:
    """A producer that has its id."""
    producer = TransactionalClient(client, f"id-of-{topic}", version_2=version_2)
    assert producer.init(**init) == NONE
    return producer


def settled(client: WireClient, producer: TransactionalClient, state: str) -> None:
    """All markers are written: the coordinator answers before they are."""
    wait_until(lambda: state_of(client, producer.transactional_id) == state)


def shown(client: WireClient, topic: str, partition: int = 0) -> tuple[list[bytes | None], list[int]]:
    """What a fetch of read_committed returns: values (markers among them), and first offsets of aborted transactions."""
    answer = fetch(client, topic, 0, partition=partition, isolation_level=1)
    values = [value for _, value in values_of(answer.records)]
    return values, sorted(each.first_offset for each in answer.aborted_transactions or ())


@FLOWS
def test_a_transaction_commits_and_aborts_in_all_its_partitions(
    client: WireClient, topic: str, version_2: bool
) -> None:
    create_topic(client, topic, 2)
    producer = new(client, topic, version_2=version_2)
    assert (producer.epoch, state_of(client, producer.transactional_id)) == (0, "Empty")
    for number, committed in enumerate((True, False, True)):
        producer.write(topic, {0: [b"a%d" % number], 1: [b"b%d" % number, b"c"]})
        assert state_of(client, producer.transactional_id) == "Ongoing"
        stable = end_offsets(client, topic, 2, read_committed=True)
        assert stable == [2 * number, 3 * number]
        assert producer.end(committed=committed) == NONE
        settled(client, producer, "CompleteCommit" if committed else "CompleteAbort")
        assert producer.epoch == (number + 1 if version_2 else 0)
    for read_committed in (True, False):
        assert end_offsets(client, topic, 2, read_committed=read_committed) == [6, 9]
    values, aborted = shown(client, topic)
    assert aborted == [2]
    assert values[0] == b"a0" and values[2] == b"a1" and values[4] == b"a2"
    version, coordinator_epoch_bytes = b"\0\0", 4
    for marker in (values[1], values[3], values[5]):  # which clients pass over
        assert marker[:2] == version and len(marker) == 2 + coordinator_epoch_bytes


@FLOWS
def test_offsets_count_when_the_transaction_commits(client: WireClient, topic: str, version_2: bool) -> None:
    create_topic(client, topic)
    producer, group = new(client, topic, version_2=version_2), f"group-of-{topic}"
    for offset, committed in ((5, False), (7, True)):
        producer.send_offsets(group, topic, {0: offset})
        assert committed_offset(client, group, topic, require_stable=True) == "unstable"
        assert committed_offset(client, group, topic, require_stable=False) == -1
        everything = client.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=True)
        assert not everything.topics  # of all that the group has committed, this is none yet
        assert producer.end(committed=committed) == NONE
        settled(client, producer, "CompleteCommit" if committed else "CompleteAbort")
        wait_until(lambda: committed_offset(client, group, topic, require_stable=True) != "unstable")
    assert committed_offset(client, group, topic, require_stable=True) == 7


@FLOWS
def test_the_producer_before_is_fenced_everywhere(client: WireClient, topic: str, version_2: bool) -> None:
    create_topic(client, topic)
    zombie = new(client, topic, version_2=version_2)
    zombie.write(topic, {0: [b"zombie"]})
    producer = new(client, topic, version_2=version_2)
    assert producer.producer_id == zombie.producer_id and producer.epoch > zombie.epoch
    assert zombie.produce(topic, [b"again"]) == INVALID_PRODUCER_EPOCH
    assert zombie.add(topic, [0]) == [PRODUCER_FENCED]
    assert zombie.add(topic, [0], version=1) == [INVALID_PRODUCER_EPOCH]
    assert zombie.add_offsets("g") == PRODUCER_FENCED
    assert zombie.add_offsets("g", version=1) == INVALID_PRODUCER_EPOCH
    assert zombie.commit_offsets("g", topic, {0: 1}) == [INVALID_PRODUCER_EPOCH]
    for committed in (True, False):
        assert zombie.end(committed=committed) == PRODUCER_FENCED
        assert zombie.end(committed=committed, version=1) == INVALID_PRODUCER_EPOCH
    expected = {"producer_id": zombie.producer_id, "epoch": zombie.epoch}
    assert TransactionalClient(client, zombie.transactional_id, version_2=version_2).init(**expected) in (
        PRODUCER_FENCED,
        NONE,
    )
    producer = new(client, topic, version_2=version_2)
    producer.write(topic, {0: [b"mine"]})
    assert producer.end(committed=True) == NONE
    settled(client, producer, "CompleteCommit")
    values, aborted = shown(client, topic)
    assert (values[0], values[2], aborted) == (b"zombie", b"mine", [0])


@FLOWS
def test_ends_that_fit_no_transaction(client: WireClient, topic: str, version_2: bool) -> None:
    create_topic(client, topic)
    producer = new(client, topic, version_2=version_2)
    assert producer.end(committed=True) == INVALID_TXN_STATE
    if not version_2:
        assert producer.end(committed=False) == INVALID_TXN_STATE
    producer.write(topic, {0: [b"x"]})
    before = producer.producer_id, producer.epoch
    assert producer.end(committed=True) == NONE
    settled(client, producer, "CompleteCommit")
    producer.producer_id, producer.epoch = before
    assert producer.end(committed=True) == NONE, "asked again"
    producer.producer_id, producer.epoch = before
    assert producer.end(committed=False) == INVALID_TXN_STATE


@FLOWS
def test_somebody_unknown(client: WireClient, topic: str, version_2: bool) -> None:
    create_topic(client, topic)
    find_coordinator(client, f"id-of-{topic}", 1)
    nobody = TransactionalClient(client, f"id-of-{topic}", version_2=version_2)
    nobody.producer_id, nobody.epoch = 987_654, 0
    assert nobody.add(topic, [0]) == [INVALID_PRODUCER_ID_MAPPING]
    assert nobody.add_offsets("g") == INVALID_PRODUCER_ID_MAPPING
    assert nobody.produce(topic, [b"x"]) == INVALID_PRODUCER_ID_MAPPING
    assert nobody.commit_offsets("g", topic, {0: 1}) == [INVALID_PRODUCER_ID_MAPPING]
    assert nobody.end(committed=True) == INVALID_PRODUCER_ID_MAPPING
    assert state_of(client, nobody.transactional_id) == str(TRANSACTIONAL_ID_NOT_FOUND)
    known = new(client, topic, version_2=version_2)
    known.producer_id += 1_000_000
    assert known.add(topic, [0]) == [INVALID_PRODUCER_ID_MAPPING]
    assert known.produce(topic, [b"x"]) == INVALID_PRODUCER_ID_MAPPING
    assert known.end(committed=True) == INVALID_PRODUCER_ID_MAPPING
    assert end_offsets(client, topic, 1, read_committed=False) == [0]


@pytest.mark.parametrize(
    ("version", "error"), [(9, INVALID_TXN_STATE), (10, INVALID_TXN_STATE), (11, TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_is_not_written(
    client: WireClient, topic: str, version: int, error: int
) -> None:
    create_topic(client, topic, 2)
    producer = new(client, topic, version_2=False)
    assert producer.produce(topic, [b"x"], version=version) == error, "no transaction"
    assert producer.add(topic, [0]) == [NONE]
    assert producer.produce(topic, [b"x"], partition=1, version=version) == error
    assert producer.produce(topic, [b"x"], partition=0, version=version) == NONE
    assert producer.end(committed=True) == NONE
    settled(client, producer, "CompleteCommit")
    assert producer.produce(topic, [b"late"], partition=0, version=version) == error
    assert end_offsets(client, topic, 2, read_committed=False) == [2, 0]


@pytest.mark.parametrize(("version", "error"), [(3, INVALID_TXN_STATE), (4, TRANSACTION_ABORTABLE)])
def test_offsets_of_a_group_that_was_not_added_are_refused(
    client: WireClient, topic: str, version: int, error: int
) -> None:
    create_topic(client, topic)
    producer = new(client, topic, version_2=False)
    assert producer.commit_offsets("g", topic, {0: 1}, version=version) == [error]


def test_partitions_that_do_not_exist_are_not_added_nor_the_others(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 1)
    producer = new(client, topic, version_2=False)
    assert producer.add(topic, [0, 9]) == [OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add(topic + "-other", [0]) == [UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add("__consumer_offsets", [0]) == [TOPIC_AUTHORIZATION_FAILED]
    assert state_of(client, producer.transactional_id) == "Empty"
    assert producer.add(topic, [0]) == [NONE]
    assert producer.add_offsets(f"group-of-{topic}") == NONE
    assert producer.commit_offsets(f"group-of-{topic}", topic, {0: 1, 9: 1}) == [NONE, UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.end(committed=False) == NONE


@FLOWS
def test_a_consumer_that_is_no_member_commits_no_offsets(client: WireClient, topic: str, version_2: bool) -> None:
    create_topic(client, topic)
    producer, group = new(client, topic, version_2=version_2), f"group-of-{topic}"
    if not version_2:
        assert producer.add_offsets(group) == NONE
    assert producer.commit_offsets(group, topic, {0: 1}, generation_id=3, member_id="me") == [ILLEGAL_GENERATION]
    assert producer.commit_offsets(group, topic, {0: 1}) == [NONE]
    wrong = producer.commit_offsets(group, topic, {0: 2}, generation_id=3, member_id="me")
    assert wrong in ([ILLEGAL_GENERATION], [UNKNOWN_MEMBER_ID])
    assert producer.end(committed=True) == NONE
    settled(client, producer, "CompleteCommit")
    wait_until(lambda: committed_offset(client, group, topic, require_stable=True) == 1)


def test_init_refuses_what_makes_no_sense(client: WireClient, topic: str) -> None:
    for timeout_ms in (0, -1, 900_001):
        producer = TransactionalClient(client, f"id-of-{topic}", version_2=True)
        assert producer.init(timeout_ms) == INVALID_TRANSACTION_TIMEOUT
    assert producer.init(1000, producer_id=5) == INVALID_REQUEST
    answer = client.call(
        "InitProducerId", 4, transactional_id="", transaction_timeout=1000, producer_id=-1, producer_epoch=-1
    )
    assert code(answer.error_code) == INVALID_REQUEST
    assert state_of(client, producer.transactional_id) == str(TRANSACTIONAL_ID_NOT_FOUND)


def test_a_transactional_batch_needs_a_transactional_id(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    producer = new(client, topic)
    producer.transactional_id = None  # type: ignore[assignment]
    assert producer.produce(topic, [b"x"]) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_offsets(client, topic, 1, read_committed=False) == [0]


@FLOWS
def test_a_transaction_that_hangs_is_aborted_and_its_producer_fenced(
    client: WireClient, topic: str, version_2: bool
) -> None:
    create_topic(client, topic)
    producer = new(client, topic, version_2=version_2, timeout_ms=300)
    producer.write(topic, {0: [b"x"]})
    settled(client, producer, "CompleteAbort")
    assert end_offsets(client, topic, 1, read_committed=True) == [2]
    assert producer.produce(topic, [b"y"]) == INVALID_PRODUCER_EPOCH
    # In version 2 the epoch before the current one means that the end is asked for again.
    assert producer.end(committed=True) == (INVALID_TXN_STATE if version_2 else PRODUCER_FENCED)


def test_partitions_are_verified_for_other_brokers(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    producer = new(client, topic, version_2=False)
    assert producer.add(topic, [0]) == [NONE]

    def verify(version: int, epoch: int, transactional_id: str = "") -> list[int]:
        transaction = {
            "transactional_id": transactional_id or producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": epoch,
            "verify_only": True,
            "topics": [{"name": topic, "partitions": [0, 1]}],
        }
        answer = client.call("AddPartitionsToTxn", version, transactions=[transaction])
        (results,) = answer.results_by_transaction[0].topic_results
        by_partition = sorted(results.results_by_partition, key=lambda each: each.partition_index)
        return [code(each.partition_error_code) for each in by_partition]

    assert verify(5, 0) == [NONE, TRANSACTION_ABORTABLE]
    assert verify(4, 0) in ([NONE, TRANSACTION_ABORTABLE], [NONE, INVALID_TXN_STATE])
    assert verify(5, 7) == [PRODUCER_FENCED] * 2
    assert verify(5, 0, "somebody else") == [INVALID_PRODUCER_ID_MAPPING] * 2


def test_transactions_are_described_and_listed(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    producer = new(client, topic, timeout_ms=54_321)
    producer.write(topic, {1: [b"x"], 0: [b"y"]})
    (found,) = client.call("DescribeTransactions", 0, transactional_ids=[producer.transactional_id]).transaction_states
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert found.transaction_timeout == 54_321
    assert abs(found.transaction_start_time - time.time() * 1000) < 60_000
    assert [(each.topic, sorted(each.partitions)) for each in found.topics] == [(topic, [0, 1])]

    def listed(**filters: Any) -> Any:
        asked = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, **filters}
        return client.call("ListTransactions", 2 if "transactional_id_pattern" in filters else 1, **asked)

    mine = [(producer.transactional_id, producer.producer_id, "Ongoing")]

    def of(answer: Any) -> list[tuple[str, int, str]]:
        assert code(answer.error_code) == NONE
        return [(each.transactional_id, each.producer_id, each.transaction_state) for each in answer.transaction_states]

    ours = [producer.producer_id]
    assert of(listed(producer_id_filters=ours)) == mine
    assert set(mine) <= set(of(listed(state_filters=["Ongoing"])))
    assert of(listed(producer_id_filters=ours, state_filters=["CompleteCommit"])) == []
    answer = listed(producer_id_filters=ours, state_filters=["Ongoing", "Sleeping"])
    assert (list(answer.unknown_state_filters), of(answer)) == (["Sleeping"], mine)
    assert of(listed(producer_id_filters=ours, duration_filter=3_600_000)) == []
    assert of(listed(transactional_id_pattern=f"id-of-{topic}")) == mine
    assert of(listed(transactional_id_pattern="id-of-")) == []
    assert code(listed(transactional_id_pattern="(").error_code) == INVALID_REGULAR_EXPRESSION
    assert producer.end(committed=False) == NONE


def test_producers_of_a_partition_are_described_and_a_marker_ends_their_transaction(
    client: WireClient, topic: str
) -> None:
    create_topic(client, topic)
    producer = new(client, topic)

    def described(name: str = topic, index: int = 0) -> Any:
        asked = [{"name": name, "partition_indexes": [index]}]
        return client.call("DescribeProducers", 0, topics=asked).topics[0].partitions[0]

    assert list(described().active_producers) == []
    assert code(described(topic + "-other").error_code) == UNKNOWN_TOPIC_OR_PARTITION
    assert code(described(index=4).error_code) == UNKNOWN_TOPIC_OR_PARTITION
    producer.write(topic, {0: [b"x", b"y"]})
    (found,) = described().active_producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (producer.producer_id, producer.epoch, 1)
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (0, -1)

    def mark(epoch: int, *, name: str = topic, coordinator_epoch: int = 0) -> int:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "topics": [{"name": name, "partition_indexes": [0]}],
            "coordinator_epoch": coordinator_epoch,
        }
        return code(client.call("WriteTxnMarkers", 1, markers=[marker]).markers[0].topics[0].partitions[0].error_code)

    assert mark(producer.epoch, name=topic + "-other") == UNKNOWN_TOPIC_OR_PARTITION
    assert mark(producer.epoch) == NONE
    (found,) = described().active_producers
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)
    assert end_offsets(client, topic, 1, read_committed=True) == [3]
    values, aborted = shown(client, topic)
    assert (values[:2], aborted) == ([b"x", b"y"], [0])
    assert producer.end(committed=False) == NONE


def test_a_plain_batch_inside_a_transaction_is_refused(client: WireClient, topic: str) -> None:
    from contract.wire_client import batch, produce

    create_topic(client, topic)
    producer = new(client, topic)
    producer.write(topic, {0: [b"x"]})
    plain = batch([(None, b"y")], producer_id=producer.producer_id, epoch=producer.epoch, sequence=1)
    assert code(produce(client, topic, plain).error_code) == INVALID_TXN_STATE
    assert producer.end(committed=True) == NONE


def test_the_feature_that_has_clients_use_transactions_version_2(client: WireClient) -> None:
    answer = client.call("ApiVersions", 4, client_software_name="test", client_software_version="1")
    assert ("transaction.version", 0, 2) in [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ]
    assert ("transaction.version", 2) in [(each.name, each.max_version_level) for each in answer.finalized_features]
    assert answer.finalized_features_epoch >= 0


def await_reading(client: WireClient) -> None:
    """Wait until the broker has answered requests that came after those of other connections.

    kafkalake has read those by then. Apache Kafka has a thread for some connections each: there it is likely, and a request that
    is read later waits for less.
    """
    for _ in range(3):
        with WireClient("{}:{}".format(*client.socket.getpeername()[:2])) as later:
            later.call("ApiVersions", 0)


def test_a_long_poll_is_not_held_by_an_open_transaction_elsewhere(client: WireClient, topic: str) -> None:
    """What is new in one partition counts, whatever is open in another; so does the end of the transaction."""
    create_topic(client, topic, 2)
    with WireClient("{}:{}".format(*client.socket.getpeername()[:2])) as waiting:
        one = TransactionalClient(client, f"id-of-{topic}", version_2=False)
        assert one.init() == NONE
        one.write(topic, {0: [b"open"]})

        def asked(second: int) -> dict[str, Any]:
            partitions = [
                {
                    "partition": index,
                    "current_leader_epoch": -1,
                    "fetch_offset": offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": 1 << 20,
                }
                for index, offset in ((0, 0), (1, second))
            ]
            return {
                "max_wait": 15_000,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "isolation_level": 1,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": partitions}],
                "forgotten_topics_data": [],
                "rack_id": "",
            }

        def received(number: int) -> list[list[bytes | None]]:
            answer = waiting.receive("Fetch", 12, number)
            return [[value for _, value in values_of(each.records)] for each in answer.responses[0].partitions]

        began = time.monotonic()
        number = waiting.send("Fetch", 12, **asked(0))
        await_reading(client)
        produce(client, topic, batch([(None, b"new")]), partition=1)
        assert received(number) == [[], [b"new"]]
        number = waiting.send("Fetch", 12, **asked(1))
        await_reading(client)
        assert one.produce(topic, [b"more"]) == NONE
        assert one.end(committed=True) == NONE
        assert received(number)[0][:2] == [b"open", b"more"]
        assert time.monotonic() - began < 10
