"""Reads a journal partition of delayed delivery on, around what is damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kafkalake.broker.delayed.due_runs import NO_ENTRIES, Entries
from kafkalake.broker.delayed.journal_state import COLUMNS, JournalState
from kafkalake.broker.partitions.partition import Partition
from kafkalake.errors import CorruptSegmentError
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

BEHIND_BYTES = 1 << 20
"""The bytes that are read at once behind damage."""


def take_in(partition: Partition, state: JournalState, max_bytes: int) -> tuple[MessageSet, Entries]:
    """Let a state follow the next messages, and return them with the new entries. Raise `KafkaLakeError` if that fails."""
    state.skip(partition.log.log_start_offset)
    messages = _next_messages(partition, state.position, max_bytes)
    if len(messages):
        return messages, state.follow(messages)
    state.skip(partition.log.high_watermark)
    return messages, NO_ENTRIES


def _next_messages(partition: Partition, position: int, max_bytes: int) -> MessageSet:
    """Return the next messages of the journal, those behind damage if there is any. It is logged."""
    log = partition.log
    try:
        return log.read(position, max_bytes)
    except CorruptSegmentError as error:
        messages = log.read_behind_damage(position, max_bytes)
        logger.error(
            "damaged journal topic=%s partition=%d offsets=[%d, %d) error=%s",
            partition.topic.name,
            partition.index,
            position,
            messages.base_offset if len(messages) else log.high_watermark,
            error,
        )
        return messages


def scan_undamaged(log: Log, begin: int, end: int) -> Iterator[MessageSet]:
    """Yield the messages of offsets [begin, end), in the columns of `COLUMNS`, without those that are damaged. Blocks.

    Raise `KafkaLakeError` if they cannot be read.
    """
    while begin < end:
        first = begin
        try:
            for messages in log.scan(begin, end, COLUMNS):
                yield messages
                begin = messages.next_offset
            return
        except CorruptSegmentError as error:
            logger.warning("journal of delayed delivery is read around damage error=%s", error)
        if begin == first:
            behind = log.read_behind_damage(begin, BEHIND_BYTES)
            if not len(behind):
                return
            yield behind
            begin = behind.next_offset
