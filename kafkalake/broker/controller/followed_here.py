"""What the controller has committed and its own broker has yet to follow.

To follow a version with thousands of new partitions takes many seconds, as their logs are created. The controller decides on
meanwhile, as in Kafka, whose controllers have no logs: replicas leave and join the ISR, brokers are fenced, producer ids are given
out. Elections go by the settings of the topics as they were committed, which the broker does not serve yet. A broker follows one
version after the other, the controller's too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from kafkalake.cluster.election import ElectionRules, RulesOf
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import RequestTimedOutError
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import retrieve_error

T = TypeVar("T")

Follow = Callable[[ClusterImage, Sequence[TopicRow] | None], Awaitable[None]]


class _Rules(NamedTuple):
    version: int
    rules: ElectionRules


class FollowedHere:
    """The versions that the controller's broker follows, one after the other. On the event loop's thread but for `rules_of`."""

    def __init__(self, follow: Follow, rules: RulesOf, rules_in: Callable[[Sequence[TopicRow]], RulesOf]) -> None:
        """`follow` follows a version, after those that it was called with before. `rules` returns those of a topic in the version
        that is followed, `rules_in` those in rows of topics; both in any thread."""
        self._follow = follow
        self._rules = rules
        self._rules_in = rules_in
        self._rules_ahead: dict[UUID, _Rules] = {}
        self._newest: asyncio.Future[None] | None = None

    @property
    def newest(self) -> asyncio.Future[None] | None:
        """The newest version's following, if it has not ended."""
        return self._newest

    def rules_of(self, topic_id: UUID) -> ElectionRules:
        """Return the rules of a topic's elections, in the newest version that was committed."""
        ahead = self._rules_ahead.get(topic_id)
        return self._rules(topic_id) if ahead is None else ahead.rules

    def rules_in(self, rows: Sequence[TopicRow]) -> dict[UUID, ElectionRules]:
        """Return the rules of the topics in `rows`. In any thread: of many topics it takes long."""
        rules = self._rules_in(rows)
        topic_ids = [UUID(row.topic_id) for row in rows]
        return {topic_id: rules(topic_id) for topic_id in topic_ids}

    def begin(
        self, image: ClusterImage, rows: Sequence[TopicRow] | None, rules: dict[UUID, ElectionRules]
    ) -> asyncio.Future[None]:
        """Begin to follow a version that is committed, in which the topics of `rules` are new or changed, and return the end."""
        self._rules_ahead.update((topic_id, _Rules(image.version, each)) for topic_id, each in rules.items())
        following = asyncio.ensure_future(self._follow(image, rows))
        following.add_done_callback(partial(self._ended, image.version))
        self._newest = following
        return following

    def forget(self) -> None:
        """Forget the rules of what was committed: another broker is the controller, and may have changed them since."""
        self._rules_ahead.clear()

    def _ended(self, version: int, following: asyncio.Future[None]) -> None:
        retrieve_error(following)  # its caller may have stopped waiting
        if following is self._newest:
            self._newest = None
        if not following.cancelled() and following.exception() is None:
            self._rules_ahead = {
                topic_id: each for topic_id, each in self._rules_ahead.items() if each.version > version
            }


async def result_of(work: asyncio.Future[T], within_s: float | None) -> T:
    """Return the result of work, which goes on if it takes longer: raise `RequestTimedOutError` then, or what the work raises."""
    done, _ = await asyncio.wait({work}, timeout=within_s)
    if not done:
        raise RequestTimedOutError()
    try:
        return work.result()
    finally:
        del work, done  # an error has this frame in its traceback


async def wait_for(following: asyncio.Future[None] | None, within_s: float | None) -> None:
    """Wait until a version is followed. Raise as `result_of`."""
    if following is not None:
        await result_of(following, within_s)
