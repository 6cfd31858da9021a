"""Whether this broker claims to be the controller, and how it votes where another one would.

The votes are asked for once this broker does not reach the controller. They decide nothing, see `cluster.controller_election`. A
voter tries to reach the controller when it is asked: what it knew a second ago is no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from kafkalake.broker.controller.protocol import OtherBrokers
from kafkalake.clock import Clock
from kafkalake.cluster.controller_election import Vote, electors, may_claim, vote
from kafkalake.cluster.image import NO_CONTROLLER, ClusterImage
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import KafkaLakeError, StaleBrokerEpochError

REACH_TIMEOUT_MS = 1_000
"""How long a voter waits for the controller's answer, at most a sixth of a session."""
VOTE_TIMEOUT_MS = 1_500


class Candidacy:
    """See the module. On the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        others: OtherBrokers,
        beat: Callable[[], Awaitable[object]],
    ) -> None:
        """`beat` sends the controller a heartbeat, and raises if it does not answer or is not the controller."""
        self._broker_id = broker_id
        self._clock = clock
        self._config = config
        self._others = others
        self._beat = beat
        self._answered_ms = clock.monotonic_ms()
        self._controller_epoch = -1
        """Of the newest version that was noted."""
        self._lease: str | None = None
        """The controller's lease as it was first seen since its last sign of life."""
        self._watched_ms = 0
        """The time of that look: the lease may have been renewed just before."""

    def note_answer(self) -> None:
        """Note that the controller has answered this broker."""
        self._answered_ms = self._clock.monotonic_ms()
        self._note_life()

    def note_version(self, image: ClusterImage) -> None:
        """Note a version that the controller has made. The first one of a controller counts as its answer."""
        if image.controller_epoch != self._controller_epoch:
            self._controller_epoch = image.controller_epoch
            self.note_answer()
        else:
            self._note_life()

    def _note_life(self) -> None:
        self._lease = None

    @property
    def silent_ms(self) -> int:
        """The time since the controller has answered this broker. If it is cut off its session ends, though versions that it makes
        and its lease show that it lives."""
        return self._clock.monotonic_ms() - self._answered_ms

    async def may_claim(self, image: ClusterImage) -> bool:
        """Return whether this broker, which does not reach the controller of an image, claims its place.

        It waits for votes, `VOTE_TIMEOUT_MS` at most.
        """
        if not self._config().is_voter:
            return False
        controller_id = image.controller_id
        if controller_id in (NO_CONTROLLER, self._broker_id) or controller_id not in image.nodes:
            return may_claim(image, self._broker_id, {}, controller_is_gone=True, silent_ms=0, patience_ms=0)
        looking = asyncio.ensure_future(self._look(controller_id))
        votes = await self._votes(image)
        decide = partial(may_claim, image, self._broker_id, votes, patience_ms=self._patience_ms())
        if decide(controller_is_gone=False, silent_ms=0):  # a controller that is stopped takes connections
            looking.cancel()
            return True
        is_gone, unrenewed_ms = await looking
        return decide(controller_is_gone=is_gone, silent_ms=unrenewed_ms)

    async def _votes(self, image: ClusterImage) -> dict[int, Vote]:
        asked = electors(image, self._broker_id)
        epoch = image.controller_epoch
        votes = await asyncio.gather(*(self._others.ask_vote(each, epoch, VOTE_TIMEOUT_MS) for each in asked))
        return {each: found for each, found in zip(asked, votes, strict=True) if found is not None}

    async def _look(self, controller_id: int) -> tuple[bool, int]:
        """Return whether the controller's process has ended, and what `_look_at_lease` returns."""
        return await asyncio.gather(self._others.is_gone(controller_id), self._look_at_lease(controller_id))

    async def _look_at_lease(self, controller_id: int) -> int:
        """Return for how long the controller has certainly not renewed its lease. One that is seen renewed is a sign of life."""
        lease = await self._others.lease_of(controller_id)
        if lease != self._lease:
            if self._lease is not None:
                self._note_life()
            self._lease, self._watched_ms = lease, self._clock.monotonic_ms()
        return self._clock.monotonic_ms() - self._watched_ms

    def _patience_ms(self) -> int:
        """Return how long a controller may show no life: its session, and longer than a lease goes without a renewal."""
        config = self._config()
        return max(config.broker_session_timeout_ms, config.lease_duration_ms // 2)

    async def vote(self, image: ClusterImage, controller_epoch: int) -> Vote | None:
        """Return this broker's vote on the controller of an epoch, None if `image` is older. It tries to reach the controller."""
        is_of_image = image.controller_epoch == controller_epoch
        return vote(image, controller_epoch, reaches=is_of_image and await self._reaches())

    async def _reaches(self) -> bool:
        timeout_ms = min(REACH_TIMEOUT_MS, self._config().broker_session_timeout_ms // 6)
        try:
            await asyncio.wait_for(self._beat(), timeout_ms / 1000)
        except StaleBrokerEpochError:
            return True
        except (KafkaLakeError, TimeoutError):
            return False
        return True
