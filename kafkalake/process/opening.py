"""Opens the logs of a broker's topics when it starts, and closes them when it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from uuid import UUID

from kafkalake.broker.admin.topic_rows import topic_of
from kafkalake.broker.broker import Broker
from kafkalake.broker.partitions.log_directory import log_config
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.publishing.partitions import PartitionPublisher
from kafkalake.errors import KafkaError, KafkaLakeError, as_value
from kafkalake.metadata.registrations import registrations_of
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import PartitionRow
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

_PROGRESS_INTERVAL_S = 3.0


async def report_recovery(recovered: Callable[[], int], partitions: int, interval_s: float) -> None:
    """Log the number of recovered partitions every `interval_s` until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        logger.info("recovering recovered=%d partitions=%d", recovered(), partitions)


async def open_topics(
    broker: Broker,
    store: TopicTable,
    publishing: PartitionPublisher,
    published: Iterable[PartitionRow],
    *,
    taking_over: bool,
) -> list[Path]:
    """Open the logs of all topics and lead their partitions. Return the directories that are to be removed.

    published: the partitions in Delta. Their leader epochs are lower bounds of the new ones, even if a power loss damaged the logs.
    taking_over: the last owner of the logs may still run. Raise `KafkaError` if no log could be opened.
    """
    run_blocking = broker.run_blocking
    rows = await run_blocking(store.load_topics)
    leftovers = await run_blocking(
        lambda: broker.logs.clear((row.topic, index) for row in rows for index in range(row.partitions))
    )
    swapped = await run_blocking(publishing.load_swapped)
    expiration_ms = broker.config.producer_id_expiration_ms
    opening = []
    for row in rows:
        topic = topic_of(row, broker.settings.current)
        config = log_config(topic.config, expiration_ms)
        opening.append(
            [
                run_blocking(
                    partial(
                        broker.logs.open,
                        topic.name,
                        index,
                        topic.topic_id,
                        config,
                        swapped.get((row.topic_id, index), []),
                        taking_over=taking_over,
                    )
                )
                for index in range(row.partitions)
            ]
        )
    partitions = sum(row.partitions for row in rows)
    reporting = asyncio.get_running_loop().create_task(
        report_recovery(lambda: sum(1 for _ in broker.topics.partitions()), partitions, _PROGRESS_INTERVAL_S)
    )
    image = broker.cluster.with_topics(registrations_of(rows, published))
    placed = {}
    try:
        failed = []
        for row, logs_of_topic in zip(rows, opening, strict=True):
            opened = await asyncio.gather(*map(_log_or_error, logs_of_topic))
            failed += [log for log in opened if isinstance(log, KafkaError)]
            topic_id = UUID(row.topic_id)
            epochs = {index: last.leader_epoch + taking_over for index, last in enumerate(image.partitions[topic_id])}
            placed[topic_id] = broker.topic_admin.serve_existing(row, opened, epochs)
        if failed and len(failed) == partitions:
            raise failed[0]  # all partitions failed, so the disk is at fault and only a restart helps
    finally:
        reporting.cancel()
    broker.topics.apply(image.with_topics(placed))
    return [*leftovers, *broker.logs.take_predecessors()]


async def _log_or_error(opening: Awaitable[Log]) -> Log | KafkaError:
    """Return a log, or the error from opening it: its partition is offline, and the others are served."""
    try:
        return await opening
    except KafkaError as error:
        return as_value(error)


async def close_logs(broker: Broker) -> None:
    """Close all logs. Errors are logged: the next start recovers those logs."""

    async def close(partition: Partition) -> None:
        try:
            await broker.run_blocking(partition.log.close)
        except KafkaLakeError as error:
            logger.error("log not closed partition=%s error=%s", partition.name, error)

    await asyncio.gather(*(close(partition) for partition in broker.topics.partitions()))
