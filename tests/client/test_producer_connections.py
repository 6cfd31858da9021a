"""A producer's two connections to a broker: what the first has no room for goes over a second one, and order is kept."""

from __future__ import annotations

from random import Random

import pytest
from simulated_producer import ModelLog, SimulatedProducer

from kafkalake.client.network.client import second_connection
from kafkalake.client.producing.batch import RecordFuture
from kafkalake.wire.messages.records import ProduceRequest

FIRST, SECOND = 0, second_connection(0)
ROUNDS = 120
QUICK: dict[str, object] = {
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 2,
    "reconnect_backoff_ms": 2,
    "reconnect_backoff_max_ms": 2,
}
"""What is cut is opened and sent again soon."""


def open_connections(producer: SimulatedProducer) -> list[int]:
    """Return the connections to the leader that are open, without that of its bootstrap address."""
    return [each for each in producer.network.connections_to(producer.brokers[0]) if each >= 0]


def one_leader(partitions: int, **settings: object) -> SimulatedProducer:
    """Return a producer for a topic whose partitions all have leader 0. Two requests in flight on a connection."""
    settings = {"linger_ms": 0, "max_in_flight_requests_per_connection": 2} | settings
    producer = SimulatedProducer(**settings)
    producer.topics.leaders["t"] = [0] * partitions
    for partition in range(partitions):
        producer.logs["t", partition] = ModelLog()
    producer.start()
    producer.send(b"first", 0)  # opens the connection, and gets a producer id
    producer.run(100)
    assert open_connections(producer) == [FIRST]
    return producer


def send_batches(producer: SimulatedProducer, count: int, partition: int) -> list[RecordFuture]:
    """Send records, each in a batch of its own."""
    futures = []
    for number in range(count):
        futures.append(producer.send(b"%d" % number, partition))
        producer.run()
    return futures


def are_done(futures: list[RecordFuture]) -> list[bool]:
    return [future.is_done for future in futures]


def test_what_the_first_connection_has_no_room_for_goes_over_a_second_one() -> None:
    producer = one_leader(2)
    producer.network.stall(FIRST)
    behind, beside = send_batches(producer, 3, 0), send_batches(producer, 3, 1)
    assert are_done(behind) == [False] * 3, "a partition stays where it has batches in flight"
    assert are_done(beside) == [True] * 3
    assert open_connections(producer) == [FIRST, SECOND]
    producer.network.go_on(FIRST)
    producer.run()
    assert [future.get(0).offset for future in behind] == [1, 2, 3]


def test_one_partition_has_one_connection() -> None:
    producer = one_leader(1)
    producer.network.stall(FIRST)
    futures = send_batches(producer, 5, 0)
    assert open_connections(producer) == [FIRST]
    producer.network.go_on(FIRST)
    producer.run()
    assert all(are_done(futures))


def test_partitions_that_both_have_batches_in_flight_are_shared_too() -> None:
    producer = one_leader(2)
    producer.network.stall(FIRST)
    of_0, of_1 = send_batches(producer, 1, 0), send_batches(producer, 1, 1)
    of_0 += send_batches(producer, 1, 0)
    of_1 += send_batches(producer, 1, 1)
    assert are_done(of_0 + of_1) == [False] * 4, "both wait for the first connection, the second one is open"
    assert open_connections(producer) == [FIRST, SECOND]
    producer.network.stall(SECOND)
    producer.network.go_on(FIRST)
    assert sorted(are_done(of_0 + of_1)) == [False, True, True, True], "one of them has moved"
    producer.network.go_on(SECOND)
    producer.run()
    assert [future.get(0).offset for future in of_0 + of_1] == [1, 2, 0, 1]


def test_partitions_go_back_to_the_first_connection_when_there_is_room() -> None:
    producer = one_leader(2)
    producer.network.stall(FIRST)
    send_batches(producer, 3, 0)
    send_batches(producer, 1, 1)
    producer.network.go_on(FIRST)
    producer.run()
    producer.network.stall(SECOND)
    assert are_done(send_batches(producer, 3, 0) + send_batches(producer, 3, 1)) == [True] * 6


def test_a_broker_that_takes_no_second_connection_gets_all_over_the_first() -> None:
    producer = one_leader(2)
    producer.network.refused.add(SECOND)
    for _ in range(2):
        producer.network.stall(FIRST)
        futures = send_batches(producer, 3, 0) + send_batches(producer, 3, 1)
        producer.run(5_000)
        assert are_done(futures) == [False] * 6
        producer.network.go_on(FIRST)
        producer.run()
        assert are_done(futures) == [True] * 6


def test_a_second_connection_that_is_lost_is_opened_again() -> None:
    producer = one_leader(2)
    for _ in range(2):
        producer.network.stall(FIRST)
        behind = send_batches(producer, 2, 0)
        before = send_batches(producer, 1, 1)
        producer.network.stall(SECOND)
        lost = send_batches(producer, 2, 1)
        producer.network.cut_connection(SECOND)
        producer.run(2_000)
        assert are_done(before + lost) == [True] * 3, "sent again, over a new second connection"
        producer.network.go_on(FIRST)
        producer.run()
        assert are_done(behind) == [True] * 2
    assert [int(value) for value in producer.logs["t", 1].values] == [0, 0, 1] * 2


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_lost_first_connection_leaves_the_second_alone(acks: str) -> None:
    producer = one_leader(2, acks=acks)
    producer.network.stall(FIRST)
    lost = send_batches(producer, 2, 0)
    beside = send_batches(producer, 3, 1)
    producer.network.cut_connection(FIRST)
    assert are_done(beside) == [True] * 3
    producer.run(2_000)
    assert are_done(lost) == [True] * 2


def are_never_on_two(producer: SimulatedProducer) -> set[int]:
    """Make the simulation fail when a partition has batches in flight on two connections. Return those that are used."""
    used: set[int] = set()
    in_flight: dict[int, list[int]] = {}
    client = producer.core.client
    send = client.send

    def checked(
        node_id: int, api: object, message: object, *args: object, done: object = None, **named: object
    ) -> object:
        partitions = []
        if isinstance(message, ProduceRequest):
            partitions = [each.index for topic in message.topic_data for each in topic.partition_data]
        used.update([node_id] if partitions else ())
        for partition in partitions:
            others = in_flight.setdefault(partition, [])
            assert all(each == node_id for each in others), f"partition {partition} is in flight on {others}"
            others.append(node_id)

        def ended(pending: object) -> None:
            for partition in partitions:
                in_flight[partition].remove(node_id)
            done(pending)  # type: ignore[operator]

        return send(node_id, api, message, *args, done=ended if partitions else done, **named)  # type: ignore[arg-type]

    client.send = checked  # type: ignore[assignment,method-assign]
    return used


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", [QUICK, {"acks": "1"}, {"max_in_flight_requests_per_connection": 1, "acks": "1"}])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_late_a_partition_is_on_one_connection_and_in_order(seed: int, settings: dict[str, object]) -> None:
    chance = Random(seed)
    count = chance.choice([2, 3, 7])
    producer = one_leader(count, seed=seed, batch_size=200, **settings)
    used = are_never_on_two(producer)
    sent: dict[int, list[bytes]] = {partition: [] for partition in range(count)}
    sent[0].append(b"first")
    for number in range(ROUNDS):
        for partition in chance.sample(range(count), chance.randrange(1, count + 1)):
            sent[partition].append(b"%d" % number)
            producer.send(sent[partition][-1], partition)
        connection = chance.choice([FIRST, SECOND])
        happens = chance.random()
        if happens < 0.3 and connection in open_connections(producer):
            producer.network.stall(connection)
        elif happens < 0.7:
            producer.network.go_on(connection)
        elif happens < 0.8 and settings is QUICK:
            producer.network.cut_connection(connection)
        producer.run(chance.randrange(8))
    for connection in (FIRST, SECOND):
        producer.network.go_on(connection)
    producer.run(10_000)
    assert {partition: producer.logs["t", partition].values for partition in sent} == sent
    assert SECOND in used
    assert producer.core.accumulator.used_bytes == 0


def test_a_producer_whose_first_connection_has_room_knows_no_second_one() -> None:
    producer = one_leader(2)
    send_batches(producer, 9, 0)
    assert SECOND not in producer.core.client._connections, "each poll looked at it, and it has a buffer"
