"""The composition root: starts a broker process part by part, and stops it in the opposite order.

    start                                   stop (SIGTERM, SIGINT, SIGHUP, a lost lease)
    settings                                listener: no new connections, no more requests
    metadata store, lease                   pending responses sent
    logs opened and recovered               pending topic changes completed
    listener bound, address published       segments sealed
    registered in the cluster               pending group requests answered; offsets, transactions published
    gaps in Delta found (reconcile)         state published
    groups loaded, transactions resumed     lease released
    serving
    unfenced

The command line calls `run.run_broker`. `Node` is the same for tests in one process.

More than 400 lines: each part of a broker is made, begun and ended in one order, which is to be read in one place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from kafkalake import __version__, descriptors
from kafkalake.broker.admin.broker_settings import BrokerSettings
from kafkalake.broker.admin.kept_settings import KeptSettings
from kafkalake.broker.admin.producer_ids import FILE_NAME as PRODUCER_IDS_FILE
from kafkalake.broker.admin.producer_ids import first_unused
from kafkalake.broker.broker import Broker
from kafkalake.broker.controller.joining import TopicsRead
from kafkalake.broker.controller.protocol import EarlierRun
from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.broker.partitions.topic_rows import election_rules_of
from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.client.peers import ConnectedPeers
from kafkalake.cluster.config_changes import add_config
from kafkalake.cluster.image import ClusterImage, decide_together
from kafkalake.cluster.producer_ids import raise_next_producer_id
from kafkalake.config.layers import Settings
from kafkalake.config.listener import parse_listeners
from kafkalake.config.providers import resolve
from kafkalake.errors import KafkaStorageError
from kafkalake.metadata import lease as leases
from kafkalake.metadata import paths, reserve
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.identity import cluster_id
from kafkalake.metadata.lake_format import write_format
from kafkalake.metadata.lease_keeper import LeaseKeeper
from kafkalake.metadata.lock_file import look_at_lock
from kafkalake.metadata.registrations import has_topics_of, with_topics_of
from kafkalake.ownership import Ownership
from kafkalake.process import allocator
from kafkalake.process.jobs import run_jobs
from kafkalake.process.loop_alarm import LoopAlarm
from kafkalake.process.opening import close_logs, open_logs
from kafkalake.process.publishing import Publishing, assemble_publishing
from kafkalake.process.upkeep import Upkeep
from kafkalake.process.watchdog import LoopWatchdog
from kafkalake.server.acceptor import Acceptor
from kafkalake.server.connected_brokers import ConnectedBrokers, address_in
from kafkalake.server.context import BROKER_CLIENT_ID, ServerContext
from kafkalake.server.delayed_peers import ConnectedDelayedPeers
from kafkalake.server.group_peers import ConnectedGroupPeers
from kafkalake.server.leader_replicas import ConnectedLeaderReplicas
from kafkalake.server.registry import advertised
from kafkalake.server.transaction_peers import ConnectedTransactionPeers
from kafkalake.storage.clean_shutdown import NO_EPOCH, take_clean_shutdown
from kafkalake.storage.files import make_durable_directory
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.owned_files import OwnedFiles
from kafkalake.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

OPENING_THREADS = 4
METADATA_THREADS = 3
_LAST_WORK_TIMEOUT_MS = 2_000
"""Longest wait for busy threads at the end of a stop. The interpreter would wait for them forever."""
_RELEASE_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 10.0


class Node:
    """One broker in this process."""

    def __init__(
        self,
        lake: Path,
        overrides: Mapping[str, str],
        *,
        world: World | None = None,
        ends_process: bool = False,
        with_jobs: bool = False,
    ) -> None:
        """`overrides`: settings by Kafka's names. `ends_process`: end the process if the lease is lost and the event loop hangs.

        Raise `ConfigurationError` if a setting is invalid.
        """
        config = Settings(resolve(overrides)).broker
        self.lake = lake
        self.broker_id = config.id
        self.listeners = parse_listeners(config)
        """Where the broker listens, with the ports of the settings until it is started. The first is for other brokers."""
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
        self._root = paths.broker_log_path(lake, self.broker_id)
        self._stack = contextlib.AsyncExitStack()
        self.broker: Broker | None = None
        self._peers: ConnectedPeers | None = None
        self.acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Start everything. Raise `ConfigurationError`, `LakeError`, `LeaseHeldError` or `OSError`: call `stop` then too."""
        logger.info("broker starting version=%s broker=%d lake=%s", __version__, self.broker_id, self.lake)
        store = await self._blocking(self._open_store)
        self._stack.callback(store.close)
        files = OwnedFiles(self._world.files, self._ownership)
        settings = await self._read_settings(files)
        lease = await self._own(store, settings)
        shares = _share_descriptors(settings)
        await self._blocking(lambda: write_format(self.lake, __version__))
        await self._blocking(settings.show_static)
        broker, publishing = await self._assemble(store, settings, files, OpenFiles(files, shares.segment_files))
        self.broker = broker
        stop_s = settings.current.broker.shutdown_timeout_ms / 1000 / 4
        kept = await self._blocking(lambda: KeptSettings(str(self._root), self.broker_id, files))
        image = await self._follow_settings(store, settings, kept)
        earlier = await self._open_logs(broker, store, image, publishing, stop_s, taking_over=lease.took_over)
        if not any(True for _ in broker.replicas.offline()):  # else the files of those may still be open elsewhere
            await self._on_metadata(lease.note_takeover)
        acceptor = await self._listen(broker, publishing, lease, shares.connections)
        await self._join(broker, store, publishing, earlier, taking_over=lease.took_over)
        await broker.hand_over(kept)
        await self._start_coordinators(broker)
        self._stack.push_async_callback(self._stop_serving, broker, acceptor, stop_s)
        self._start_background(broker, store, publishing)
        self._watch()
        await self._blocking(lambda: reserve.keep(paths.reserve_path(self.lake, self.broker_id)))
        await acceptor.serve()
        await broker.membership.enter()
        logger.info(
            "broker started broker=%d listeners=%s lake=%s topics=%d",
            self.broker_id,
            ",".join(map(str, self.listeners)),
            self.lake,
            len(broker.topics),
        )

    # The steps of a start, in order. Each registers what undoes it at the stop.

    def _open_store(self) -> DeltaMetadataStore:
        return DeltaMetadataStore(self.lake, ownership=self._ownership)

    async def _read_settings(self, files: OwnedFiles) -> BrokerSettings:
        """Make the directory of the logs and read the settings that it has."""
        root = self._root.absolute()
        await self._blocking(lambda: make_durable_directory(self._world.files, str(root.parent)))
        await self._blocking(lambda: make_durable_directory(self._world.files, str(root)))
        return BrokerSettings(self._overrides, str(self._root), files)

    async def _follow_settings(
        self, store: DeltaMetadataStore, settings: BrokerSettings, kept: KeptSettings
    ) -> ClusterImage:
        """Return the newest image, with whose dynamic settings the broker starts, and those that it has kept itself."""
        image: ClusterImage = await self._blocking(store.control_store.load)
        settings.follow(add_config(image, kept.config).config)
        return image

    async def _own(self, store: DeltaMetadataStore, settings: BrokerSettings) -> leases.Lease:
        """Take the lease and keep it until the stop."""
        lease = await self._blocking(
            lambda: leases.acquire(
                store,
                self.lake,
                self.broker_id,
                self.listeners[0].host,
                self.listeners[0].port,
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

    async def _assemble(
        self, store: DeltaMetadataStore, settings: BrokerSettings, files: OwnedFiles, open_files: OpenFiles
    ) -> tuple[Broker, Publishing]:
        """Assemble the broker and its publishing, without topics."""
        loop = asyncio.get_running_loop()
        reporter = PartitionReporter(self.lake, self.broker_id, store, self._clock, self._on_metadata)
        cluster = ClusterImage(await self._blocking(lambda: cluster_id(self.lake)))
        peers = self._peers = ConnectedPeers(
            lambda broker_id: address_in(broker.membership.newest, broker_id),
            client_id=f"{BROKER_CLIENT_ID}{self.broker_id}",
            request_timeout_ms=lambda: settings.current.broker.request_timeout_ms,
            lost=lambda broker_id: broker.membership.lost(broker_id),
        )
        broker = Broker(
            lake=self.lake,
            broker_id=self.broker_id,
            cluster=cluster,
            settings=settings,
            store=store,
            control=store.control_store,
            others=lambda membership: ConnectedBrokers(
                membership, peers, lambda: settings.current.broker, self._look_at_lock
            ),
            logs=LogDirectory(self._root, self._clock, open_files, reporter.events_of),
            world=replace(self._world, files=files),
            observer=reporter,
            group_peers=ConnectedGroupPeers(peers),
            transaction_peers=ConnectedTransactionPeers(peers),
            delayed_peers=ConnectedDelayedPeers(peers),
            leader_replicas=ConnectedLeaderReplicas(peers, self.broker_id, lambda: broker.membership.broker_epoch),
            ownership=self._ownership,
            new_alarm=lambda: LoopAlarm(loop, self._clock),
            call_soon=loop.call_soon,
            run_blocking=self._blocking,
        )
        return broker, assemble_publishing(broker, reporter, store, peers, self._on_metadata)

    async def _open_logs(
        self,
        broker: Broker,
        store: DeltaMetadataStore,
        image: ClusterImage,
        publishing: Publishing,
        stop_s: float,
        *,
        taking_over: bool,
    ) -> EarlierRun:
        """Open the logs of this broker's replicas, and return how its last process ended."""
        self._at_stop("last publish", publishing.publisher.finish, stop_s)
        self._at_stop("closing of logs", lambda: close_logs(broker), stop_s)
        rows = await self._blocking(store.load_topics)
        published = await self._blocking(store.load_partitions)
        image = with_topics_of(image, rows, published, self.broker_id)
        epoch = await self._blocking(lambda: take_clean_shutdown(broker.world.files, str(self._root)))
        opened = await open_logs(broker, image, rows, publishing.reporter, taking_over=taking_over)
        if leftovers := opened.leftovers:
            broker.scheduler.once("removal of logs", lambda: self._blocking(lambda: broker.logs.remove(leftovers)))
        return EarlierRun(NO_EPOCH if opened.is_cut else epoch, is_cut=opened.is_cut)

    def _producer_id_files(self) -> list[tuple[int, str]]:
        """Return where releases before 0.2 kept the producer ids of each broker."""
        names = self._world.files.list(str(self._root.parent))
        return [(int(name), str(self._root.parent / name / PRODUCER_IDS_FILE)) for name in names if name.isdecimal()]

    async def _join(
        self,
        broker: Broker,
        store: DeltaMetadataStore,
        publishing: Publishing,
        earlier: EarlierRun,
        *,
        taking_over: bool,
    ) -> None:
        """Register in the cluster, and find what Delta lacks of the partitions that this broker leads, if it is alone."""
        self._stack.callback(broker.membership.stop)

        def read_topics() -> TopicsRead:
            rows, published = store.load_topics(), store.load_partitions()
            rules = election_rules_of(rows, broker.settings.current)
            unused = first_unused(self._producer_id_files(), self._world.files)

            def bring_together(image: ClusterImage) -> ClusterImage:
                return decide_together(
                    image,
                    lambda now: with_topics_of(now, rows, published, self.broker_id),
                    lambda now: raise_next_producer_id(now, unused),
                )

            return TopicsRead(bring_together, rules, lambda image: has_topics_of(image, rows))

        await broker.join(read_topics, self.listeners, earlier)
        await publishing.reporter.take_published(store.load_partitions)
        await publishing.reporter.compare_all(broker.topics)
        if taking_over and broker.controller.is_active and not await publishing.publisher.finish():
            raise KafkaStorageError("the leader epochs of a broker that took over were not published")

    async def _start_coordinators(self, broker: Broker) -> None:
        """Load groups and transactions, and resume what the previous process left."""
        await broker.start_coordinators()
        self._stack.push_async_callback(broker.scheduler.stop)
        if broker.config.is_broker:
            broker.staged.start(broker.scheduler)

    async def _listen(
        self, broker: Broker, publishing: Publishing, lease: leases.Lease, connections_max: int
    ) -> Acceptor:
        """Bind the listeners and publish the addresses. Connections wait until the acceptor serves."""
        assert self._peers is not None
        loop, settings = asyncio.get_running_loop(), broker.settings
        memory_bytes = allocator.memory_bytes()
        context = ServerContext(
            broker,
            self._clock,
            loop,
            advertised(),
            peers=self._peers,
            reports=publishing.reports,
            memory_bytes=memory_bytes,
            trim_heap=allocator.trim_heap,
        )
        acceptor = self.acceptor = Acceptor(context, self.listeners, connections_max)
        self.listeners = await acceptor.start()
        self._stack.callback(acceptor.abort)
        settings.show_given(self._settings_in_use())
        first = self.listeners[0]
        await self._on_metadata(lambda: lease.renew(host=first.advertised_host, port=first.advertised_port))
        return acceptor

    def _start_background(self, broker: Broker, store: DeltaMetadataStore, publishing: Publishing) -> None:
        """Start what runs beside the requests."""
        publishing.begin(broker.scheduler)
        Upkeep(broker, store, self._on_metadata).begin()
        broker.membership.begin(broker.scheduler)
        broker.isr_changes.begin(broker.scheduler, broker.follower_sessions.count_repeated)
        if self._with_jobs:
            broker.scheduler.once("jobs", lambda: run_jobs(self.lake))

    def _watch(self) -> None:
        """Tune the garbage collector and watch the event loop until the stop."""
        allocator.freeze_gc()
        watchdog = LoopWatchdog()
        watchdog.start()
        self._stack.callback(watchdog.stop)

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

    def _settings_in_use(self) -> dict[str, str]:
        """Return what the broker took for settings that need not be set, under the names that Kafka's tools look for."""
        broker_id = str(self.broker_id)
        return {
            "broker.id": broker_id,
            "node.id": broker_id,
            "listeners": ",".join(map(str, self.listeners)),
            "log.dirs": str(self._root.absolute()),
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

    async def _look_at_lock(self, broker_id: int) -> tuple[bool, str]:
        return await self._blocking(lambda: look_at_lock(self.lake, broker_id))

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

    # Stopping.

    async def _stop_serving(self, broker: Broker, acceptor: Acceptor, timeout_s: float) -> None:
        await self._in_time("leaving of the cluster", broker.membership.leave(), timeout_s)
        await acceptor.stop(timeout_s)
        await self._in_time("changes of topics", broker.topic_admin.wait(), timeout_s)

    async def _release(self, lease: leases.Lease, keeper: LeaseKeeper) -> None:
        """Release the lease, unless something may still write. The next broker then waits for the process or the lease to end."""
        keeper.stop()
        if not self._lease_lost and not self.is_stuck:
            await self._in_time("release of the lease", self._on_metadata(lease.release), _RELEASE_TIMEOUT_S)


def _share_descriptors(settings: BrokerSettings) -> descriptors.Descriptors:
    shares = descriptors.share_out(descriptors.current_limit(), settings.current.broker.open_files_max)
    logger.info("descriptors limit=%d segment_files=%d connections=%d reserve=%d", *shares)
    return shares
