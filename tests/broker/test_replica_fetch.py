"""Fetches of followers from the partition that they follow."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from broker.throttled import Throttle
from leaderships import THREE, LedPartition

from kafkalake.broker.partitions.follower_fetch import FollowedAnswer, FollowedPartition, FollowerFetch
from kafkalake.broker.partitions.follower_sessions import FollowerSessions
from kafkalake.broker.partitions.isr_changes import IsrChanges
from kafkalake.broker.partitions.offsets import delete_records, wait_until_deleted
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.replica_fetch import WATERMARK_MS, ReplicaFetchService
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import BrokerRegistration, ClusterImage
from kafkalake.cluster.replication import begin_leadership
from kafkalake.config.layers import Settings
from kafkalake.config.replication import RACK_AWARE_SELECTOR
from kafkalake.errors import BrokerUnavailableError, NotLeaderOrFollowerError, RequestTimedOutError
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import COMMIT, EndMarker

LAGGING_MS = 30_001
"""After so long without all records a follower is outside of the ISR, and the watermark does not wait for it."""


class Followed:
    """A partition of three brokers that broker 0 leads, and the fetches of its followers."""

    def __init__(self, directory: Path) -> None:
        self.led = LedPartition(directory / "leader")
        self.config = Settings({}).broker
        brokers = {each: BrokerRegistration(each, 10 * each, UUID(int=each), (), is_fenced=False) for each in range(3)}
        self.topics = topics = Topics(ClusterImage("lake", version=1, brokers=brokers))
        topics.add(self.led.topic)
        self.led.topic.registrations = (THREE,)

        async def nobody(*_: object) -> list[object]:
            raise BrokerUnavailableError("no controller")

        self.changes = IsrChanges(
            0,
            topics,
            controller=lambda: type("NoController", (), {"alter_partition": staticmethod(nobody)})(),
            broker_epoch=lambda: 0,
            advance=self.led.queue.advance,
            later=lambda delay_ms, action: None,
            clock=self.led.clock,
            lag_ms=lambda: LAGGING_MS - 1,
        )
        ids = itertools.count(1)
        self.sessions = FollowerSessions(
            self.led.purgatory, lambda: next(ids), self.led.clock.monotonic_ms, self.changes.note_repeated
        )
        self.throttled = Throttle(self.led.clock, topics)
        self.service = ReplicaFetchService(
            topics, self.led.purgatory, self.changes, self.sessions, self.throttled.throttle, lambda: self.config
        )

    def fetch(
        self,
        offset: int,
        broker_id: int = 1,
        *,
        bytes_max: int = 1 << 20,
        wait_ms: int = 500,
        broker_epoch: int | None = None,
        copies: int = 1,
        **asked: int,
    ) -> list[FollowedAnswer]:
        """Fetch and return a list that has the answers, once it is answered."""
        fields = {"leader_epoch": 5, "last_fetched_epoch": -1, "log_start_offset": 0, "high_watermark": 0} | asked
        partition = FollowedPartition(self.led.topic.topic_id, 0, offset, 1 << 20, **fields)
        epoch = 10 * broker_id if broker_epoch is None else broker_epoch
        request = FollowerFetch(broker_id, epoch, [partition] * copies, 1, bytes_max, wait_ms)
        answers: list[FollowedAnswer] = []
        for _ in self.service.fetch(request, lambda found, session_id: answers.extend(found)):
            pass
        return answers


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    yield Followed(tmp_path)


def messages(answers: list[FollowedAnswer]) -> bytes:
    (answer,) = answers
    assert answer.error is None and answer.read is not None
    return bytes(answer.read.messages)


def label(answers: list[FollowedAnswer]) -> str:
    (answer,) = answers
    assert answer.error is not None and answer.read is None
    return answer.error.label


def test_a_follower_gets_the_bytes_of_the_file_up_to_the_log_end_and_copies_them(
    followed: Followed, tmp_path: Path
) -> None:
    followed.led.produce(b"a", acks=1)
    followed.led.produce(b"b", acks=1)
    (answer,) = followed.fetch(0)
    assert (answer.high_watermark, answer.segment_base_offset) == (0, 0)
    assert answer.read is not None and answer.read.next_offset == 2
    copy = Log.open(tmp_path / "copy", LogConfig(), followed.led.clock)
    copy.append_replica(answer.read.messages, answer.segment_base_offset, ends_segment=answer.read.ends_segment)
    assert copy.log_end_offset == 2


def test_a_fetch_says_what_the_follower_has_and_answers_producers(followed: Followed) -> None:
    waiting = followed.led.produce(b"a")
    followed.fetch(0)
    followed.fetch(1)
    assert waiting == []
    answers = followed.fetch(1, broker_id=2)
    assert waiting == [0]
    followed.led.pass_time(WATERMARK_MS + 1)
    assert [each.high_watermark for each in answers] == [1]


def test_a_fetch_at_the_log_end_waits_for_the_next_append_or_for_its_time(followed: Followed) -> None:
    answers = followed.fetch(0)
    assert answers == []
    followed.led.produce(b"a", acks=1)
    assert messages(answers)
    answers = followed.fetch(1)
    followed.led.pass_time(501)
    assert messages(answers) == b""


def test_a_fetch_that_waits_is_answered_by_a_marker(followed: Followed) -> None:
    """A marker has no batch. A transaction ends when the followers have its markers, not when their fetches end."""
    followed.led.produce(b"a", producer_id=1, epoch=0, sequence=0, transactional=True)
    answers = followed.fetch(1)
    assert answers == []
    marker = EndMarker(1, 0, COMMIT, coordinator_epoch=0)
    followed.led.queue.add(PendingAppend(followed.led.partition, None, None, marker=marker), lambda: None)
    followed.led.turn()
    assert messages(answers)


def test_a_follower_is_told_the_watermark_of_its_records_soon_and_no_more_than_that(followed: Followed) -> None:
    followed.led.produce(b"a", acks=1)
    waiting = followed.fetch(1)
    other = followed.fetch(1, broker_id=2)
    followed.led.pass_time(WATERMARK_MS - 1)
    assert waiting == other == []
    followed.led.pass_time(2)
    assert [each.high_watermark for each in (*waiting, *other)] == [1, 1]
    assert followed.fetch(1, high_watermark=1) == []


def test_a_watermark_comes_with_the_next_records_and_its_pause_begins_no_wait_anew(followed: Followed) -> None:
    followed.led.produce(b"a", acks=1)
    waiting = followed.fetch(1, wait_ms=WATERMARK_MS + 5)
    followed.led.pass_time(10)
    followed.fetch(1, broker_id=2)
    followed.led.produce(b"b", acks=1)
    assert messages(waiting) and waiting[0].high_watermark == 1
    short = followed.fetch(2, wait_ms=WATERMARK_MS + 5)
    followed.led.pass_time(10)
    followed.fetch(2, broker_id=2)
    followed.led.pass_time(WATERMARK_MS - 4)
    assert [each.high_watermark for each in short] == [2], "the time of the request is over first"


def test_a_follower_from_which_consumers_read_is_told_the_watermark_at_once(followed: Followed) -> None:
    followed.config = Settings({"replica.selector.class": RACK_AWARE_SELECTOR}).broker
    followed.led.produce(b"a", acks=1)
    waiting = followed.fetch(1)
    assert waiting == []
    (answer,) = followed.fetch(1, broker_id=2)
    assert [each.high_watermark for each in (*waiting, answer)] == [1, 1]


def test_a_waiting_fetch_is_not_a_second_word_of_the_follower(followed: Followed) -> None:
    """It is answered later, when the follower may have fetched elsewhere in the log."""
    followed.fetch(0)
    followed.led.clock.advance(400)
    followed.led.produce(b"a", acks=1)
    follower = followed.led.partition.leadership.follower(1)
    assert follower is not None and (follower.fetched_ms, follower.log_end) == (0, 0)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"leader_epoch": 4}, "FENCED_LEADER_EPOCH"),
        ({"leader_epoch": 6}, "UNKNOWN_LEADER_EPOCH"),
        ({"broker_epoch": 9}, "NOT_LEADER_OR_FOLLOWER"),
        ({"broker_id": 3}, "UNKNOWN_LEADER_EPOCH"),
        ({"last_fetched_epoch": 7}, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_a_fetch_of_another_epoch_or_broker_is_refused_and_counts_for_nothing(
    followed: Followed, asked: dict[str, int], error: str
) -> None:
    before = followed.led.partition.leadership
    assert label(followed.fetch(0, **asked)) == error  # type: ignore[arg-type]
    assert followed.led.partition.leadership is before
    assert followed.fetch(0) == [], "and life goes on"


def test_a_fetch_outside_of_the_log_says_where_it_begins_and_counts_for_nothing(followed: Followed) -> None:
    followed.led.produce(b"a", b"b", acks=1)
    before = followed.led.partition.leadership
    for offset in (3, 1):  # beyond the end, and inside a message
        answers = followed.fetch(offset)
        assert label(answers) == "OFFSET_OUT_OF_RANGE"
        assert answers[0].segment_base_offset == 0
    assert followed.led.partition.leadership is before


def test_a_diverging_follower_is_told_where_and_counts_for_nothing(followed: Followed) -> None:
    followed.led.produce(b"a", acks=1)
    led = followed.led
    led.log.take_over(6)
    led.partition.lead(begin_leadership(replace(THREE, leader_epoch=6, partition_epoch=4), 0, 1, 2, 0))
    led.produce(b"b", acks=1)
    for offset in (2, 9):  # its log may be longer than the leader's
        (answer,) = followed.fetch(offset, leader_epoch=6, last_fetched_epoch=5)
        assert (answer.error, answer.diverging) == (None, (5, 1))
        assert answer.read is None
    follower = led.partition.leadership.follower(1)
    assert follower is not None and follower.log_end == -1
    assert messages(followed.fetch(1, leader_epoch=6, last_fetched_epoch=5))


def test_a_waiting_fetch_ends_with_the_leadership(followed: Followed) -> None:
    older = followed.fetch(0)
    followed.led.partition.lead(begin_leadership(replace(THREE, leader_epoch=6), 0, 0, 2, 0))
    followed.led.queue.advance(followed.led.partition)
    assert label(older) == "FENCED_LEADER_EPOCH"
    waiting = followed.fetch(0, leader_epoch=6)
    del followed.led.topic.replicas[0]
    followed.led.partition.resign()
    followed.led.queue.leave(followed.led.partition)
    assert label(waiting) == "NOT_LEADER_OR_FOLLOWER"


def test_the_bytes_of_an_answer_are_bounded_but_the_first_message_comes_whole(followed: Followed) -> None:
    followed.led.produce(b"a" * 5000, acks=1)
    followed.led.produce(b"b" * 5000, acks=1)
    first, second = followed.fetch(0, bytes_max=100, copies=2)
    assert first.read is not None and first.read.next_offset == 1
    assert (second.read, second.error) == (None, None)


def test_a_proposal_without_a_controller_keeps_the_follower_out(followed: Followed) -> None:
    async def run() -> None:
        followed.led.set_isr(0, 1)
        followed.fetch(0, broker_id=2)
        assert followed.led.partition.leadership.proposed == (0, 1, 2)
        await asyncio.sleep(0)
        assert followed.led.partition.leadership.isr == (0, 1)

    asyncio.run(run())


def test_deleted_records_are_gone_once_the_replicas_in_sync_begin_behind_them(followed: Followed) -> None:
    """Else a leader that is elected next would still have them."""
    led = followed.led
    led.produce(b"a", acks=1)
    led.produce(b"b", acks=1)
    for broker_id in (1, 2):
        followed.fetch(2, broker_id)
    led.pass_time(WATERMARK_MS + 1)

    async def delete() -> None:
        partition = led.partition
        assert delete_records(partition, 1) == 1
        waiting = asyncio.ensure_future(wait_until_deleted(led.purgatory, partition, 1, 1_000))
        await asyncio.sleep(0)
        (told,) = followed.fetch(2, high_watermark=2)
        assert told.log_start_offset == 1, "at once, though there are no records"
        followed.fetch(2, high_watermark=2, log_start_offset=1)
        await asyncio.sleep(0)
        assert not waiting.done(), "broker 2 may be elected"
        followed.fetch(2, 2, high_watermark=2, log_start_offset=1)
        assert await waiting == 1
        assert await wait_until_deleted(led.purgatory, partition, 1, 1_000) == 1, "again, at once"

    asyncio.run(delete())
    assert len(led.purgatory) == 2, "the followers' fetches"


def test_a_deletion_that_a_replica_does_not_follow_times_out_and_one_without_its_leader_ends(
    followed: Followed,
) -> None:
    led = followed.led
    led.produce(b"a", acks=1)
    for broker_id in (1, 2):
        followed.fetch(1, broker_id)

    async def delete() -> None:
        delete_records(led.partition, 1)
        late = asyncio.ensure_future(wait_until_deleted(led.purgatory, led.partition, 1, 1_000))
        left = asyncio.ensure_future(wait_until_deleted(led.purgatory, led.partition, 1, 5_000))
        await asyncio.sleep(0)
        led.pass_time(1_001)
        with pytest.raises(RequestTimedOutError):
            await late
        led.partition.resign()
        led.purgatory.check(led.partition)
        with pytest.raises(NotLeaderOrFollowerError):
            await left

    asyncio.run(delete())


def test_a_throttle_keeps_records_from_a_follower_outside_of_the_isr_until_the_rate_allows_them(
    followed: Followed,
) -> None:
    followed.led.set_isr(0, 2)
    for _ in range(2):
        followed.led.produce(bytes(5_000), acks=1)
    followed.led.pass_time(LAGGING_MS)
    followed.fetch(2, broker_id=2)
    followed.throttled.rate = 1_000
    assert len(messages(followed.fetch(0, bytes_max=1))) > 5_000
    held_back = followed.fetch(1, high_watermark=1)
    followed.led.produce(b"later", acks=1)
    assert held_back == []
    followed.led.pass_time(501)
    (answer,) = held_back
    assert answer.read is None and answer.error is None
    assert messages(followed.fetch(1, broker_id=2))
    followed.led.pass_time(20_000)
    assert messages(followed.fetch(1, high_watermark=1))
    followed.throttled.rate = 0
    (answer,) = followed.fetch(1, high_watermark=1, wait_ms=0)
    assert answer.read is None


@pytest.mark.parametrize(("replicas", "is_throttled"), [("0:1", False), ("1:0,0:1", False), ("", False), ("0:0", True)])
def test_a_throttle_concerns_the_replicas_that_its_setting_names(
    followed: Followed, replicas: str, is_throttled: bool
) -> None:
    followed.led.set_isr(0, 2)
    followed.led.produce(b"a", acks=1)
    followed.led.pass_time(LAGGING_MS)
    followed.fetch(1, broker_id=2)
    followed.throttled.rate = 1
    assert not followed.throttled.throttle.is_exceeded
    followed.throttled.throttle.count(followed.led.partition.replica, 100_000)
    followed.throttled.replicas = replicas
    (answer,) = followed.fetch(0, wait_ms=0)
    assert (answer.read is None) == is_throttled
