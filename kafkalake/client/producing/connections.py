"""Which of two connections to its leader a partition uses.

A broker works on one request of a connection at a time. So when the first connection has as many requests in flight as it may have,
a second one is opened, and partitions are shared between both. A partition changes its connection only when nothing of it is in
flight, as batches would overtake each other; it goes back to the first one when the second is idle. The broker recognizes no more
batches of a partition than may be in flight on one connection, which stays so.

*Different from Kafka,* whose producer has one connection to a broker. Measured, Apache Kafka and a client on two cores: requests of
880 KB over two connections 1.4 x the records/s of one.
"""

from __future__ import annotations

from kafkalake.client.producing.queues import PartitionQueue

Shares = dict[int, list[PartitionQueue]]
"""Partitions with batches that may be sent now, by connection."""


def assign(queues: list[PartitionQueue], first: int, second: int, *, is_second_idle: bool) -> Shares:
    """Return the partitions of a leader by the connections that they use."""
    shares: Shares = {first: [], second: []}
    for queue in queues:
        if queue.connection not in shares:  # another leader's
            queue.use(first)
        elif not queue.in_flight:
            if queue.is_moving:
                queue.use(second if queue.connection == first else first)
            elif is_second_idle:
                queue.use(first)
        shares[queue.connection].append(queue)
    return shares


def excess(shares: Shares, full: int, other: int) -> int:
    """Return how many partitions of a connection that is full are to use the other one.

    One alone only if it has nothing in flight: else it would wait for that, and gain nothing.
    """
    more = len(shares[full]) - len(shares[other])
    free = sum(not queue.in_flight for queue in shares[full])
    return max(more // 2, min((more + 1) // 2, free))


def shift(shares: Shares, full: int, other: int, count: int) -> None:
    """Let partitions of a connection use the other one: at once, or when what they have in flight has ended."""
    by_flight = sorted(shares[full], key=lambda queue: queue.in_flight)
    shares[full] = by_flight[count:]
    for queue in by_flight[:count]:
        if queue.in_flight:
            queue.move()
        else:
            queue.use(other)
            shares[other].append(queue)
