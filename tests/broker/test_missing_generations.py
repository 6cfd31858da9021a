"""A leader that lacks segments which a job has rewritten copies them from the replicas that follow it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from broker.replica_pairs import LeadersHere, data_of, run
from broker.test_followers import rewritten
from broker.throttled import Throttle
from leaderships import LedPartition
from storage.partition_logs import open_log

from kafkalake.broker.partitions.leader_replicas import AskedSegment, SegmentPart
from kafkalake.broker.partitions.missing_generations import PAUSE_MS_MIN, MissingGenerations
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.segment_copies import SegmentCopies
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.replica_read import SegmentRef

SEGMENT_BYTES = 2_000


class Followers(LeadersHere):
    """The replicas that follow, by their brokers. The others are away."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas: dict[int, Log] = {}
        self.asked_brokers: list[int] = []
        self.damages = False

    async def fetch_segment(self, leader_id: int, asked: AskedSegment, position: int, timeout_ms: int) -> SegmentPart:
        self.asked_brokers.append(leader_id)
        self.is_cut = leader_id not in self.replicas
        if not self.is_cut:
            self.lead(asked.replica, self.replicas[leader_id], asked.leader_epoch)
        segment, data = await super().fetch_segment(leader_id, asked, position, timeout_ms)
        return SegmentPart(segment, memoryview(bytes(len(data)))) if self.damages else SegmentPart(segment, data)


class Led:
    """A partition that broker 0 leads, with three sealed segments or more, and a copy of it at its followers, rewritten there."""

    def __init__(self, directory: Path) -> None:
        self.led = LedPartition(directory / "leader", segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0)
        for number in range(12):
            self.led.produce(b"%d" % number + bytes(300), acks=1)
        self.led.log.advance_high_watermark(self.led.log.log_end_offset)
        shutil.copytree(self.led.log.directory, directory / "copy")
        self.copy = open_log(directory / "copy", self.led.clock, segment_bytes=SEGMENT_BYTES)
        self.new = [rewritten(self.copy, 1, 2)]
        self.followers = Followers()
        self.swapped: list[Partition] = []
        topics = Topics(ClusterImage("lake"))
        topics.add(self.led.topic)
        throttled = Throttle(self.led.clock, topics)
        config = Settings({}).broker
        self.copies = SegmentCopies(self.followers, lambda: config, asyncio.to_thread, throttled.throttle)
        self.missing = MissingGenerations(
            self.copies, self.led.clock.monotonic_ms, lambda delay_ms, action: None, self.swapped.append
        )

    async def take(self) -> list[int]:
        """Copy what is missing, and return the brokers that were asked."""
        self.followers.asked_brokers.clear()
        self.missing.take(self.led.partition, self.new)
        while self.missing.is_copying(self.led.partition):
            await asyncio.sleep(0.001)
        return self.followers.asked_brokers


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


def test_what_a_leader_lacks_comes_from_the_first_replica_that_has_it(led: Led) -> None:
    async def test() -> None:
        led.followers.replicas = {2: led.copy}
        assert (await led.take())[:2] == [1, 2], "broker 1 is away"
        assert led.led.log.generations == led.copy.generations != {}
        assert led.swapped == [led.led.partition]
        led.led.produce(b"later", acks=1)
        led.new = [rewritten(led.copy, 2, 2)]
        assert 2 in await led.take(), "again"
        assert led.led.log.generations == led.copy.generations
        assert len(led.swapped) == 2
        copied = f"{led.new[0].base_offset:020d}-1.arrow"
        assert data_of(led.led.log)[copied] == data_of(led.copy)[copied]

    run(test)


def test_replicas_that_do_not_have_it_either_are_asked_again_after_a_pause_that_grows(led: Led) -> None:
    async def test() -> None:
        led.new = [RewrittenSegment(led.new[0].base_offset, led.new[0].next_offset, 2)]
        led.followers.replicas = {1: led.copy}
        assert await led.take() == [1, 2]
        for pause_ms in (PAUSE_MS_MIN, 2 * PAUSE_MS_MIN):
            led.led.clock.advance(pause_ms - 1)
            assert await led.take() == []
            led.led.clock.advance(1)
            assert await led.take() == [1, 2]
        assert led.swapped == [] and led.led.log.generations == {}

    run(test)


def test_damaged_bytes_are_not_taken(led: Led) -> None:
    async def test() -> None:
        led.followers.replicas, led.followers.damages = {1: led.copy}, True
        await led.take()
        assert led.led.log.generations == {} and not list(Path(led.led.log.directory).glob("*-1.arrow"))
        led.followers.damages = False
        led.led.clock.advance(PAUSE_MS_MIN)
        await led.take()
        assert led.led.log.generations == led.copy.generations

    run(test)


def test_nothing_uses_the_log_once_another_broker_is_to_lead(led: Led) -> None:
    async def test() -> None:
        working, goes_on = asyncio.Event(), asyncio.Event()

        async def wait(leader_id: int, asked: AskedSegment, position: int, timeout_ms: int) -> SegmentPart:
            working.set()
            await goes_on.wait()
            return SegmentPart(SegmentRef(0, 0, 0, 0, 0), memoryview(b""))

        led.followers.fetch_segment = wait  # type: ignore[method-assign]
        led.missing.take(led.led.partition, led.new)
        await working.wait()
        await led.missing.stop([(led.led.topic.topic_id, 0)])
        assert not led.missing.is_copying(led.led.partition)
        assert not list(Path(led.led.log.directory).glob("*.tmp"))
        assert led.led.log.generations == {}
        del led.followers.fetch_segment  # type: ignore[method-assign]
        led.followers.replicas = {1: led.copy}
        await led.take()
        assert led.led.log.generations == led.copy.generations, "it leads again, and copies again at once"

    run(test)
