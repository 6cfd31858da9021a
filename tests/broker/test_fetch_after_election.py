"""Fetches from a new leader, which does not know at first how far records were committed: no watermark is shown that goes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from leaderships import LedPartition

from kafkalake.broker.partitions.fetch import FetchRequest, FetchService
from kafkalake.broker.partitions.fetch_sessions import FetchPartition, FetchSessionCache
from kafkalake.broker.partitions.fetched import CachedRecords, Fetched, FetchedPartition, Isolation
from kafkalake.broker.partitions.followed_reads import FollowedReads
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import ClusterImage
from kafkalake.config.layers import Settings

MAX_WAIT_MS = 100
NEW_SESSION, NO_SESSION = 0, -1


class Consumer:
    """Fetches from one partition, in a session or without."""

    def __init__(self, led: LedPartition, isolation: Isolation) -> None:
        self.led = led
        self._isolation = isolation
        topics = Topics(ClusterImage("cluster"))
        topics.add(led.topic)
        sessions = FetchSessionCache(10, lambda: 7)
        self._service = FetchService(
            topics,
            sessions,
            led.purgatory,
            led.clock,
            lambda: Settings({}).broker,
            FollowedReads(lambda replica: None, led.purgatory),
        )

    def fetch(self, offset: int, session_id: int = 0, session_epoch: int = NO_SESSION) -> list[Fetched]:
        """Return a list that has the response once there is one."""
        answers: list[Fetched] = []

        def answered(fetched: Fetched) -> None:
            fetched.sent()
            answers.append(fetched)

        asked = FetchPartition("clicks", 0, offset, 1 << 20)
        request = FetchRequest(
            [asked],
            [],
            session_id,
            session_epoch,
            uses_topic_ids=False,
            isolation=self._isolation,
            min_bytes=1,
            max_bytes=1 << 20,
            max_wait_ms=MAX_WAIT_MS,
            may_read=lambda name: True,
        )
        for _ in self._service.fetch(request, answered):
            pass
        return answers


def offsets(partition: FetchedPartition) -> tuple[int, int]:
    assert partition.error is None
    return partition.high_watermark, partition.last_stable_offset


def has_records(partition: FetchedPartition) -> bool:
    return isinstance(partition.records, CachedRecords) or partition.records is not None


@pytest.fixture(params=list(Isolation), ids=lambda each: each.name.lower())
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Consumer]:
    """Of two records the new leader knows that the first is committed."""
    before = LedPartition(tmp_path)
    before.produce(b"a", acks=1)
    before.fetch(1, 1)
    before.fetch(2, 1)
    before.produce(b"b", acks=1)
    before.log.close()
    led = LedPartition(tmp_path)
    assert led.partition.is_watermark_behind and led.log.high_watermark == 1
    yield Consumer(led, request.param)
    led.log.close()


def test_what_is_known_to_be_committed_is_served_without_a_watermark(consumer: Consumer) -> None:
    ((partition,),) = (each.partitions for each in consumer.fetch(0))
    assert has_records(partition)
    assert offsets(partition) == (-1, -1)


def test_a_fetch_of_the_rest_waits_for_the_followers(consumer: Consumer) -> None:
    led = consumer.led
    waiting = consumer.fetch(1)
    led.fetch(1, 2)
    assert waiting == []
    led.fetch(2, 2)
    ((partition,),) = (each.partitions for each in waiting)
    assert has_records(partition)
    assert offsets(partition) == (2, 2)


def test_a_fetch_whose_time_is_over_tells_nothing_and_the_next_one_goes_on(consumer: Consumer) -> None:
    led = consumer.led
    waiting = consumer.fetch(1)
    led.pass_time(MAX_WAIT_MS + 1)
    ((partition,),) = (each.partitions for each in waiting)
    assert not has_records(partition)
    assert offsets(partition) == (-1, -1)
    again = consumer.fetch(1)
    led.fetch(1, 2)
    led.fetch(2, 2)
    assert offsets(again[0].partitions[0]) == (2, 2)


def test_a_session_leaves_the_partition_out_until_the_watermark_is_known(consumer: Consumer) -> None:
    led = consumer.led
    first = consumer.fetch(1, session_epoch=NEW_SESSION)
    led.pass_time(MAX_WAIT_MS + 1)
    assert offsets(first[0].partitions[0]) == (-1, -1), "a full response has every partition"
    second = consumer.fetch(1, first[0].context.session_id, 1)
    led.pass_time(MAX_WAIT_MS + 1)
    assert second[0].partitions == []
    third = consumer.fetch(1, first[0].context.session_id, 2)
    led.fetch(1, 2)
    led.fetch(2, 2)
    assert offsets(third[0].partitions[0]) == (2, 2)
