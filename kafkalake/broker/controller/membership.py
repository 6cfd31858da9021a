"""The membership of one broker in the cluster: it registers, becomes the controller if there is none, and follows the image.

It registers fenced (`join`), and asks to be unfenced once its listeners accept connections (`enter`), as in Kafka. A broker that is
alone and becomes the controller needs no second version for that.

A broker holds the lease of its id before it joins, so no other process runs under it. Whoever finds that the controller does not
answer claims to be it, by compare-and-swap on the control store; the one that loses the race registers with the winner. Liveness
is by requests, safety by the control store alone.

More than 400 lines: registration, heartbeats, the claim and what the controller does for brokers share one state: who is the
controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kafkalake.broker.controller.announcements import Announcements
from kafkalake.broker.controller.candidacy import Candidacy
from kafkalake.broker.controller.controller import Controller
from kafkalake.broker.controller.joining import TopicsRead, as_controller, with_controller, with_member
from kafkalake.broker.controller.protocol import (
    ClusterController,
    EarlierRun,
    Heartbeat,
    HeartbeatAnswer,
    OtherBrokers,
)
from kafkalake.broker.controller.steps import ControllerStep, Reach
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.replicas import Replicas
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.cluster.control_store import ControlStore
from kafkalake.cluster.controller_election import Vote, claim, pause_ms
from kafkalake.cluster.election import RulesOf
from kafkalake.cluster.image import NO_CONTROLLER, BrokerRegistration, ClusterImage, ConfigOf
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import (
    BrokerUnavailableError,
    DuplicateBrokerRegistrationError,
    KafkaError,
    KafkaLakeError,
    KafkaStorageError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    StaleImageError,
)
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import RunBlocking, retrieve_error
from kafkalake.world import World

logger = logging.getLogger(__name__)

RETRY_PAUSES_S = (0.1, 0.3, 1.0)
LOOK_INTERVAL_MS = 1_000
"""How often the control store is looked at for a version of which nobody has told."""
ENTRY_WAIT_MS = 500
"""How long a broker that enters waits for the others to follow the version that has it unfenced."""
OUTDATED_MS = 2 * LOOK_INTERVAL_MS
"""How old what a controller knows may be when it answers: another one may have been elected since."""
LOOK_TIMEOUT_S = 5.0
"""How long a request waits for a look at the control store."""
NO_EPOCH = -1
_TRIED_AGAIN = (
    BrokerUnavailableError,
    DuplicateBrokerRegistrationError,
    NotControllerError,
    StaleBrokerEpochError,  # of a controller that does not know yet that it is none
    StaleImageError,
)


class Membership:
    """The membership of one broker, see the module. Used on the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        cluster_id: str,
        store: ControlStore,
        replicas: Replicas,
        rules: RulesOf,
        rules_in: Callable[[Sequence[TopicRow]], RulesOf],
        world: World,
        config: Callable[[], BrokerConfig],
        run_blocking: RunBlocking,
        others: Callable[[Membership], OtherBrokers],
        configured: Callable[[ConfigOf], None],
        elected: Callable[[], None],
        reach: Reach,
    ) -> None:
        """`configured` is called with the dynamic settings of each version that is followed, `elected` after an election. rules,
        rules_in: as for `FollowedHere`."""
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._store = store
        self._replicas = replicas
        self._clock = world.clock
        self._random = world.random
        self._config = config
        self._run_blocking = run_blocking
        self._configured = configured
        self._elected = elected
        self._reach = reach
        self.newest = ClusterImage(cluster_id)
        """The newest image that is known here, followed or not."""
        self.controller = Controller(
            broker_id,
            store,
            self._follow,
            world.clock,
            lambda: config().request_timeout_ms,
            run_blocking,
            rules,
            rules_in,
            self._tell,
            lambda image: self._announcements.wait(image),
            lambda broker: self.others.is_refused(broker.broker_id),
            reach,
        )
        self.others = others(self)
        self._candidacy = Candidacy(broker_id, world.clock, config, self.others, self._heartbeat)
        self._here: BrokerRegistration | None = None
        self._epoch = NO_EPOCH
        self._is_listening = self._is_ending = self._is_leaving = False
        self._session_began_ms: int | None = None
        """When the last heartbeat was sent that the controller has answered, None if this broker was fenced then.

        After a session that has ended, the version that came between is followed first.
        """
        self._working: set[asyncio.Task[None]] = set()
        self._announcements = Announcements(broker_id, self.others, lambda: self.controller.is_active, self._work)
        self._looking = asyncio.Lock()
        self._looked_ms = world.clock.monotonic_ms()
        """When the last look at the control store began that has succeeded."""
        self._next_look: asyncio.Future[None] | None = None
        self._claiming = asyncio.Lock()
        self._looking_for: set[int] = set()
        """The brokers of which the controller here finds out whether they have ended."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, `NO_EPOCH` before it."""
        return self._epoch

    @property
    def current_controller(self) -> ClusterController:
        """The controller, on this broker or on another one."""
        return self.controller if self.controller.is_active else self.others.controller

    # Joining

    async def join(self, here: BrokerRegistration, read_topics: Callable[[], TopicsRead], earlier: EarlierRun) -> None:
        """Register this incarnation, fenced unless no other node is registered, and follow a version that has it.

        `read_topics` blocks. A controller reads the table after the image: rows are written before the version that has them.
        Raise `KafkaStorageError` if the control store cannot be used, `RequestTimedOutError` if the controller has not let it in
        within `initial.broker.registration.timeout.ms`.
        """
        self._here = here
        began_ms = self._clock.monotonic_ms()
        self._candidacy.note_answer()
        while True:
            image = self.newest = await self._run_blocking(self._store.load)
            try:
                if await self._candidacy.may_claim(image):
                    topics: TopicsRead = await self._run_blocking(read_topics)
                    joined = replace(self._joined(image, here, topics, earlier), cluster_id=self._cluster_id)
                    await self._commit(joined)
                    if self._is_broker:
                        self._epoch = joined.brokers[self._broker_id].epoch
                    await self._begin_control(joined)
                    if joined.nodes != {self._broker_id} or not topics.are_in(joined):
                        self._elected()  # alone there is no other controller whose changes may be late
                    return
                await self._register(here, earlier)
                return
            except _TRIED_AGAIN as error:
                if self._clock.monotonic_ms() - began_ms >= self._config().initial_broker_registration_timeout_ms:
                    raise RequestTimedOutError(f"not registered with broker {image.controller_id}: {error}") from error
                logger.info("registration tried again error=%s", error)
                await asyncio.sleep(0.05 + 0.2 * self._random.random())

    @property
    def _is_broker(self) -> bool:
        return self._config().is_broker

    def _joined(
        self, image: ClusterImage, here: BrokerRegistration, topics: TopicsRead, earlier: EarlierRun
    ) -> ClusterImage:
        if not self._is_broker:
            return with_controller(image, here, topics)
        return with_member(image, here, topics, self._replicas.idle, earlier)

    async def _commit(self, image: ClusterImage) -> None:
        pauses_s = iter(RETRY_PAUSES_S)
        self._reach(ControllerStep.CLAIM_DECIDED)
        while True:
            try:
                await self._run_blocking(partial(self._store.commit, image))
                self._reach(ControllerStep.CLAIM_COMMITTED)
                return
            except KafkaStorageError as error:
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    raise
                logger.warning("registration not committed, tried again in %.1f s: %s", pause_s, error)
                await asyncio.sleep(pause_s)

    async def _register(self, here: BrokerRegistration, earlier: EarlierRun) -> None:
        """Register with the controller, and follow the version that has this broker.

        Raise `BrokerUnavailableError` also if the control store fails now, for the controller or for this broker.
        """
        register = self.others.controller.register
        try:
            if self._is_broker:
                self._epoch = await register(here, previous_epoch=earlier.epoch, is_cut=earlier.is_cut)
            else:
                await self._heartbeat()
            self._reach(ControllerStep.BROKER_REGISTERED)
            await self.look()
        except (KafkaStorageError, RequestTimedOutError) as error:
            raise BrokerUnavailableError(f"the control store failed: {error}") from error

    async def _begin_control(self, image: ClusterImage, deposed: int = NO_CONTROLLER, silent_ms: int = 0) -> None:
        """Become the controller, with the image whose commit has elected this broker: it decides on the topics that it follows."""
        await self._follow(image)
        self.controller.activate(image, silent_broker=deposed, silent_ms=silent_ms)
        self._tell(image)

    async def enter(self) -> None:
        """Have this broker, whose listeners accept connections now, unfenced, and follow the version in which it may lead.

        The other brokers follow it, too, when this returns, those that answer in `ENTRY_WAIT_MS`: any of them names the leaders.
        To be called after `begin`. Raise `RequestTimedOutError` if that takes longer than `initial.broker.registration.timeout.ms`.
        """
        self._is_listening = True
        ends_ms = self._clock.monotonic_ms() + self._config().initial_broker_registration_timeout_ms
        while self._is_broker and not self._may_lead():
            if self._clock.monotonic_ms() >= ends_ms:
                raise RequestTimedOutError(f"not unfenced by broker {self.newest.controller_id}")
            await self._beat()
            await self._look_quietly()
            if not self._may_lead():
                await asyncio.sleep(0.05 + 0.2 * self._random.random())
        image = self.newest
        others = {each.broker_id for each in image.brokers.values() if each.is_active} - {self._broker_id}
        told = (self.others.tell(each, image.version, ENTRY_WAIT_MS) for each in sorted(others))
        await asyncio.gather(*told, return_exceptions=True)

    def _may_lead(self) -> bool:
        """Return whether the version that is followed has this broker, not fenced."""
        here = self.newest.brokers.get(self._broker_id)
        is_followed = self._replicas.version >= self.newest.version
        return is_followed and here is not None and here.is_active and here.epoch == self._epoch

    # Living

    def begin(self, scheduler: Scheduler) -> None:
        """Send heartbeats and follow the image from now on; a controller fences brokers that are silent."""
        self._candidacy.note_answer()
        scheduler.every("heartbeat", lambda: self._config().broker_heartbeat_interval_ms, self._beat)
        scheduler.every("sessions", lambda: self._config().broker_heartbeat_interval_ms // 4 + 1, self._expire)
        scheduler.every(
            "leader balance", lambda: self._config().leader_imbalance_check_interval_seconds * 1000, self._rebalance
        )
        scheduler.every("image", lambda: LOOK_INTERVAL_MS, self._look_for_versions)

    def _expire(self) -> Awaitable[None] | None:
        if not self.controller.is_active:
            return None
        return self.controller.fence_expired(self._config().broker_session_timeout_ms)

    def _rebalance(self) -> Awaitable[None] | None:
        config = self._config()
        if not self.controller.is_active or not config.auto_leader_rebalance_enable:
            return None
        return self.controller.rebalance_leaders(config.leader_imbalance_per_broker_percentage)

    def _look_for_versions(self) -> Awaitable[None] | None:
        is_alone = self.controller.is_active and self.newest.nodes == {self._broker_id}
        is_followed = self._replicas.version >= self.newest.version
        return None if is_alone and is_followed else self._look_quietly()

    async def _look_quietly(self) -> None:
        try:
            await self.look()
        except KafkaLakeError as error:
            logger.warning("whether there is a newer version of the cluster is not known error=%s", error)

    async def _beat(self) -> None:
        if self.controller.is_active:
            if self._is_broker:
                await self._attend_here()
            return
        sent_ms = self._clock.monotonic_ms()
        try:
            answer = await self._heartbeat()
            self._candidacy.note_answer()
            if answer.is_fenced or self.may_be_deposed:
                await self.look()
            self._session_began_ms = None if answer.is_fenced else sent_ms
        except StaleBrokerEpochError:
            await self._register_again()
        except KafkaLakeError as error:
            logger.warning("heartbeat not answered error=%s", error)
            await self._look_quietly()
            await self._claim_if_without_controller()

    async def _attend_here(self) -> None:
        """Have the controller here do for this broker what it does for others at their heartbeats."""
        try:
            offline, cut = frozenset(self._replicas.offline()), frozenset(self._replicas.cut())
            await self.controller.attend_here(self._epoch, offline, cut, wants_fence=not self._is_listening)
        except KafkaLakeError as error:
            logger.warning("broker not attended to by the controller here error=%s", error)

    async def _heartbeat(self) -> HeartbeatAnswer:
        if not self._is_broker:
            assert self._here is not None
            await self.others.controller.register_controller(as_controller(self._here))
            return HeartbeatAnswer(True, False, False)
        return await self.others.controller.heartbeat(
            Heartbeat(
                self._broker_id,
                self._epoch,
                self._replicas.version,
                wants_fence=self._is_ending or not self._is_listening,
                offline=frozenset(self._replicas.offline()),
                cut=frozenset(self._replicas.cut()),
            )
        )

    @property
    def may_be_deposed(self) -> bool:
        """Return whether others may lead by now what this broker leads: it stops, or its session may have ended.

        The controller's own broker has no session: it may be deposed when others may be the controller.
        """
        if self.newest.brokers.keys() <= {self._broker_id}:
            return False
        session_ms = self._config().broker_session_timeout_ms
        if self._is_ending:
            return True
        if self.controller.is_active:
            return self._unlooked_ms >= session_ms or self.controller.may_be_replaced(session_ms)
        began_ms = self._session_began_ms
        return began_ms is None or self._clock.monotonic_ms() - began_ms >= session_ms

    @property
    def may_be_replaced(self) -> bool:
        """Return whether another broker may be the controller, and not this one, which is it as far as it knows: it was stopped."""
        is_alone = self.newest.nodes == {self._broker_id}
        return self.controller.is_active and not is_alone and self._unlooked_ms >= OUTDATED_MS

    @property
    def _unlooked_ms(self) -> int:
        """The time since the control store was looked at. Heartbeats that arrive after a stop may be of before it."""
        return self._clock.monotonic_ms() - self._looked_ms

    async def find_out(self) -> None:
        """Follow the newest version, which names the controller and the leaders, before this broker answers as one.

        Raise `KafkaStorageError` or `RequestTimedOutError` if that version cannot be read in `LOOK_TIMEOUT_S`, or is not followed
        any more.
        """
        try:
            await asyncio.wait_for(self.look(), LOOK_TIMEOUT_S)
        except TimeoutError:
            raise RequestTimedOutError("the control store does not answer") from None
        if self._is_leaving and self._replicas.version < self.newest.version:
            raise RequestTimedOutError("the broker stops")

    async def _register_again(self) -> None:
        """Register the same incarnation once more: this broker was unregistered."""
        assert self._here is not None
        try:
            self._epoch = await self.others.controller.register(self._here, previous_epoch=NO_EPOCH, is_cut=False)
        except (BrokerUnavailableError, KafkaError) as error:
            logger.warning("registration failed error=%s", error)

    def lost(self, broker_id: int) -> None:
        """Handle a connection that another broker, or the network, has ended, or that nothing listens for."""
        if self._config().broker_connection_fencing_enable and self._here is not None:
            if self.controller.is_active:
                self._work(self._fence_if_gone(broker_id))
            elif broker_id == self.newest.controller_id:
                self._work(self._claim_if_without_controller())

    async def _fence_if_gone(self, broker_id: int) -> None:
        broker = self.newest.brokers.get(broker_id)
        if broker is None or broker.is_fenced or broker_id in self._looking_for:
            return
        self._looking_for.add(broker_id)  # the look itself finds that connections are refused
        try:
            if await self.others.is_gone(broker_id):
                await self.controller.fence(broker, "its connections are refused")
        finally:
            self._looking_for.discard(broker_id)

    async def _claim_if_without_controller(self) -> None:
        """Become the controller if the one that is known has ended, or the other brokers miss it too."""
        if self._claiming.locked() or self._is_leaving:
            return
        async with self._claiming:
            image = self.newest
            if await self._candidacy.may_claim(image):
                await self._claim(image)

    async def _claim(self, image: ClusterImage) -> None:
        timeout_ms = self._config().controller_quorum_election_timeout_ms
        await asyncio.sleep(pause_ms(image, self._broker_id, timeout_ms, self._random.uniform) / 1000)
        await self._look_quietly()
        if self.controller.is_active or self.newest.controller_epoch != image.controller_epoch:
            return
        claimed = claim(self.newest, self._broker_id)
        silent_ms = self._candidacy.silent_ms
        try:
            await self._commit(claimed)
        except KafkaLakeError as error:
            logger.info("another broker may be the controller now error=%s", error)
            return
        await self._begin_control(claimed, image.controller_id, silent_ms)
        await self._attend_here()
        self._elected()
        await self._fence_if_gone(image.controller_id)
        await self.controller.fence_expired(self._config().broker_session_timeout_ms)

    async def vote(self, controller_epoch: int) -> Vote | None:
        """Return this broker's vote on the controller of an epoch, which another broker does not reach. None if it is not known."""
        if self.newest.controller_epoch < controller_epoch:
            await self._look_quietly()
        return await self._candidacy.vote(self.newest, controller_epoch)

    async def create_topic(self, new: NewTopic, timeout_ms: int) -> None:
        """Have the controller, on another broker, create a topic, and follow the version that has it.

        Raise the controller's error, `NotControllerError` if there is none that answers.
        """
        try:
            await self.others.create_topic(new, timeout_ms)
        except BrokerUnavailableError as error:
            raise NotControllerError(str(error)) from error
        await self.look()

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids from the controller. Raise as `ClusterController.allocate_producer_ids`."""
        controller = self.controller if self.controller.is_active else self.others.controller
        return await controller.allocate_producer_ids(self._broker_id, self._epoch)

    # Versions

    async def follow(self, version: int, timeout_ms: int) -> None:
        """Follow the image up to a version, or for `timeout_ms`."""
        if self._replicas.version < version:
            looking = self._work(self.look())
            await asyncio.wait({looking}, timeout=timeout_ms / 1000)
            if not looking.done():
                logger.warning("version %d of the cluster not followed in %d ms", version, timeout_ms)

    async def look(self) -> None:
        """Follow a newer version of the control store, if there is one. Raise `KafkaStorageError` if it cannot be read.

        All that call this before the look begins wait for the same one.
        """
        if self._next_look is None:
            self._next_look = asyncio.ensure_future(self._look())
            self._next_look.add_done_callback(retrieve_error)
        await asyncio.shield(self._next_look)

    async def _look(self) -> None:
        async with self._looking:
            self._next_look = None
            began_ms = self._clock.monotonic_ms()
            newer: ClusterImage | None = await self._run_blocking(
                partial(self._store.load_newer, self._replicas.version)
            )
            if newer is not None:
                self._candidacy.note_version(newer)
                if newer.controller_id != self._broker_id:
                    self.controller.resign()
                await self._follow(newer)
            self._looked_ms = began_ms

    async def _follow(self, image: ClusterImage, rows: Any = None) -> None:
        if image.version > self.newest.version:
            self.newest = image
        if not self._is_leaving:
            self._configured(self.newest.config)
            await self._replicas.follow(image, rows)

    def _tell(self, image: ClusterImage) -> None:
        if image.version > self.newest.version:
            self.newest = image
        self._announcements.tell(image)

    def _work(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._worked)
        return task

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("work as a member of the cluster failed error=%r", error)

    # Leaving

    async def leave(self) -> None:
        """Have this broker relieved of its leaderships before it stops, if there are others, and resign them.

        It follows no later version: what only it can lead it leads until its logs are closed.
        """
        self._is_ending = True
        is_alone = self._epoch == NO_EPOCH or self.newest.brokers.keys() <= {self._broker_id}
        if not is_alone and self._config().controlled_shutdown_enable:
            await self._hand_over()
        self._is_leaving = True

    async def _hand_over(self) -> None:
        goodbye = Heartbeat(self._broker_id, self._epoch, self._replicas.version, wants_shutdown=True)
        try:
            if self.controller.is_active:
                await self.controller.relieve(self._broker_id, self._epoch)
            else:
                await self.others.controller.heartbeat(goodbye)
            await self.look()
        except KafkaLakeError as error:
            logger.warning("the controller has not relieved this broker error=%s", error)

    def stop(self) -> None:
        """Close the connections to other brokers."""
        for task in (*self._working, *([self._next_look] if self._next_look is not None else ())):
            task.cancel()
        self.others.stop()
