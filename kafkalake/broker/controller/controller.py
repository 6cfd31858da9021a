"""The controller of the cluster, on the broker that is elected: the only writer of the control store.

One decision is made at a time, on the newest image, and committed at exactly the next version. A commit that finds that version
taken means that another broker was elected: this one is the controller no more, and its waiting requests fail with NOT_CONTROLLER.

Brokers live by their heartbeats. An idle cluster commits nothing.

The next decision does not wait until this broker follows a version (`followed_here.py`), only who asked for it.

More than 400 lines: what may be decided, committed and answered at one time is one queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafkalake.broker.controller.followed_here import Follow, FollowedHere, result_of, wait_for
from kafkalake.broker.controller.protocol import Heartbeat, HeartbeatAnswer
from kafkalake.broker.controller.steps import ControllerStep, Reach
from kafkalake.clock import Clock
from kafkalake.cluster.control_store import ControlStore
from kafkalake.cluster.controller_election import is_controller
from kafkalake.cluster.election import Election, RulesOf, elect_leaders, rebalance_leaders
from kafkalake.cluster.image import (
    NO_CONTROLLER,
    BrokerRegistration,
    ClusterImage,
    ControllerRegistration,
    TopicIdPartition,
    decide_together,
)
from kafkalake.cluster.partition_changes import IsrChange, IsrState, alter_partitions, alter_reassignments
from kafkalake.cluster.producer_ids import BLOCK, allocate_producer_ids
from kafkalake.cluster.quorum import Followed
from kafkalake.cluster.registration import (
    begin_controlled_shutdown,
    check_broker_epoch,
    expired_brokers,
    fence_broker,
    may_be_replaced,
    register_controller,
    replace_incarnation,
    report_offline_logs,
    unfence_broker,
    unregister_broker,
)
from kafkalake.errors import (
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    KafkaError,
    KafkaStorageError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    StaleImageError,
)
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import RunBlocking, retrieve_error

logger = logging.getLogger(__name__)

NODES_MAX = 1_000
"""The limit on registered brokers and controllers, fenced ones included."""
Decision = Callable[[ClusterImage], ClusterImage]
"""Returns the next version, or the same object if nothing changes."""


class _Version(NamedTuple):
    """A version that is committed, and the end of following it here; None if it is followed."""

    image: ClusterImage
    following: asyncio.Future[None] | None


class Controller:
    """The controller on one broker, active from `activate` until another is elected. On the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        store: ControlStore,
        follow: Follow,
        clock: Clock,
        timeout_ms: Callable[[], int],
        run_blocking: RunBlocking,
        rules: RulesOf,
        rules_in: Callable[[Sequence[TopicRow]], RulesOf],
        committed: Callable[[ClusterImage], None],
        followed: Callable[[ClusterImage], Awaitable[None]],
        is_refused: Callable[[BrokerRegistration], Awaitable[bool]],
        reach: Reach,
    ) -> None:
        """Create it, inactive.

        `follow`, `rules` and `rules_in` are those of `FollowedHere`. `committed` tells the other brokers of a version, `followed`
        waits until they follow it, for a while. `is_refused` returns whether nothing listens at a broker's address. `timeout_ms`:
        how long a change is waited for.
        """
        self._broker_id = broker_id
        self._store = store
        self._follow_version = follow
        self._here = FollowedHere(self._follow, rules, rules_in)
        self.rules_of = self._here.rules_of
        """Returns the rules of a topic's elections in the newest version."""
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._run_blocking = run_blocking
        self._committed = committed
        self._followed = followed
        self._is_refused = is_refused
        self._reach = reach
        self._image: ClusterImage | None = None
        self._unsettled: ClusterImage | None = None
        self._lock = asyncio.Lock()
        self._heard_ms: dict[int, int] = {}
        self._reported: dict[int, tuple[int, frozenset[TopicIdPartition], frozenset[TopicIdPartition]]] = {}
        """By broker, its epoch and the replicas that it had no log of in its last heartbeat."""
        self._progress: dict[int, Followed] = {}

    @property
    def is_active(self) -> bool:
        """Return whether this broker is the controller, as far as it knows."""
        return self._image is not None

    @property
    def image(self) -> ClusterImage | None:
        """The newest image if this broker is the controller, as far as it knows, else None."""
        return self._image

    def activate(self, image: ClusterImage, *, silent_broker: int = NO_CONTROLLER, silent_ms: int = 0) -> None:
        """Become the controller, with the image whose commit has elected this broker. Every session begins anew but that of the
        controller before, which has not answered for `silent_ms`."""
        now_ms = self._clock.monotonic_ms()
        self._image, self._unsettled = image, None
        self._here.forget()
        self._reported = {}
        self._heard_ms = {each: now_ms - (silent_ms if each == silent_broker else 0) for each in image.brokers}
        logger.info("controller active epoch=%d version=%d", image.controller_epoch, image.version)

    def resign(self) -> None:
        """Be the controller no more: another is elected."""
        if self._image is not None:
            logger.warning("controller no more epoch=%d", self._image.controller_epoch)
            self._here.forget()
        self._image = self._unsettled = None

    # Decisions

    async def change(
        self, decide: Decision, rows: Sequence[TopicRow] | None = None, timeout_ms: int | None = None
    ) -> ClusterImage:
        """Commit what `decide` makes of the newest image, follow it here, and return it. If nothing changes, look for a newer one.

        `decide` runs in another thread: with many partitions it takes long. `rows`: the topics that are new or changed by it, None
        if there may be others. Raise what `decide` raises, `NotControllerError` if another broker is the controller,
        `KafkaStorageError` if it could not be committed yet, `RequestTimedOutError` if that takes longer than `request.timeout.ms`,
        or `timeout_ms` if that is less: a change that was begun goes on, one whose turn has not come is not made.
        """
        ends_s = self._ends_s(timeout_ms)
        version = await self._commit_until(ends_s, decide, rows)
        await wait_for(version.following, _seconds_until(ends_s))
        return version.image

    async def change_topics(self, decide: Decision, rows: Sequence[TopicRow]) -> ClusterImage:
        """Make a change as `change` does, and wait until it is followed here for as long as that takes.

        For changes of topics, which are made in their turns, and whose requests wait for as long as they asked to.
        """
        version = await self._commit_until(self._ends_s(None), decide, rows)
        await wait_for(version.following, None)
        return version.image

    async def commit(self, decide: Decision) -> ClusterImage:
        """Make a change as `change` does that has to do with no topic's settings, and return it before it is followed here."""
        return (await self._commit_until(self._ends_s(None), decide, ())).image

    def _ends_s(self, timeout_ms: int | None) -> float:
        """Return when a change is waited for no longer, in the event loop's time. Raise `RequestTimedOutError` if that is now."""
        within_ms = self._timeout_ms() if timeout_ms is None else min(timeout_ms, self._timeout_ms())
        if within_ms <= 0:
            raise RequestTimedOutError()
        return asyncio.get_running_loop().time() + within_ms / 1000

    async def _commit_until(self, ends_s: float, decide: Decision, rows: Sequence[TopicRow] | None) -> _Version:
        try:
            async with asyncio.timeout_at(ends_s):
                await self._lock.acquire()
        except TimeoutError:
            raise RequestTimedOutError() from None
        change = asyncio.ensure_future(self._change(decide, rows))
        change.add_done_callback(self._changed)
        try:
            return await result_of(change, _seconds_until(ends_s))
        finally:
            del change  # an error has this frame in its traceback

    async def confirm(self) -> ClusterImage:
        """Return the newest image, once the control store has shown that no other broker has been elected.

        What a controller writes elsewhere, or removes, needs this before. Raise as `change`.
        """
        return await self.change(lambda image: image, [])

    def _changed(self, change: asyncio.Future[_Version]) -> None:
        self._lock.release()
        retrieve_error(change)  # its caller may have stopped waiting

    async def _change(self, decide: Decision, rows: Sequence[TopicRow] | None) -> _Version:
        while True:
            now = self._image
            if now is None:
                raise NotControllerError()
            try:
                if self._unsettled is not None:
                    await self._commit(now, self._unsettled, None)
                    continue
                image: ClusterImage = await self._run_blocking(partial(self._decide, decide, now))
                if image is now:
                    return _Version(image, self._here.newest)
                return _Version(image, await self._commit(now, image, rows))
            except StaleImageError:
                await self._take_newest(now)

    def _decide(self, decide: Decision, now: ClusterImage) -> ClusterImage:
        """Return what `decide` returns. Raise `StaleImageError` if that is to commit nothing, and `now` is not the newest version:
        a controller that has been deposed would answer what was true before."""
        image = decide(now)
        if image is now and self._store.load_newer(now.version) is not None:
            raise StaleImageError(f"version {now.version} of the cluster is not the newest")
        return image

    async def _take_newest(self, before: ClusterImage) -> None:
        """Go on from the store's newest version, if a cleanup of the store has made it, or a commit that seemed to fail.

        Raise `NotControllerError` if another broker has been elected.
        """
        newest: ClusterImage = await self._run_blocking(self._store.load)
        if not is_controller(newest, self._broker_id, before.controller_epoch):
            self._end_term(before.controller_epoch)
            raise NotControllerError() from None
        self._go_on(before, newest)

    async def _commit(
        self, before: ClusterImage, image: ClusterImage, rows: Sequence[TopicRow] | None
    ) -> asyncio.Future[None]:
        """Commit a version, and begin to follow it. Return the end of that, which has come if `rows` are not known: what elections
        go by is known only then. Raise `StaleImageError` if there is such a version already."""
        self._unsettled = image
        self._reach(ControllerStep.VERSION_DECIDED)
        rules = await self._run_blocking(partial(self._here.rules_in, rows)) if rows else {}
        await self._run_blocking(partial(self._store.commit, image))
        self._go_on(before, image)
        self._reach(ControllerStep.VERSION_COMMITTED)
        self._committed(image)
        following = self._here.begin(image, rows, rules)
        if rows is None:
            await following
        return following

    async def _follow(self, image: ClusterImage, rows: Sequence[TopicRow] | None) -> None:
        await self._follow_version(image, rows)
        self._reach(ControllerStep.VERSION_FOLLOWED)

    def _go_on(self, before: ClusterImage, image: ClusterImage) -> None:
        """Decide on `image` from now on, unless this broker has been deposed since it decided on `before`."""
        if self._image is before:
            self._image, self._unsettled = image, None

    def _end_term(self, controller_epoch: int) -> None:
        if self._image is not None and self._image.controller_epoch == controller_epoch:
            self.resign()

    # Brokers

    async def register(self, broker: BrokerRegistration, *, previous_epoch: int, is_cut: bool) -> int:
        """Register an incarnation and return its epoch.

        Raise `DuplicateBrokerRegistrationError` if another one has the id, is not fenced, and listens still.
        """
        self._require_room(broker.broker_id)
        known = None if self._image is None else self._image.brokers.get(broker.broker_id)
        is_another = known is not None and known.incarnation_id != broker.incarnation_id
        is_here = broker.broker_id == self._broker_id
        if is_here or (known is not None and is_another and known.is_active and not await self._is_refused(known)):
            raise DuplicateBrokerRegistrationError()

        image = await self.change(
            lambda now: replace_incarnation(now, broker, self.rules_of, previous_epoch=previous_epoch, is_cut=is_cut)
        )
        self._heard_ms[broker.broker_id] = self._clock.monotonic_ms()
        logger.info("broker registered broker=%d version=%d", broker.broker_id, image.version)
        return image.brokers[broker.broker_id].epoch

    def _require_room(self, node_id: int) -> None:
        image = self._image
        if image is not None and node_id not in image.nodes and len(image.nodes) >= NODES_MAX:
            raise InvalidRequestError(f"The cluster has {NODES_MAX} nodes already.")

    async def register_controller(self, node: ControllerRegistration) -> None:
        node_id, image = node.controller_id, self._image
        self._require_room(node_id)
        broker = None if image is None else image.brokers.get(node_id)
        if node_id == self._broker_id or (broker is not None and not broker.is_fenced):
            raise DuplicateBrokerRegistrationError()
        if image is None or image.controllers.get(node_id) != node:
            await self.commit(lambda now: register_controller(now, node))
            logger.info("controller registered node=%d", node_id)

    async def unregister(self, broker_id: int) -> None:
        """Remove a broker's registration. Raise `BrokerIdNotRegisteredError` if it has none."""
        await self.change(lambda now: unregister_broker(now, broker_id, self.rules_of), [])
        self._heard_ms.pop(broker_id, None)
        logger.info("broker unregistered broker=%d", broker_id)

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        image = self._image
        if image is None:
            raise NotControllerError()
        broker_id, epoch = heartbeat.broker_id, heartbeat.broker_epoch
        broker = check_broker_epoch(image, broker_id, epoch)
        if broker_id == self._broker_id:
            raise InvalidRequestError("The controller sends itself no heartbeats.")
        self._heard(heartbeat, image)
        if heartbeat.wants_shutdown:
            await self.relieve(broker_id, epoch)
            return HeartbeatAnswer(True, True, True)
        is_caught_up = heartbeat.version >= epoch
        if not broker.is_active and is_caught_up and not heartbeat.wants_fence:
            await self.change(lambda now: unfence_broker(now, broker_id, epoch, self.rules_of), [])
            logger.info("broker unfenced broker=%d", broker_id)
        await self.report_offline(broker_id, epoch, heartbeat.offline, heartbeat.cut)
        return HeartbeatAnswer(is_caught_up, (self._image or image).brokers[broker_id].is_fenced, False)

    async def attend_here(
        self,
        broker_epoch: int,
        offline: frozenset[TopicIdPartition],
        cut: frozenset[TopicIdPartition] = frozenset(),
        *,
        wants_fence: bool = False,
    ) -> None:
        """Do for the controller's own broker what the heartbeat of another one does: the controller before may have fenced it.

        Raise as `change`.
        """
        here = None if self._image is None else self._image.brokers.get(self._broker_id)
        if here is not None and here.is_fenced and not here.is_shutting_down and not wants_fence:
            await self.change(lambda now: unfence_broker(now, self._broker_id, broker_epoch, self.rules_of), [])
            logger.info("broker unfenced broker=%d", self._broker_id)
        await self.report_offline(self._broker_id, broker_epoch, offline, cut)

    async def report_offline(
        self,
        broker_id: int,
        epoch: int,
        offline: frozenset[TopicIdPartition],
        cut: frozenset[TopicIdPartition] = frozenset(),
    ) -> None:
        """Take note of all replicas of a broker that have no log, and of those that have lost records.

        Raise as `change`, nothing if they are known. One that has lost records again may have joined the ISR since the last report.
        """
        image = self._image
        found = [] if image is None else [image.partition(each) for each in cut]
        is_counted = any(each is not None and each.counts(broker_id) for each in found)
        if is_counted or self._reported.get(broker_id) != (epoch, offline, cut):
            self._reported.pop(broker_id, None)  # if this fails, it may come into force later
            await self.commit(lambda now: report_offline_logs(now, broker_id, epoch, offline, self.rules_of, cut))
            self._reported[broker_id] = epoch, offline, cut

    def _heard(self, heartbeat: Heartbeat, image: ClusterImage) -> None:
        now_ms = self._heard_ms[heartbeat.broker_id] = self._clock.monotonic_ms()
        before = self._progress.get(heartbeat.broker_id)
        is_caught_up = heartbeat.version >= image.version
        caught_up_ms = now_ms if is_caught_up or before is None else before.caught_up_ms
        self._progress[heartbeat.broker_id] = Followed(heartbeat.version, now_ms, caught_up_ms)

    def followed(self) -> dict[int, Followed]:
        """Return how far the other brokers follow, by their heartbeats. Times are ago."""
        now_ms = self._clock.monotonic_ms()
        return {
            broker_id: Followed(each.version, now_ms - each.heard_ms, now_ms - each.caught_up_ms)
            for broker_id, each in self._progress.items()
        }

    async def relieve(self, broker_id: int, broker_epoch: int) -> None:
        """Move the leaderships of a broker that is about to end, and fence it. The new leaders lead when this returns.

        Raise `StaleBrokerEpochError` as `heartbeat`.
        """
        image = await self.change(partial(_relieve, broker_id, broker_epoch, self.rules_of), [])
        await self._followed(image)

    async def fence_expired(self, session_timeout_ms: int) -> None:
        """Fence the brokers whose sessions have ended."""
        image = self._image
        if image is None:
            return
        unfenced = [each.broker_id for each in image.brokers.values() if not each.is_fenced]
        for broker_id in expired_brokers(self._silent_ms(unfenced), session_timeout_ms):
            await self.fence(image.brokers[broker_id], f"no heartbeat for {session_timeout_ms} ms")

    def _silent_ms(self, broker_ids: Iterable[int]) -> dict[int, int]:
        """Return the time since the last heartbeat of each of these brokers but the controller's own."""
        now_ms, others = self._clock.monotonic_ms(), [each for each in broker_ids if each != self._broker_id]
        return {each: now_ms - self._heard_ms.setdefault(each, now_ms) for each in others}

    def may_be_replaced(self, session_timeout_ms: int) -> bool:
        """Return whether another broker may be the controller by now. It has not heard of most of them for a session then."""
        return self._image is None or may_be_replaced(self._silent_ms(self._image.brokers), session_timeout_ms)

    async def fence(self, broker: BrokerRegistration, reason: str) -> None:
        """Fence a broker: it leads nothing until its next heartbeat. Fencing one that lives costs availability only."""
        try:
            await self.commit(lambda now: fence_broker(now, broker.broker_id, broker.epoch, self.rules_of))
            logger.warning("broker fenced broker=%d reason=%r", broker.broker_id, reason)
        except (StaleBrokerEpochError, NotControllerError, KafkaStorageError, RequestTimedOutError) as error:
            logger.warning("broker not fenced broker=%d error=%s", broker.broker_id, error)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        image = await self.commit(lambda now: allocate_producer_ids(now, broker_id, broker_epoch))
        return range(image.next_producer_id - BLOCK, image.next_producer_id)

    # Partitions

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrState | KafkaError]:
        errors: dict[TopicIdPartition, KafkaError] = {}

        def alter(now: ClusterImage) -> ClusterImage:
            nonlocal errors
            after, errors = alter_partitions(now, broker_id, broker_epoch, changes, self.rules_of)
            return after

        image = await self.commit(alter)
        return [errors.get(each.partition) or _state(image, each.partition) for each in changes]

    async def elect_leaders(
        self, asked: Sequence[TopicIdPartition], election: Election, *, timeout_ms: int | None = None
    ) -> dict[TopicIdPartition, KafkaError]:
        """Elect leaders as an administrator asks, in one version. Return the error of each partition without success.

        Raise as `change`.
        """
        errors: dict[TopicIdPartition, KafkaError] = {}

        def elect(now: ClusterImage) -> ClusterImage:
            nonlocal errors
            after, errors = elect_leaders(now, asked, election, self.rules_of)
            return after

        await self.change(elect, [], timeout_ms)
        return errors

    async def rebalance_leaders(self, percentage: int) -> None:
        """Elect the preferred leaders of the brokers whose imbalance exceeds `percentage`."""
        while True:
            before = self._image
            after = await self.change(lambda now: rebalance_leaders(now, percentage, self.rules_of), [])
            if before is None or after.version == before.version:
                return
            logger.info("preferred leaders elected version=%d", after.version)

    async def alter_reassignments(
        self,
        asked: Mapping[TopicIdPartition, Sequence[int] | None],
        *,
        may_change_factor: bool,
        timeout_ms: int | None = None,
    ) -> dict[TopicIdPartition, KafkaError]:
        """Move partitions to other replicas, or back, in one version. Return the error of each that does not move.

        Raise as `change`.
        """
        errors: dict[TopicIdPartition, KafkaError] = {}

        def alter(now: ClusterImage) -> ClusterImage:
            nonlocal errors
            after, errors = alter_reassignments(now, asked, self.rules_of, may_change_factor=may_change_factor)
            return after

        await self.change(alter, [], timeout_ms)
        return errors


def _seconds_until(ends_s: float) -> float:
    return max(ends_s - asyncio.get_running_loop().time(), 0)


def _state(image: ClusterImage, of: TopicIdPartition) -> IsrState:
    partition = image.partition(of)
    assert partition is not None
    return IsrState(
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.isr,
        partition.is_recovering,
    )


def _relieve(broker_id: int, epoch: int, rules: RulesOf, image: ClusterImage) -> ClusterImage:
    """Move the leaders of a broker that ends, and fence it: what it still leads has no other replica."""
    return decide_together(
        image,
        lambda now: begin_controlled_shutdown(now, broker_id, epoch, rules),
        lambda now: fence_broker(now, broker_id, epoch, rules),
    )
