"""The periodic work of a broker that is no request's: flushing, removal of files, retention, small metadata tables."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kafkalake.broker.broker import Broker
from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.retention import enforce_retention
from kafkalake.broker.partitions.rewritten_segments import RewrittenSegments
from kafkalake.errors import KafkaLakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.run_blocking import RunBlocking, iterate_in_turns
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

FLUSH_INTERVAL_MS = 200
UPKEEP_INTERVAL_MS = 10_000
REOPEN_INTERVAL_MS = 5_000
REWRITTEN_INTERVAL_MS = 2_000
DELAYED_INTERVAL_MS = 60_000


class Upkeep:
    """The work, see `begin`. `on_metadata` runs a function in a thread for Delta."""

    def __init__(self, broker: Broker, store: DeltaMetadataStore, on_metadata: RunBlocking) -> None:
        self._broker = broker
        self._store = store
        self._on_metadata = on_metadata

    def begin(self) -> None:
        """Work from now on. Retention begins after a delay, as in Kafka."""
        broker, every = self._broker, self._broker.scheduler.every
        every("flush", lambda: FLUSH_INTERVAL_MS, self.flush_if_due)
        every("upkeep", lambda: UPKEEP_INTERVAL_MS, self._look_after_logs)
        rewritten = RewrittenSegments(self._store, broker.replicas, self._on_metadata)
        every("rewritten segments", lambda: REWRITTEN_INTERVAL_MS, rewritten.look)
        every("offline replicas", lambda: REOPEN_INTERVAL_MS, self._reopen_failed)
        every("delayed metrics", lambda: DELAYED_INTERVAL_MS, self._log_delayed)
        every("maintenance", lambda: broker.config.metadata_maintenance_interval_ms, self._maintain_metadata)
        every(
            "retention",
            lambda: broker.config.log_retention_check_interval_ms,
            lambda: enforce_retention(broker),
            first_ms=broker.config.log_initial_task_delay_ms,
        )

    def flush_if_due(self) -> Awaitable[None] | None:
        """Flush the logs of topics with `flush.ms` to which nothing is appended any more. Without such topics there is no work."""
        due = [each for each in self._broker.topics.flushed_by_time() if each.log.flush_due()]
        following = [each for each in self._broker.replicas.following_by_time() if each.log.flush_due()]
        return self._flush(due, following) if due or following else None

    async def _flush(self, due: list[Partition], following: list[Follower]) -> None:
        for follower in following:
            try:
                await self._broker.replicas.fetchers.flush(follower)
            except Exception as error:
                logger.error("upkeep failed partition=%s error=%s", follower.name, error)
        for partition in due:
            if partition.log.flush_due() and not partition.syncing:
                await self._force_led(partition, partition.log.flush)

    async def _force_led(self, partition: Partition, flush: Callable[[], None]) -> None:
        try:
            if not partition.removed:
                await partition.change_log(self._broker.run_blocking, flush)
        except Exception as error:
            logger.error("upkeep failed partition=%s error=%s", partition.name, error)
            self._broker.append_queue.advance(partition)  # what the flush has discarded ends the leadership here

    async def _maintain_metadata(self) -> None:
        """Keep the metadata tables small. One table at a time, so that a publish waits for one listing at most."""
        try:
            await self._on_metadata(lambda: self._store.maintain(self._broker.config.metadata_retention_ms))
        except KafkaLakeError as error:
            logger.warning("metadata tables not cleaned up error=%s", error)

    async def _look_after_logs(self) -> None:
        """Run each log's periodic work: removal of deleted files, expiry of inactive producers, fsync of sealed segments."""
        replicas, now_ns = self._broker.replicas, self._broker.clock.monotonic_ns
        async for partition in iterate_in_turns(list(replicas.led()), now_ns):
            await self._look_after(partition.log, partial(self._force_led, partition, partition.log.flush_sealed))
        async for follower in iterate_in_turns(list(replicas.fetchers.followers()), now_ns):
            await self._look_after(follower.log, partial(replicas.fetchers.flush, follower, sealed_only=True))
        async for log in iterate_in_turns(replicas.idle_logs(), now_ns):
            await self._look_after(log, None)

    async def _look_after(self, log: Log, force: Callable[[], Awaitable[None]] | None) -> None:
        """Remove deleted files, expire inactive producers, and fsync sealed segments, so that after a power loss only the active
        segment needs recovery. Log errors, so that one partition's do not affect others. `force`: None of a log that is idle.
        """
        try:
            call_isolated(CallbackLoop.UPKEEP, log.remove_deleted_files)
            call_isolated(CallbackLoop.UPKEEP, log.expire_producers)
            if force is not None and log.has_unsynced_segments():
                await force()
        except Exception as error:
            logger.error("upkeep failed directory=%s error=%s", log.directory, error)

    def _reopen_failed(self) -> Awaitable[None] | None:
        replicas = self._broker.replicas
        return replicas.reopen_failed() if any(True for _ in replicas.offline()) else None

    def _log_delayed(self) -> None:
        """Log what waits to be delivered later, and how late the records of the last minute were, if there were any."""
        lateness = self._broker.delayed_metrics.lateness(self._broker.clock.now_ms())
        journals = self._broker.delayed.describe()
        overdue = sum(each.overdue for each in journals)
        if lateness.records or overdue:
            logger.info(
                "delayed delivery waiting=%d overdue=%d delivered=%d lateness_ms_p50=%d lateness_ms_p99=%d lateness_ms_max=%d",
                sum(each.waiting for each in journals),
                overdue,
                *lateness,
            )
