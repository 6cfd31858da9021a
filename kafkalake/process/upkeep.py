"""The periodic work of a broker that is no request's: flushing, removal of files, retention, small metadata tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kafkalake.broker.broker import Broker
from kafkalake.broker.callbacks import Place, call_isolated
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.retention import enforce_retention
from kafkalake.errors import KafkaLakeError
from kafkalake.metadata.delta import DeltaMetadataStore

logger = logging.getLogger(__name__)

UPKEEP_INTERVAL_S = 0.2
SLOW_UPKEEP_INTERVAL_MS = 10_000
_NEVER = 2**63 - 1


class Upkeep:
    """The work, each part a coroutine that goes on until it is cancelled. `on_metadata` runs a function in a thread for Delta."""

    def __init__(
        self, broker: Broker, store: DeltaMetadataStore, on_metadata: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._broker = broker
        self._store = store
        self._on_metadata = on_metadata
        self._clock = broker.clock

    async def look_after_logs(self) -> None:
        """Run each log's periodic work: fsync, removal of deleted files, expiry of inactive producers."""
        expired_ms = self._clock.monotonic_ms()
        while True:
            await asyncio.sleep(UPKEEP_INTERVAL_S)
            for partition in self._broker.topics.partitions():
                log = partition.log
                try:
                    if log.config.flush_ms < _NEVER and log.flush_due() and not partition.syncing:
                        await self._broker.run_blocking(log.flush)
                except Exception as error:
                    logger.error("upkeep failed partition=%s error=%s", partition.name, error)
            if self._clock.monotonic_ms() - expired_ms >= SLOW_UPKEEP_INTERVAL_MS:
                expired_ms = self._clock.monotonic_ms()
                for partition in self._broker.topics.partitions():
                    await self._look_after(partition)

    async def enforce_retention(self) -> None:
        """Enforce retention periodically, first after an initial delay, as in Kafka."""
        await asyncio.sleep(self._broker.config.log_initial_task_delay_ms / 1000)
        while True:
            await enforce_retention(self._broker)
            await asyncio.sleep(self._broker.config.log_retention_check_interval_ms / 1000)

    async def maintain_metadata(self) -> None:
        """Keep the metadata tables small, periodically. One table at a time, so that a publish waits for one listing at most."""
        while True:
            await asyncio.sleep(self._broker.config.metadata_maintenance_interval_ms / 1000)
            try:
                await self._on_metadata(lambda: self._store.maintain(self._broker.config.metadata_retention_ms))
            except KafkaLakeError as error:
                logger.warning("metadata tables not cleaned up error=%s", error)

    async def _look_after(self, partition: Partition) -> None:
        """Remove deleted files, expire inactive producers, and fsync sealed segments, so that after a power loss only the active
        segment needs recovery. Log errors, so that one partition's do not affect others.
        """
        try:
            call_isolated(Place.UPKEEP, partition.log.remove_deleted_files)
            call_isolated(Place.UPKEEP, partition.log.expire_producers)
            if partition.log.has_unsynced_segments():
                await self._broker.run_blocking(partition.log.flush_sealed)
        except Exception as error:
            logger.error("upkeep failed partition=%s error=%s", partition.name, error)
