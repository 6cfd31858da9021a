"""How a member of a group polls with kafka-python 3, so that it always finishes the rebalance that it has begun.

A leader rejoins because its topics have changed (it often assigns before it knows their partitions). With its JoinGroup answered,
it has assigned, so nothing has changed any more: its `need_rejoin` says no, though its SyncGroup is still under way. Where
`poll`'s time is up just then, the next `poll` does not look at the answer any more: the member stays in its rebalance for ever,
without partitions, without heartbeats, and without a word. Against every broker: Java's client had the like (KAFKA-9815) and
notes that it rejoins until it has.
"""

from __future__ import annotations

from typing import Any

POLL_MS = 100


def poll(consumer: Any, max_records: int) -> dict[Any, list[Any]]:
    """What `consumer` (`kafka.KafkaConsumer`) reads within 100 ms, by partition."""
    from kafka.structs import MemberState

    batches: dict[Any, list[Any]] = consumer.poll(POLL_MS, max_records=max_records)
    if consumer.group_metadata().state is MemberState.REBALANCING:
        # The next poll goes on with the join that is under way; its end takes the note away. There is no public door to it.
        consumer._coordinator.request_rejoin()
    return batches
