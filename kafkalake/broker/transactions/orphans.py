"""Ends orphaned transactions: open in partitions, but unknown to every transactional id because a journal was damaged.

The lost records may include one that adds a partition, or a transaction's marker in `__consumer_offsets`. Such a transaction would
never end, and read_committed consumers would be stuck before it for ever. So once the journals have been read, and one of them
lacked records, these transactions are aborted, except in `__consumer_offsets` if the producer's newest known outcome is a commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.markers import MarkerWriter, TransactionalOffsets
from kafkalake.broker.transactions.states import State
from kafkalake.broker.transactions.table import TransactionTable
from kafkalake.internal_topics import GROUP_JOURNAL

logger = logging.getLogger(__name__)


def end_orphans(topics: Topics, offsets: TransactionalOffsets, table: TransactionTable, markers: MarkerWriter) -> None:
    """Write the markers of transactions unknown to every id."""
    owned = set()
    committed = set()
    for entry in table:
        current = entry.transaction.current
        if current is not None:
            owned |= {(current.producer_id, partition) for partition in entry.transaction.unfinished_partitions}
            if current.state is State.COMPLETE_COMMIT:
                committed.add(current.producer_id)
    for producer_id, partition in _open(topics, offsets):
        name = (partition.topic.name, partition.index)
        if (producer_id, name) in owned:
            continue
        known = dict(partition.log.producers()).get(producer_id)
        epoch, coordinator_epoch = (0, 0) if known is None else (known.epoch, max(known.coordinator_epoch, 0))
        is_committed = producer_id in committed and partition.topic.name == GROUP_JOURNAL
        logger.warning(
            "ending a transaction that no id knows of topic=%s partition=%d producer_id=%d committed=%s",
            *name,
            producer_id,
            is_committed,
        )
        markers.write(partition, Marker(producer_id, epoch, is_committed), coordinator_epoch, lambda error: None)


def _open(topics: Topics, offsets: TransactionalOffsets) -> Iterator[tuple[int, Partition]]:
    """Yield (producer id, partition) of each open transaction with records or committed offsets of a group."""
    for topic in topics:
        for partition in topic.replicas.values():
            found = {
                producer_id for producer_id, producer in partition.log.producers() if producer.transaction_offset >= 0
            }
            if topic.name == GROUP_JOURNAL:
                found |= set(offsets.open_transactions(partition.index))
            for producer_id in sorted(found):
                yield producer_id, partition
