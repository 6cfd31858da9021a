"""Log starts that jobs have raised in Delta, which the leaders' logs follow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kafkalake.broker.partitions.partition import Partition
from kafkalake.errors import KafkaLakeError
from kafkalake.log_starts import raised_log_start
from kafkalake.topic_partition import PartitionId

logger = logging.getLogger(__name__)


def raised_starts(
    partitions: Iterable[Partition], starts: Mapping[PartitionId[str], int]
) -> list[tuple[Partition, int]]:
    """Return the partitions whose logs begin before these offsets, and where they are to begin."""
    found = []
    for partition in partitions:
        raised, log = starts.get((str(partition.topic.topic_id), partition.index), 0), partition.log
        start = raised_log_start(log.log_start_offset, raised, log.high_watermark)
        if start > log.log_start_offset:
            found.append((partition, start))
    return found


def begin_at(partition: Partition, offset: int) -> None:
    """Move a log's start to `offset`. Blocking. A failure is only logged, because Delta still has the log start."""
    try:
        partition.log.delete_records_before(offset)
        logger.info("log start raised by a job partition=%s offset=%d", partition.name, offset)
    except KafkaLakeError as error:
        logger.error("log start not raised partition=%s offset=%d error=%s", partition.name, offset, error)
