"""The controller decides and commits one change at a time, whatever its store and its requests do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from broker.controller_term import COMMITTED, Term

from kafkalake.cluster.controller_election import claim
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration
from kafkalake.cluster.partition_changes import ANY_EPOCH, IsrChange, IsrState, Replica
from kafkalake.errors import KafkaStorageError, NotControllerError, RequestTimedOutError, StaleBrokerEpochError
from kafkalake.metadata.tables.schemas import TopicRow


@pytest.mark.exhaustive
def test_a_change_that_the_store_holds_up_is_not_waited_for_and_comes_into_force_later() -> None:
    async def run() -> None:
        term = Term(timeout_ms=50)
        with term.slow:
            for name in ("a", "b"):
                with pytest.raises(RequestTimedOutError):
                    await term.controller.change(term.set(name))
        term.timeout_ms = 5_000
        assert (await term.controller.change(term.set("c"))).config == {"a": "1", "c": "1"}
        assert term.followed == [2, 3]

    asyncio.run(run())


def test_a_change_whose_own_timeout_is_over_before_its_turn_is_not_made() -> None:
    async def run() -> None:
        term = Term()
        with term.slow:
            first = asyncio.ensure_future(term.controller.change(term.set("first")))
            await asyncio.to_thread(term.is_held_up.wait, 10)
            for timeout_ms in (10, 0, -1):
                with pytest.raises(RequestTimedOutError):
                    await term.controller.change(term.set("late"), timeout_ms=timeout_ms)
        await first
        with pytest.raises(RequestTimedOutError):
            await term.controller.change(term.set("without time"), timeout_ms=0)
        assert (await term.controller.change(term.set("last"), timeout_ms=5_000)).config == {"first": "1", "last": "1"}

    asyncio.run(run())


def test_changes_of_requests_that_were_given_up_come_into_force_whole() -> None:
    async def run() -> None:
        term = Term()
        with term.slow:
            given_up = asyncio.ensure_future(term.controller.change(term.set("a")))
            await asyncio.sleep(0.01)
            given_up.cancel()
            await asyncio.wait({given_up})
        await term.controller.change(term.set("b"))
        assert term.newest.config == {"a": "1", "b": "1"} and term.followed == [2, 3]

    asyncio.run(run())


def test_a_commit_of_unknown_outcome_is_settled_by_the_next_change() -> None:
    async def run() -> None:
        term = Term()
        for number in range(3):
            term.fails = 1
            with pytest.raises(KafkaStorageError):
                await term.controller.change(term.set(f"unknown-{number}"))
            await term.controller.change(term.set(f"known-{number}"))
        assert len(term.newest.config) == 6
        assert term.followed == list(range(2, 8))

    asyncio.run(run())


def test_what_a_decision_raises_is_raised_and_nothing_is_committed() -> None:
    def refuse(image: ClusterImage) -> ClusterImage:
        raise StaleBrokerEpochError()

    async def run() -> None:
        term = Term()
        with pytest.raises(StaleBrokerEpochError):
            await term.controller.change(refuse)
        assert term.newest.version == 1
        assert (await term.controller.change(term.set("a"))).version == 2

    asyncio.run(run())


def test_a_deposed_controller_commits_nothing_and_may_be_elected_again() -> None:
    async def run() -> None:
        term = Term()
        term.store.commit(claim(term.newest, 1))
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await term.controller.change(term.set("a"))
            assert not term.controller.is_active
        term.store.commit(claim(term.newest, 0))
        term.controller.activate(term.newest)
        assert (await term.controller.change(term.set("a"))).config == {"a": "1"}

    asyncio.run(run())


def test_a_controller_is_confirmed_by_the_newest_version_alone() -> None:
    async def run() -> None:
        term = Term()
        assert await term.controller.confirm() is term.newest
        term.store.commit(replace(term.newest, version=2))  # a cleanup of the store
        assert (await term.controller.confirm()).version == 2
        term.fails = 1
        with pytest.raises(KafkaStorageError):
            await term.controller.change(term.set("a"))
        assert (await term.controller.confirm()).config == {"a": "1"}, "an unknown outcome is settled first"
        term.store.commit(claim(term.newest, 1))
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await term.controller.confirm()
            assert not term.controller.is_active
        term.controller.activate(term.store.images[-2])
        with pytest.raises(NotControllerError):  # that all is as it was asked for is true of an old version
            await term.controller.rebalance_leaders(0)

    asyncio.run(run())


def test_a_term_that_began_during_a_refused_commit_goes_on() -> None:
    async def run() -> None:
        term = Term()
        with term.slow:
            earlier = asyncio.ensure_future(term.controller.change(term.set("a")))
            await asyncio.sleep(0.05)
            images: list[Any] = term.store._images
            images.append(claim(claim(term.newest, 1), 0))
            term.controller.resign()
            term.controller.activate(term.newest)
        with pytest.raises(NotControllerError):
            await earlier
        assert term.controller.is_active
        assert (await term.controller.change(term.set("b"))).config == {"b": "1"}

    asyncio.run(run())


def test_a_broker_that_was_fenced_before_it_was_elected_may_lead_again() -> None:
    async def run() -> None:
        term = Term()
        here = BrokerRegistration(0, 1, uuid4(), ())
        await term.controller.change(lambda image: replace(image, version=image.version + 1, brokers={0: here}))
        await term.controller.attend_here(1, frozenset())
        assert not term.newest.brokers[0].is_fenced
        versions = term.newest.version
        await term.controller.attend_here(1, frozenset())
        assert term.newest.version == versions, "and an idle one commits nothing"

    asyncio.run(run())


def test_a_broker_that_is_shutting_down_stays_fenced() -> None:
    async def run() -> None:
        term = Term()
        leaving = BrokerRegistration(0, 1, uuid4(), (), is_shutting_down=True)
        await term.controller.change(lambda image: replace(image, version=image.version + 1, brokers={0: leaving}))
        await term.controller.attend_here(1, frozenset())
        assert term.newest.brokers[0].is_fenced

    asyncio.run(run())


@pytest.mark.parametrize(("silent_ms", "is_fenced"), [(10_000, True), (8_000, False)])
def test_the_controller_before_has_no_other_session_after_a_silence(silent_ms: int, is_fenced: bool) -> None:
    async def run() -> None:
        term = Term()
        brokers = {each: BrokerRegistration(each, 1, uuid4(), (), is_fenced=False) for each in (1, 2)}
        image = await term.controller.change(lambda image: replace(image, version=image.version + 1, brokers=brokers))
        term.controller.resign()
        term.controller.activate(image, silent_broker=1, silent_ms=silent_ms)
        await term.controller.fence_expired(9_000)
        assert [each.is_fenced for each in term.newest.brokers.values()] == [is_fenced, False]
        term.clock.advance(1_001)
        await term.controller.fence_expired(9_000)
        assert [each.is_fenced for each in term.newest.brokers.values()] == [True, False]

    asyncio.run(run())


async def replicate(term: Term, partitions: int) -> UUID:
    """Have broker 1 lead partitions of a topic with broker 2 in sync. Return the topic's id."""
    topic = uuid4()
    brokers = {each: BrokerRegistration(each, 1, uuid4(), (), is_fenced=False) for each in (1, 2)}
    partition = PartitionRegistration(1, 0, (1, 2), (1, 2))
    there = {topic: (partition,) * partitions}
    await term.controller.change(
        lambda image: replace(image, version=image.version + 1, brokers=brokers, partitions=there)
    )
    return topic


def test_a_replica_is_online_again_after_a_report_of_unknown_outcome_that_it_was_offline() -> None:
    """The version that has it offline may be there, though the one that is reported next is what was reported before."""

    async def run() -> None:
        term = Term()
        topic = await replicate(term, 2)
        await term.controller.report_offline(2, 1, frozenset())
        term.fails = 1
        with pytest.raises(KafkaStorageError):
            await term.controller.report_offline(2, 1, frozenset({(topic, 0)}))
        await term.controller.report_offline(2, 1, frozenset())
        await term.controller.change(term.set("a"))
        assert [each.offline for each in term.newest.partitions[topic]] == [(), ()]

    asyncio.run(run())


def test_a_replica_that_loses_records_twice_between_two_heartbeats_is_counted_no_more() -> None:
    """It was opened again and has joined the ISR meanwhile, and the second report is equal to the first."""

    async def run() -> None:
        term = Term()
        topic = await replicate(term, 1)
        cut = frozenset({(topic, 0)})
        for _ in range(2):
            await term.controller.report_offline(2, 1, cut, cut)
            now = term.newest.partitions[topic][0]
            assert not now.counts(2) and now.isr == (1,)
            joining = IsrChange(
                (topic, 0), now.leader_epoch, now.partition_epoch, (Replica(1, ANY_EPOCH), Replica(2, ANY_EPOCH))
            )
            (joined,) = await term.controller.alter_partition(1, 1, [joining])
            assert isinstance(joined, IsrState) and joined.isr == (1, 2)
        await term.controller.report_offline(2, 1, cut, cut)
        versions = len(term.followed)
        await term.controller.report_offline(2, 1, cut, cut)
        assert len(term.followed) == versions and not term.newest.partitions[topic][0].counts(2)

    asyncio.run(run())


def placed(topic: UUID) -> Callable[[ClusterImage], ClusterImage]:
    """Return a decision for a topic that broker 1 leads and broker 2 replicates."""
    brokers = {each: BrokerRegistration(each, 1, uuid4(), (), is_fenced=False) for each in (1, 2)}
    there = {topic: (PartitionRegistration(1, 0, (1, 2), (1, 2)),)}
    return lambda image: replace(image, version=image.version + 1, brokers=brokers, partitions=there)


async def begin_topic(term: Term) -> tuple[UUID, asyncio.Task[ClusterImage]]:
    """Commit a topic that takes long to follow. Return its id, and the change that waits for it."""
    topic = uuid4()
    term.may_follow.clear()
    rows = [TopicRow("orders", str(topic), 1, {}, 0)]
    change = asyncio.ensure_future(term.controller.change_topics(placed(topic), rows))
    while topic not in term.newest.partitions:
        await asyncio.sleep(0)
    return topic, change


async def begin_unfollowed_topic(term: Term, failures: int) -> UUID:
    """Commit a topic whose version cannot be followed, `failures` times in a row with this one. Return its id."""
    term.unfollowed = failures
    topic, change = await begin_topic(term)
    term.may_follow.set()
    with pytest.raises(KafkaStorageError):
        await change
    return topic


def test_a_leader_that_fails_has_a_successor_before_thousands_of_new_logs_are_open_here() -> None:
    """Kafka's controller opens no logs. Elections go by the topic's settings, which this broker does not serve yet."""

    async def run() -> None:
        term = Term()
        topic, change = await begin_topic(term)
        await term.controller.fence(term.newest.brokers[1], "it is gone")
        (partition,) = term.newest.partitions[topic]
        assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
        assert term.told == [2, 3] and term.followed == [] and not change.done()
        term.may_follow.set()
        assert (await change).version == 2
        await term.controller.confirm()
        assert term.followed == [2, 3]

    asyncio.run(run())


@pytest.mark.exhaustive
def test_a_change_waits_until_this_broker_follows_it_or_its_time_is_over() -> None:
    async def run() -> None:
        term = Term(timeout_ms=200)
        _, change = await begin_topic(term)
        for _ in range(2):
            with pytest.raises(RequestTimedOutError):
                await term.controller.confirm()
        with pytest.raises(RequestTimedOutError):
            await term.controller.change(term.set("a"), [])
        assert not change.done(), "it waits for as long as its request does"
        term.may_follow.set()
        await change
        assert (await term.controller.change(term.set("b"), [])).config == {"a": "1", "b": "1"}
        assert term.followed == [2, 3, 4]

    asyncio.run(run())


def test_settings_count_until_they_are_followed_which_may_fail_twice() -> None:
    async def run() -> None:
        term = Term()
        topic = await begin_unfollowed_topic(term, failures=2)
        with pytest.raises(KafkaStorageError):
            await term.controller.change(term.set("a"), [])
        assert term.controller.rules_of(topic) == COMMITTED
        await term.controller.change(term.set("b"), [])
        assert term.controller.rules_of(topic) == ElectionRules()
        assert term.followed == [4]

    asyncio.run(run())


def test_a_deposed_controller_forgets_settings_that_another_one_may_have_changed() -> None:
    async def run() -> None:
        term = Term()
        topic = await begin_unfollowed_topic(term, failures=1)
        term.store.commit(claim(term.newest, 1))
        with pytest.raises(NotControllerError):
            await term.controller.confirm()
        assert term.controller.rules_of(topic) == ElectionRules()

    asyncio.run(run())
