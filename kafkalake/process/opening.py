"""Opens the logs of a broker's topics when it starts, and closes them when it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kafkalake.broker.broker import Broker
from kafkalake.broker.partitions.log_directory import log_config
from kafkalake.broker.partitions.topic_rows import topic_of
from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import KafkaError, KafkaLakeError, as_value
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.storage.clean_shutdown import NO_EPOCH, note_clean_shutdown
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

_PROGRESS_INTERVAL_S = 3.0


class OpenedLogs(NamedTuple):
    """leftovers: directories that are to be removed. is_cut: a log has lost records that may have been acknowledged."""

    leftovers: list[Path]
    is_cut: bool


async def report_recovery(recovered: Callable[[], int], partitions: int, interval_s: float) -> None:
    """Log the number of recovered partitions every `interval_s` until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        logger.info("recovering recovered=%d partitions=%d", recovered(), partitions)


async def open_logs(
    broker: Broker, image: ClusterImage, rows: Iterable[TopicRow], publishing: PartitionReporter, *, taking_over: bool
) -> OpenedLogs:
    """Open the logs of this broker's replicas, whose partitions are not led yet.

    taking_over: the last owner of the logs may still run. Raise `KafkaError` if no log could be opened.
    """
    run_blocking = broker.run_blocking
    here = [
        (row, index)
        for row in rows
        for index, registered in enumerate(image.partitions.get(UUID(row.topic_id), ()))
        if broker.broker_id in registered.replicas
    ]
    leftovers = await run_blocking(lambda: broker.logs.clear((row.topic, index) for row, index in here))
    swapped = await run_blocking(publishing.load_swapped)
    expiration_ms = broker.config.producer_id_expiration_ms
    configs = {
        row.topic_id: log_config(topic_of(row, broker.settings.current).config, expiration_ms) for row, _ in here
    }
    replicas = broker.replicas
    reporting = asyncio.get_running_loop().create_task(
        report_recovery(lambda: len(replicas.idle), len(here), _PROGRESS_INTERVAL_S)
    )

    async def open_log(row: TopicRow, index: int) -> None:
        """Open a log. One that does not open makes its partition offline, and the others are served."""
        topic_id = UUID(row.topic_id)
        registered = image.partitions[topic_id][index]
        opening = partial(
            broker.logs.open,
            row.topic,
            index,
            topic_id,
            configs[row.topic_id],
            swapped.get((row.topic_id, index), []),
            taking_over=taking_over,
            is_replicated=len(registered.replicas) > 1,
            is_counted=registered.counts(broker.broker_id),
        )
        try:
            replicas.take(topic_id, index, await run_blocking(opening))
        except KafkaError as error:
            replicas.take(topic_id, index, as_value(error))

    try:
        await asyncio.gather(*(open_log(row, index) for row, index in here))
    finally:
        reporting.cancel()
    failed = [log for log in replicas.idle.values() if isinstance(log, KafkaError)]
    if failed and len(failed) == len(here):
        raise failed[0]  # all logs failed, so the disk is at fault and only a restart helps
    is_cut = any(log.was_cut for log in replicas.idle.values() if isinstance(log, Log))
    return OpenedLogs([*leftovers, *broker.logs.take_predecessors()], is_cut)


async def close_logs(broker: Broker) -> None:
    """Fetch nothing more from leaders, close all logs, and note that they were closed in order.

    Errors are logged: the next start recovers those logs.
    """
    await broker.replicas.stop_following()

    async def close(log: Log) -> bool:
        try:
            await broker.run_blocking(log.close)
        except KafkaLakeError as error:
            logger.error("log not closed directory=%s error=%s", log.directory, error)
            return False
        return True

    closed = await asyncio.gather(*map(close, broker.replicas.open_logs()))
    epoch = broker.membership.broker_epoch
    if all(closed) and not any(True for _ in broker.replicas.offline()) and epoch != NO_EPOCH:
        await broker.run_blocking(partial(note_clean_shutdown, broker.world.files, str(broker.logs.root), epoch))
