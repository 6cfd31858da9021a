"""When the producer's thread is woken: whenever something new may be sent, and not for what is behind a full batch.

Each wake-up is a turn of the thread: a row of Arrow batches under back-pressure had three turns for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from simulated_producer import SimulatedProducer

from kafkalake.client.producing.accumulator import Accumulator

LINGER_MS = 60_000


def producer_that_lingers() -> SimulatedProducer:
    return SimulatedProducer(linger_ms=LINGER_MS, batch_size=1_000).start()


def send_arrow(producer: SimulatedProducer, partition: int = 0) -> None:
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    for encoded in producer.core.encode_arrow(queues, pa.table({"value": [b"v"]}), partition):
        assert producer.core.try_append_encoded(queues, encoded) is not None


def wake_ups(producer: SimulatedProducer, call: Callable[[], object]) -> int:
    before = producer.wake_ups
    call()
    return producer.wake_ups - before


def test_only_the_first_batch_of_a_row_wakes_the_sender() -> None:
    producer = producer_that_lingers()
    assert [wake_ups(producer, lambda: send_arrow(producer)) for _ in range(3)] == [1, 0, 0]
    assert wake_ups(producer, lambda: send_arrow(producer, 1)) == 1
    producer.run()
    assert wake_ups(producer, lambda: send_arrow(producer)) == 1, "those before it are sent"


def test_a_batch_that_becomes_full_wakes_the_sender_if_it_is_the_first() -> None:
    producer = producer_that_lingers()
    sent = [wake_ups(producer, lambda: producer.send(bytes(600))) for _ in range(4)]
    assert sent == [1, 1, 0, 0], "the first batch begins, and is full; those behind it wait for it"


def test_who_waits_for_memory_wakes_the_sender_if_a_batch_lingers() -> None:
    producer = producer_that_lingers()
    accumulator = producer.core.accumulator
    send_arrow(producer)
    assert wake_ups(producer, lambda: accumulator.add_waiter(1)) == 0, "nothing lingers"
    assert wake_ups(producer, lambda: accumulator.add_waiter(-1)) == 0
    producer.send(b"lingers", 1)
    assert [wake_ups(producer, partial(accumulator.add_waiter, by)) for by in (1, 1, -1, -1)] == [1, 0, 0, 0]


def ready_partitions(producer: SimulatedProducer) -> set[int]:
    cluster = producer.core.client.metadata.cluster
    ready = producer.core.accumulator.ready(cluster, producer.clock.monotonic_ms(), lambda node_id: True)
    return {queue.partition for queues in ready.by_leader.values() for queue in queues}


@given(
    st.lists(
        st.tuples(st.sampled_from(["small", "large", "arrow", "wait", "leave", "flush", "run"]), st.integers(0, 1))
    )
)
def test_whatever_becomes_ready_wakes_the_sender(calls: list[tuple[str, int]]) -> None:
    producer = producer_that_lingers()
    accumulator: Accumulator = producer.core.accumulator
    waiters = 0
    for name, partition in calls:
        before, woken = ready_partitions(producer), producer.wake_ups
        if name == "small":
            producer.send(bytes(100), partition)
        elif name == "large":
            producer.send(bytes(800), partition)
        elif name == "arrow":
            send_arrow(producer, partition)
        elif name == "wait":
            accumulator.add_waiter(1)
            waiters += 1
        elif name == "leave" and waiters:
            accumulator.add_waiter(-1)
            waiters -= 1
        elif name == "flush":
            accumulator.begin_flush()
            producer.run()
            accumulator.end_flush()
            continue
        elif name == "run":
            producer.run()
            continue
        assert producer.wake_ups > woken or ready_partitions(producer) <= before
