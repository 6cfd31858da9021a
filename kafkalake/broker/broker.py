"""A broker assembled from the parts of this package. No socket, no wire versions.

Everything runs on the event loop's thread. Calls that block on Delta or on many files go through `run_blocking`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from kafkalake.broker.admin.broker_settings import BrokerSettings, check_dynamic
from kafkalake.broker.admin.client_metrics import check_subscription
from kafkalake.broker.admin.client_quotas import check_quotas
from kafkalake.broker.admin.config_admin import ConfigAdmin
from kafkalake.broker.admin.kept_settings import KeptSettings
from kafkalake.broker.admin.producer_ids import ProducerIds
from kafkalake.broker.admin.scram_credentials import check_credentials
from kafkalake.broker.admin.topic_admin import TopicAdmin
from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.controller.joining import TopicsRead
from kafkalake.broker.controller.membership import Membership
from kafkalake.broker.controller.protocol import EarlierRun, OtherBrokers
from kafkalake.broker.controller.steps import Reach
from kafkalake.broker.delayed.delayed_peers import DelayedPeers
from kafkalake.broker.delayed.gate import DelayGate
from kafkalake.broker.delayed.leader_targets import LeaderTargets
from kafkalake.broker.delayed.metrics import HandOverMetrics
from kafkalake.broker.delayed.service import DelayedService
from kafkalake.broker.groups.lowest_offsets import GroupPeers
from kafkalake.broker.groups.service import GroupService
from kafkalake.broker.partitions.append_queue import AppendQueue, CallSoon
from kafkalake.broker.partitions.fetch import FetchService
from kafkalake.broker.partitions.fetch_sessions import FetchSessionCache
from kafkalake.broker.partitions.followed_reads import FollowedReads
from kafkalake.broker.partitions.follower_sessions import FollowerSessions
from kafkalake.broker.partitions.isr_changes import IsrChanges
from kafkalake.broker.partitions.leader_replicas import LeaderReplicas
from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import Alarm, Purgatory, Timers
from kafkalake.broker.partitions.replica_fetch import ReplicaFetchService
from kafkalake.broker.partitions.replicas import ReplicaObserver, Replicas
from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.partitions.sent_segments import SentSegments
from kafkalake.broker.partitions.topic_rows import election_rules_of
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.broker.staged.service import StagedAppends
from kafkalake.broker.transactions.fault_points import kill_as_asked
from kafkalake.broker.transactions.service import TransactionService
from kafkalake.broker.transactions.transaction_peers import TransactionPeers
from kafkalake.cluster.control_store import ControlStore
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, Endpoint, ResourceKind
from kafkalake.config.broker import BrokerConfig
from kafkalake.config.listener import Listener
from kafkalake.config.topics import TopicConfig
from kafkalake.errors import KafkaLakeError
from kafkalake.internal_topics import DELAYED_JOURNAL, GROUP_JOURNAL, TRANSACTION_JOURNAL
from kafkalake.machine import boot_id
from kafkalake.metadata.store import BrokerTables
from kafkalake.ownership import Ownership
from kafkalake.run_blocking import RunBlocking
from kafkalake.world import World

logger = logging.getLogger(__name__)


class BrokerObserver(ReplicaObserver, Protocol):
    """Callbacks for partition changes. In a running node this is what reports to the publisher."""

    def partition_moved(self, partition: Partition) -> None:
        """Handle changed offsets of a partition. Called on the hot path."""
        ...

    def partition_marked(self, partition: Partition, is_written: bool) -> None:
        """Handle the marker of a transaction in a partition: one to be written, then whatever became of it."""
        ...


OthersOf = Callable[[Membership], OtherBrokers]
"""Return the connections to the other brokers of a membership."""


class Broker:
    """The broker's parts, by name."""

    def __init__(
        self,
        *,
        lake: Path,
        broker_id: int,
        cluster: ClusterImage,
        settings: BrokerSettings,
        store: BrokerTables,
        control: ControlStore,
        others: OthersOf,
        logs: LogDirectory,
        world: World,
        observer: BrokerObserver,
        group_peers: GroupPeers,
        transaction_peers: TransactionPeers,
        delayed_peers: DelayedPeers,
        leader_replicas: LeaderReplicas,
        ownership: Ownership,
        new_alarm: Callable[[], Alarm],
        call_soon: CallSoon,
        run_blocking: RunBlocking,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.store = store
        self.logs = logs
        self.world = world
        self.clock = clock = world.clock
        self.ownership = ownership
        self.run_blocking = run_blocking
        self._observer = observer
        self.group_peers = group_peers
        self.transaction_peers = transaction_peers
        self.topics = Topics(cluster)
        self.timers = Timers(clock, new_alarm())
        self.scheduler = Scheduler(clock, new_alarm())
        self.purgatory = Purgatory(self.timers)
        self.append_queue = self._make_append_queue(call_soon)
        self.end_burst = self.append_queue.end_burst
        """To be called before a request that reads what was appended by requests before it."""
        self.wire_cache = WireCache(self.config.fetch_wire_cache_bytes)
        self.fetch_sessions = self._make_fetch_sessions()
        self.followed_reads = FollowedReads(lambda replica: self.replicas.fetchers.find(replica), self.purgatory)
        self.fetcher = FetchService(
            self.topics, self.fetch_sessions, self.purgatory, clock, lambda: self.config, self.followed_reads
        )
        self.replicas = self._make_replicas(leader_replicas)
        self._coordinates = False
        reach = kill_as_asked(os.environ)
        self.membership = self._make_membership(cluster.cluster_id, control, others, reach)
        self.controller = self.membership.controller
        self.producer_ids = ProducerIds(self.membership.allocate_producer_ids)
        self.isr_changes = self._make_isr_changes()
        self.follower_sessions = self._make_follower_sessions()
        self.replica_fetches = self._make_replica_fetches()
        self.sent_segments = SentSegments(
            self.replica_fetches, self.replicas.fetchers, lambda: self.topics.image, self.run_blocking
        )
        self.topic_admin = self._make_topic_admin(reach)
        self.groups = GroupService(self)
        self.config_admin = self._make_config_admin()
        self.transactions = TransactionService(self, self.groups.coordinator.table)
        self.delayed_targets = LeaderTargets(self, delayed_peers)
        self.delayed_metrics = HandOverMetrics()
        self.delayed = DelayedService(self, self.delayed_targets, self.delayed_metrics)
        self.delay_gate = self._make_delay_gate(delayed_peers)
        self.staged = StagedAppends(self, lake, world.files)
        settings.on_change(self._settings_changed)

    def _make_follower_sessions(self) -> FollowerSessions:
        return FollowerSessions(
            self.purgatory,
            lambda: self.world.random.randrange(1, 2**31),
            self.clock.monotonic_ms,
            self.isr_changes.note_repeated,
        )

    def _make_append_queue(self, call_soon: CallSoon) -> AppendQueue:
        return AppendQueue(
            self.purgatory,
            call_soon,
            self.run_blocking,
            self._observer.partition_moved,
            self.ownership,
            self.clock,
            lambda partition: self.replicas.fail(partition),
        )

    def _make_fetch_sessions(self) -> FetchSessionCache:
        return FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots,
            lambda: self.world.random.randrange(1, 2**31),
            self.config.max_incremental_fetch_session_partitions,
            lambda asked: self.topics.serves(asked.topic, asked.partition),
        )

    def _make_throttle(
        self, rate_of: Callable[[BrokerConfig], int | None], replicas_of: Callable[[TopicConfig], str]
    ) -> ReplicationThrottle:
        return ReplicationThrottle(
            self.broker_id, self.topics, self.clock, lambda: rate_of(self.config), replicas_of, self.timers.schedule
        )

    def _make_replicas(self, leaders: LeaderReplicas) -> Replicas:
        return Replicas(
            broker_id=self.broker_id,
            topics=self.topics,
            store=self.store,
            logs=self.logs,
            cache=self.wire_cache,
            clock=self.clock,
            settings=lambda: self.settings.current,
            leaders=leaders,
            reads=self.followed_reads,
            throttle=self._make_throttle(
                lambda config: config.follower_replication_throttled_rate,
                lambda topic: topic.follower_replication_throttled_replicas,
            ),
            observer=self._observer,
            changed=lambda names: self.groups.topics_changed(names),
            moved=lambda topic, index: self._leader_moved(topic, index),
            run_blocking=self.run_blocking,
            later=self.timers.schedule,
            advance=self.append_queue.advance,
            leave=self.append_queue.leave,
        )

    def _make_membership(self, cluster_id: str, control: ControlStore, others: OthersOf, reach: Reach) -> Membership:
        return Membership(
            self.broker_id,
            cluster_id,
            control,
            self.replicas,
            self.topics.election_rules,
            lambda rows: election_rules_of(rows, self.settings.current),
            self.world,
            lambda: self.config,
            self.run_blocking,
            others,
            self.settings.follow,
            lambda: self.topic_admin.settler.settle_soon(),
            reach,
        )

    def _make_isr_changes(self) -> IsrChanges:
        return IsrChanges(
            self.broker_id,
            self.topics,
            controller=lambda: self.membership.current_controller,
            broker_epoch=lambda: self.membership.broker_epoch,
            advance=self.append_queue.advance,
            later=self.timers.schedule,
            clock=self.clock,
            lag_ms=lambda: self.config.replica_lag_time_max_ms,
        )

    def _make_replica_fetches(self) -> ReplicaFetchService:
        sent = self._make_throttle(
            lambda config: config.leader_replication_throttled_rate,
            lambda topic: topic.leader_replication_throttled_replicas,
        )
        return ReplicaFetchService(
            self.topics, self.purgatory, self.isr_changes, self.follower_sessions, sent, lambda: self.config
        )

    def _make_topic_admin(self, reach: Reach) -> TopicAdmin:
        return TopicAdmin(
            topics=self.topics,
            controller=self.controller,
            create_elsewhere=self.membership.create_topic,
            store=self.store,
            world=self.world,
            settings=lambda: self.settings.current,
            run_blocking=self.run_blocking,
            later=self.timers.schedule,
            reach=reach,
        )

    def _make_delay_gate(self, peers: DelayedPeers) -> DelayGate:
        reach = kill_as_asked(os.environ)
        return DelayGate(
            self.broker_id, self.topics, self.delayed, self.transactions.admission, peers, self.timers, reach
        )

    def _make_config_admin(self) -> ConfigAdmin:
        return ConfigAdmin(
            self.controller,
            lambda: self.cluster,
            self.membership.others,
            self.membership.look,
            {
                ResourceKind.BROKER: check_dynamic,
                ResourceKind.CLIENT_METRICS: check_subscription,
                ResourceKind.CLIENT_QUOTA: check_quotas,
                ResourceKind.GROUP: self.groups.settings.check,
                ResourceKind.USER: check_credentials,
            },
        )

    @property
    def config(self) -> BrokerConfig:
        """The broker's current settings."""
        return self.settings.current.broker

    @property
    def cluster(self) -> ClusterImage:
        """The cluster as this broker knows it now."""
        return self.topics.image

    async def join(
        self, read_topics: Callable[[], TopicsRead], listeners: Iterable[Listener], earlier: EarlierRun
    ) -> None:
        """Register in the cluster with the addresses of these listeners, and lead what it gives to this broker.

        The address for other brokers is the first.
        `read_topics` blocks. `earlier`: how this broker ended last. Raise as `Membership.join`.
        """
        addresses = [
            Endpoint(each.name, each.advertised_host, each.advertised_port, each.security_protocol.value)
            for each in listeners
            if each.is_advertised
        ]
        here = BrokerRegistration(
            self.broker_id,
            epoch=0,
            incarnation_id=self.world.ids(),
            endpoints=tuple(addresses),
            rack=self.config.broker_rack,
            boot_id=boot_id().hex() if any(boot_id()) else "",
            is_voter=self.config.is_voter,
        )
        await self.membership.join(here, read_topics, earlier)
        await self.replicas.forget_cuts()

    async def hand_over(self, kept: KeptSettings) -> None:
        """Hand the settings in this broker's files over to the cluster. On an error they stay until the next start."""
        if not kept.config:
            return
        try:
            await self.config_admin.take(kept.config)
            await self.run_blocking(kept.remove)
        except KafkaLakeError as error:
            logger.error("settings in files not handed over to the cluster error=%s", error)

    async def start_coordinators(self) -> None:
        """Load groups, transactions and what waits, and resume what the previous process left. A controller alone has none."""
        if not self.config.is_broker:
            return
        await self.producer_ids.have_some(self.config.request_timeout_ms)
        await self.groups.start()
        await self.transactions.start()
        self.delayed.start()
        self._coordinates = True

    def _leader_moved(self, topic: Topic, index: int) -> None:
        """Load or unload the names of a journal's partition that this broker leads from now on, or no longer."""
        if not self._coordinates:
            return
        leads = index in topic.replicas
        if topic.name == GROUP_JOURNAL:
            (self.groups.journal.lead if leads else self.groups.journal.resign)(index)
        if topic.name == TRANSACTION_JOURNAL:
            (self.transactions.journal.lead if leads else self.transactions.journal.resign)(index)
        if topic.name == DELAYED_JOURNAL:
            (self.delayed.lead if leads else self.delayed.resign)(index)

    def moved(self, partition: Partition) -> None:
        """Announce offsets of a partition changed by something other than an append."""
        self._observer.partition_moved(partition)
        self.purgatory.check(partition)

    def marked(self, partition: Partition, is_written: bool) -> None:
        """Announce the marker of a transaction in a partition, before it is written and afterwards."""
        self._observer.partition_marked(partition, is_written)

    def transactions_loaded(self) -> None:
        """Settle what a former coordinator of transactions has left, now that more of them are coordinated here."""
        self.staged.recover()

    def flush(self) -> bool:
        """Append all queued batches and answer their producers. Return whether there were any."""
        return self.append_queue.flush()

    def finish_waiting(self) -> None:
        """Complete all pending requests with what is available now. Called when the broker stops."""
        self.producer_ids.stop()
        self.isr_changes.stop()
        call_isolated(CallbackLoop.COORDINATED, self.staged.stop)
        for stop in (self.delay_gate.stop, self.delayed.stop, self.delayed_targets.stop):
            call_isolated(CallbackLoop.COORDINATED, stop)
        self.flush()
        call_isolated(CallbackLoop.COORDINATED, self.transactions.stop)
        call_isolated(CallbackLoop.COORDINATED, self.groups.stop)
        self.purgatory.finish_all()

    def _settings_changed(self) -> None:
        for topic in self.topics:
            call_isolated(CallbackLoop.SETTINGS_CHANGE, self.replicas.apply_settings, topic)
