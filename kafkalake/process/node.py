"""The composition root: starts a broker process part by part, and stops it in the opposite order.

    start                                   stop (SIGTERM, SIGINT, SIGHUP, a lost lease)
    settings                                listener: no new connections, no more requests
    metadata store, lease                   pending responses sent
    logs opened and recovered               pending topic changes completed
    gaps in Delta found (reconcile)         segments sealed
    groups loaded, transactions resumed     pending group requests answered; offsets, transactions published
    listener bound, address published       state published
    serving                                 lease released

The command line calls `run_broker`. `Node` is the same for tests in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from kafkalake import __version__, descriptors
from kafkalake.broker.admin.broker_settings import FILE_NAME as SETTINGS_FILE
from kafkalake.broker.admin.broker_settings import BrokerSettings
from kafkalake.broker.admin.producer_ids import FILE_NAME as PRODUCER_IDS_FILE
from kafkalake.broker.admin.producer_ids import ProducerIds
from kafkalake.broker.broker import Broker, Identity
from kafkalake.broker.callbacks import Place, call_isolated
from kafkalake.broker.partitions.log_directory import LogDirectory, log_config
from kafkalake.broker.partitions.retention import enforce_retention
from kafkalake.broker.publishing.journals import publish_groups, publish_transactions
from kafkalake.broker.publishing.partitions import Publishing
from kafkalake.broker.transactions.held_offsets import HeldOffsets
from kafkalake.clock import Clock
from kafkalake.config.listener import Listener, parse_listener
from kafkalake.config.providers import resolvable
from kafkalake.errors import KafkaError, KafkaLakeError, KafkaStorageError, as_value
from kafkalake.extras import import_arrow_without_pandas
from kafkalake.metadata import lease as leases
from kafkalake.metadata import paths, reserve
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.identity import cluster_id
from kafkalake.metadata.lake_format import write_format
from kafkalake.metadata.leaders import refuse_foreign_partitions
from kafkalake.metadata.lease_keeper import LeaseKeeper
from kafkalake.ownership import Ownership
from kafkalake.process import allocator, logs
from kafkalake.process.jobs import run_jobs
from kafkalake.process.supervision import supervise
from kafkalake.process.watchdog import LoopWatchdog
from kafkalake.server.acceptor import Acceptor
from kafkalake.server.context import ServerContext
from kafkalake.server.registry import advertised
from kafkalake.storage.files import make_durable_directory
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.owned_files import OwnedFiles
from kafkalake.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

OPENING_THREADS = 4
METADATA_THREADS = 3
_UPKEEP_INTERVAL_S = 0.2
_SLOW_UPKEEP_INTERVAL_MS = 10_000
_NEVER = 2**63 - 1
_LAST_WORK_TIMEOUT_MS = 2_000
"""Longest wait for busy threads at the end of a stop. The interpreter would wait for them forever."""
_RELEASE_TIMEOUT_S = 5.0
_PROGRESS_INTERVAL_S = 3.0
_END_TIMEOUT_S = 10.0


def run_broker(
    lake: Path, host: str, port: int, broker_id: int, overrides: Mapping[str, str], *, with_jobs: bool = False
) -> int:
    """Run a broker in the foreground until SIGTERM or SIGINT. Return the exit code.

    Prints one line `listening on HOST:PORT` to stdout when it is ready. `overrides` are settings under Kafka's names. `with_jobs`:
    run jobs by their schedule in a process beside it. If the start fails, print one line to stderr and return 1.
    """
    settings = resolvable(overrides)
    logs.write_to_stderr(settings.get("log.level", "info") if settings.get("log.level") in logs.LEVELS else "info")
    import_arrow_without_pandas()
    descriptors.raise_limit()
    node = Node(Path(lake), host, port, broker_id, overrides, ends_process=True, with_jobs=with_jobs)
    try:
        os.umask(paths.lake_umask(Path(lake), settings.get("lake.umask")))
        code = uvloop.run(_run(node))
        if node.is_stuck:
            logging.shutdown()
            os._exit(1)  # a thread blocked on the disk would keep the process alive
        return code
    except KafkaLakeError as error:
        print(f"kafkalake: {error}", file=sys.stderr)
    except OSError as error:
        print(f"kafkalake: cannot listen on {host}:{port}: {error}", file=sys.stderr)
    return 1


async def _run(node: Node) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup ignores it
            loop.add_signal_handler(number, node.end)
    try:
        await node.start()
        _follow_log_level(node)
        print(f"listening on {node.host}:{node.port}", flush=True)
        node.say_what_is_left_to_others()
        await node.ended.wait()
    finally:
        await node.stop()
    return 1 if node.failed else 0


def _follow_log_level(node: Node) -> None:
    """Set the log level from the settings, now and on every change."""
    assert node.broker is not None
    settings = node.broker.settings

    def follow() -> None:
        logs.set_level(settings.current.broker.log_level)

    settings.on_change(follow)
    follow()


async def report_recovery(recovered: Callable[[], int], partitions: int, interval_s: float) -> None:
    """Log the number of recovered partitions every `interval_s` until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        logger.info("recovering recovered=%d partitions=%d", recovered(), partitions)


class Node:
    """One broker in this process."""

    def __init__(
        self,
        lake: Path,
        host: str,
        port: int,
        broker_id: int,
        overrides: Mapping[str, str],
        *,
        world: World | None = None,
        ends_process: bool = False,
        with_jobs: bool = False,
    ) -> None:
        """`ends_process`: end the process if the lease is lost and the event loop hangs."""
        self.lake = lake
        self.host = host
        self.port = port
        self.broker_id = broker_id
        self.failed = False
        self._lease_lost = False
        self.is_stuck = False
        """Whether a blocking call did not end in time at the stop."""
        self.ended = asyncio.Event()
        """Set when the broker is to be stopped: `end` was called, or the lease is lost."""
        self._overrides = overrides
        self._with_jobs = with_jobs
        self._world = world or World()
        self._clock = self._world.clock
        self._working: set[Future[Any]] = set()
        self._ownership = Ownership(self._clock)
        self._ends_process = ends_process
        self._waits_no_more = threading.Event()
        # Two executors, so that threads blocked in fsync do not delay publishing of metadata.
        self._executor = ThreadPoolExecutor(OPENING_THREADS, thread_name_prefix="blocking")
        self._metadata_executor = ThreadPoolExecutor(METADATA_THREADS, thread_name_prefix="metadata")
        self._background: list[asyncio.Task[None]] = []
        self._stack = contextlib.AsyncExitStack()
        self.broker: Broker | None = None
        self.acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Start everything. Raise `ConfigurationError`, `LakeError`, `LeaseHeldError` or `OSError`: call `stop` then too."""
        loop = asyncio.get_running_loop()
        logger.info("broker starting version=%s broker=%d lake=%s", __version__, self.broker_id, self.lake)
        root = paths.broker_log_path(self.lake, self.broker_id)
        store = await self._blocking(self._open_store)
        self._stack.callback(store.close)
        await self._blocking(lambda: refuse_foreign_partitions(store, self.lake, self.broker_id))
        await self._blocking(lambda: make_durable_directory(self._world.files, str(root.absolute())))
        files = OwnedFiles(self._world.files, self._ownership)
        settings = BrokerSettings(self._overrides, str(root / SETTINGS_FILE), files)
        lease = await self._own(store, settings)
        shares = descriptors.share_out(descriptors.current_limit(), settings.current.broker.open_files_max)
        logger.info(
            "descriptors limit=%d segment_files=%d connections=%d reserve=%d",
            shares.limit,
            shares.segment_files,
            shares.connections,
            shares.reserve,
        )
        await self._blocking(lambda: write_format(self.lake, __version__))
        await self._blocking(settings.show_static)
        held = HeldOffsets()
        publishing = Publishing(self.lake, self.broker_id, store, self._clock, self._on_metadata, held.stable_offset)
        identity = Identity(self.broker_id, self.host, self.port, await self._blocking(lambda: cluster_id(self.lake)))
        broker = self.broker = Broker(
            lake=self.lake,
            identity=identity,
            settings=settings,
            store=store,
            logs=LogDirectory(root, self._clock, OpenFiles(files, shares.segment_files), publishing.events_of),
            producer_ids=ProducerIds(str(root / PRODUCER_IDS_FILE), self.broker_id, files),
            world=replace(self._world, files=files),
            observer=publishing,
            held_offsets=held,
            ownership=self._ownership,
            call_soon=loop.call_soon,
            run_blocking=self._blocking,
        )
        broker.timers.connect(_LoopAlarm(loop, broker.timers.ring, self._clock))
        await publishing.start(settings.current.broker.metadata_publish_interval_ms)
        stop_s = settings.current.broker.shutdown_timeout_ms / 1000
        self._at_stop("last publish", publishing.finish, stop_s / 4)
        self._at_stop("closing of logs", lambda: self._close_logs(broker), stop_s / 4)
        await self._open_topics(broker, store, publishing, taking_over=lease.took_over)
        await self._blocking(lambda: publishing.take_published(took_over=lease.took_over))
        await self._blocking(lambda: publishing.reconcile(broker.topics))
        if lease.took_over and not await publishing.finish():
            raise KafkaStorageError("the leader epochs of a broker that took over were not published")
        interval_ms = settings.current.broker.metadata_publish_interval_ms
        group_publishing = publish_groups(broker.groups.journal, store, self._clock, self._on_metadata, interval_ms)
        transaction_publishing = publish_transactions(
            broker.transactions.journal, store, self._clock, self._on_metadata, interval_ms
        )
        committed = await self._blocking(store.load_group_offsets)
        broker.groups.start(committed.rows, committed.positions)
        transactions = await self._blocking(store.load_transactions)
        partitions = await self._blocking(store.load_partitions)
        stable_offsets = {(row.topic, row.partition): row.last_stable_offset for row in partitions}
        broker.transactions.start(transactions.rows, transactions.positions, stable_offsets)
        self._at_stop("last publish of groups", group_publishing.finish, stop_s / 4)
        self._at_stop("last publish of transactions", transaction_publishing.finish, stop_s / 4)
        broker.staged.start()
        context = ServerContext(
            broker,
            self._clock,
            loop,
            advertised(),
            memory_bytes=allocator.memory_bytes(),
            trim_heap=allocator.trim_heap,
        )
        listener = parse_listener(self.host, self.port, settings.current.broker.advertised_listeners)
        acceptor = self.acceptor = Acceptor(context, listener, shares.connections)
        listener = await acceptor.start()
        self.port = listener.port
        identity.host, identity.port = listener.advertised_host, listener.advertised_port
        settings.show_given(self._given_settings(root, listener))
        self._stack.push_async_callback(self._stop_serving, broker, acceptor, stop_s / 4)
        await self._on_metadata(lambda: lease.renew(host=identity.host, port=identity.port))
        background: dict[str, Callable[[], Awaitable[None]]] = {
            "publishing": publishing.run,
            "publishing of groups": group_publishing.run,
            "publishing of transactions": transaction_publishing.run,
            "upkeep": lambda: self._upkeep(broker),
            "retention": lambda: self._enforce_retention(broker),
            "maintenance of metadata": lambda: self._maintain_metadata(broker, store),
        }
        if self._with_jobs:
            background["jobs"] = lambda: run_jobs(self.lake)
        for name, work in background.items():
            self._background.append(loop.create_task(supervise(name, work, self._clock), name=name))
        self._watch()
        await self._blocking(lambda: reserve.keep(paths.reserve_path(self.lake, self.broker_id)))
        await acceptor.serve()
        logger.info(
            "broker started broker=%d address=%s:%d lake=%s topics=%d",
            self.broker_id,
            self.host,
            self.port,
            self.lake,
            len(broker.topics),
        )

    # What a simulation, which is one thread, does in its own way.

    def _open_store(self) -> DeltaMetadataStore:
        return DeltaMetadataStore(self.lake, ownership=self._ownership)

    async def _own(self, store: DeltaMetadataStore, settings: BrokerSettings) -> leases.Lease:
        """Take the lease and keep it until the stop."""
        lease = await self._blocking(
            lambda: leases.acquire(
                store,
                self.lake,
                self.broker_id,
                self.host,
                self.port,
                self._clock,
                lease_ms=settings.current.broker.lease_duration_ms,
                ownership=self._ownership,
                wait_ms=settings.current.broker.lease_wait_ms,
                sleep=self._waits_no_more.wait,
            )
        )
        keeper = LeaseKeeper(lease, self._clock, self._lost_lease(asyncio.get_running_loop()))
        self._stack.push_async_callback(self._release, lease, keeper)
        keeper.start()
        return lease

    def _watch(self) -> None:
        """Tune the garbage collector and watch the event loop until the stop."""
        allocator.settle_collector()
        watchdog = LoopWatchdog()
        watchdog.start()
        self._stack.callback(watchdog.stop)

    def say_what_is_left_to_others(self) -> None:
        """Log which jobs the broker does not run itself, and how to run them."""
        if self._with_jobs:
            logger.info("lag, compaction and maintenance run by their schedule in a process of their own")
        else:
            logger.info(
                "compaction (cleanup.policy=compact) is not run by the broker: start it with --jobs, "
                "or run kafkalake jobs schedule --lake %s",
                self.lake,
            )

    async def stop(self) -> None:
        """Stop all started parts in reverse order. Errors are logged and do not prevent the rest from stopping."""
        logger.info("broker stopping broker=%d", self.broker_id)
        try:
            await self._stack.aclose()
        except Exception:
            logger.exception("stopping failed broker=%d", self.broker_id)
            self.failed = True
        for executor in (self._executor, self._metadata_executor):
            executor.shutdown(wait=False, cancel_futures=True)
        deadline_ms = self._clock.monotonic_ms() + _LAST_WORK_TIMEOUT_MS
        while self._working and not self.is_stuck:
            await asyncio.sleep(0.02)
            self.is_stuck = self._clock.monotonic_ms() >= deadline_ms
        logger.info("broker stopped broker=%d in_time=%s", self.broker_id, not self.is_stuck)

    def _given_settings(self, root: Path, listener: Listener) -> dict[str, str]:
        """Return the command line's options under the names that Kafka's tools look for."""
        broker_id = str(self.broker_id)
        return {
            "broker.id": broker_id,
            "node.id": broker_id,
            "listeners": str(listener),
            "log.dirs": str(root.absolute()),
        }

    def _at_stop(self, what: str, work: Callable[[], Awaitable[Any]], timeout_s: float) -> None:
        """Register `work` to run at the stop, unless the lease is lost by then."""

        async def part() -> None:
            if not self._lease_lost:
                await self._in_time(what, work(), timeout_s)

        self._stack.push_async_callback(part)

    async def _in_time(self, what: str, work: Awaitable[Any], timeout_s: float) -> None:
        """Await one part of the stop, with a timeout. The next start repairs unfinished work."""
        try:
            await asyncio.wait_for(work, timeout_s)
        except TimeoutError:
            self.is_stuck = self.failed = True
            logger.error("stop goes on without waiting for: %s", what)
        except Exception:
            self.failed = True
            logger.exception("stopping failed part=%r", what)

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await self._run_in(self._executor, work)

    async def _on_metadata(self, work: Callable[[], T]) -> T:
        return await self._run_in(self._metadata_executor, work)

    async def _run_in(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        future = executor.submit(work)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # break the reference cycle of an error in `future` and this frame in its traceback

    def end(self) -> None:
        """Have the broker stopped. A `start` that is waiting for a lease fails at once."""
        self.ended.set()
        self._waits_no_more.set()

    # Starting.

    async def _open_topics(
        self, broker: Broker, store: DeltaMetadataStore, publishing: Publishing, *, taking_over: bool
    ) -> None:
        rows = await self._blocking(store.load_topics)
        leftovers = await self._blocking(
            lambda: broker.logs.clear((row.topic, index) for row in rows for index in range(row.partitions))
        )
        swapped = await self._blocking(publishing.load_swapped)
        expiration_ms = broker.config.producer_id_expiration_ms
        opening = []
        for row in rows:
            topic = broker.topic_admin.topic_of(row)
            config = log_config(topic.config, expiration_ms)
            opening.append(
                [
                    self._blocking(
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
        try:
            failed = []
            for row, logs_of_topic in zip(rows, opening, strict=True):
                opened = await asyncio.gather(*map(_log_or_error, logs_of_topic))
                failed += [log for log in opened if isinstance(log, KafkaError)]
                broker.topic_admin.serve_existing(row, opened)
            if failed and len(failed) == partitions:
                raise failed[0]  # all partitions failed, so the disk is at fault and only a restart helps
        finally:
            reporting.cancel()
        leftovers += broker.logs.take_predecessors()
        if leftovers:
            self._background.append(
                asyncio.get_running_loop().create_task(self._blocking(lambda: broker.logs.remove(leftovers)))
            )

    # Running.

    def _lost_lease(self, loop: asyncio.AbstractEventLoop) -> Callable[[str], None]:
        """Return the callback for a lost lease, which the lease keeper calls in its thread."""

        def lost(reason: str) -> None:
            if self._ends_process:
                timer = threading.Timer(_END_TIMEOUT_S, self._end_process)
                timer.daemon = True
                timer.start()
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(self._lose_lease, reason)

        return lost

    @staticmethod
    def _end_process() -> None:
        logger.critical("lease lost and the broker did not stop in time, ending the process")
        logging.shutdown()
        os._exit(1)

    def _lose_lease(self, reason: str) -> None:
        """Stop responding and writing, even for the shutdown: another broker may own the logs now."""
        logger.error("lease lost, stopping broker=%d reason=%r", self.broker_id, reason)
        self._lease_lost = self.failed = True
        if self.acceptor is not None:
            self.acceptor.abort()
        self.ended.set()

    async def _upkeep(self, broker: Broker) -> None:
        """Run each log's periodic work: fsync, removal of deleted files, expiry of inactive producers."""
        expired_ms = self._clock.monotonic_ms()
        while True:
            await asyncio.sleep(_UPKEEP_INTERVAL_S)
            for partition in broker.topics.partitions():
                log = partition.log
                try:
                    if log.config.flush_ms < _NEVER and log.flush_due() and not partition.syncing:
                        await self._blocking(log.flush)
                except Exception as error:
                    logger.error("upkeep failed partition=%s error=%s", partition.name, error)
            if self._clock.monotonic_ms() - expired_ms >= _SLOW_UPKEEP_INTERVAL_MS:
                expired_ms = self._clock.monotonic_ms()
                for partition in broker.topics.partitions():
                    await self._look_after(partition)

    async def _enforce_retention(self, broker: Broker) -> None:
        """Enforce retention periodically, first after an initial delay, as in Kafka."""
        await asyncio.sleep(broker.config.log_initial_task_delay_ms / 1000)
        while True:
            await enforce_retention(broker)
            await asyncio.sleep(broker.config.log_retention_check_interval_ms / 1000)

    async def _maintain_metadata(self, broker: Broker, store: DeltaMetadataStore) -> None:
        """Keep the metadata tables small, periodically. One table at a time, so that a publish waits for one listing at most."""
        while True:
            await asyncio.sleep(broker.config.metadata_maintenance_interval_ms / 1000)
            try:
                await self._on_metadata(lambda: store.maintain(broker.config.metadata_retention_ms))
            except KafkaLakeError as error:
                logger.warning("metadata tables not cleaned up error=%s", error)

    async def _look_after(self, partition: Any) -> None:
        """Remove deleted files, expire inactive producers, and fsync sealed segments, so that after a power loss only the active
        segment needs recovery. Log errors, so that one partition's do not affect others.
        """
        try:
            call_isolated(Place.UPKEEP, partition.log.remove_deleted_files)
            call_isolated(Place.UPKEEP, partition.log.expire_producers)
            if partition.log.has_unsynced_segments():
                await self._blocking(partition.log.flush_sealed)
        except Exception as error:
            logger.error("upkeep failed partition=%s error=%s", partition.name, error)

    # Stopping.

    async def _stop_serving(self, broker: Broker, acceptor: Acceptor, timeout_s: float) -> None:
        await acceptor.stop(timeout_s)
        await self._in_time("changes of topics", broker.topic_admin.wait(), timeout_s)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _close_logs(self, broker: Broker) -> None:
        async def close(partition: Any) -> None:
            try:
                await self._blocking(partition.log.close)
            except KafkaLakeError as error:
                logger.error("log not closed partition=%s error=%s", partition.name, error)

        await asyncio.gather(*(close(partition) for partition in broker.topics.partitions()))

    async def _release(self, lease: leases.Lease, keeper: LeaseKeeper) -> None:
        """Release the lease, unless something may still write. The next broker then waits for the process or the lease to end."""
        keeper.stop()
        if not self._lease_lost and not self.is_stuck:
            await self._in_time("release of the lease", self._on_metadata(lease.release), _RELEASE_TIMEOUT_S)


async def _log_or_error(opening: Awaitable[Log]) -> Log | KafkaError:
    """Return a log, or the error from opening it: its partition is offline, and the others are served."""
    try:
        return await opening
    except KafkaError as error:
        return as_value(error)


class _LoopAlarm:
    """The event loop as the alarm of the broker's timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], clock: Clock) -> None:
        self._loop = loop
        self._ring = ring
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        delay_ms = max(0, at_ms - self._clock.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self._ring)
