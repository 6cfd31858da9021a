"""The replicas of a broker as versions of the image come: they lead, follow, rest, fail and are removed, by real logs."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from broker.replica_pairs import LeadersHere, data_of, run
from broker.throttled import Throttle
from faulty_files import FaultyFiles
from manual_clock import ManualClock
from record_batches import simple_batch
from storage.partition_logs import append, open_log

from kafkalake import run_blocking
from kafkalake.broker.partitions import replicas
from kafkalake.broker.partitions.followed_reads import FollowedReads
from kafkalake.broker.partitions.idle_logs import IdleLogs
from kafkalake.broker.partitions.log_directory import LogDirectory, log_config
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.replicas import Replicas
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.cluster.image import NO_LEADER, ClusterImage, PartitionRegistration
from kafkalake.config.layers import Settings
from kafkalake.errors import KafkaStorageError, NotLeaderOrFollowerError
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.partition_metadata import read_topic_id
from kafkalake.storage.retired_directories import retired_name
from kafkalake.storage.segment_names import file_name
from kafkalake.storage.state import STATE_FILE

HERE, OTHER, THIRD = 1, 2, 3
T = UUID(int=7)
KEY = (T, 0)


class Observer:
    """What the publisher is told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def partition_added(self, partition: Partition) -> None:
        self.seen.append("added")

    def partition_removed(self, partition: Partition) -> None:
        self.seen.append("removed")

    def partition_swapped(self, partition: Partition) -> None:
        pass

    def partition_resigned(self, partition: Partition) -> None:
        self.seen.append("resigned")


class Here:
    """Broker 1, and the log of the leader on another broker."""

    def __init__(
        self,
        root: Path,
        run_blocking: Callable[[Callable[[], Any]], Any] | None = None,
        files: FaultyFiles | None = None,
    ) -> None:
        self.root = root
        self.clock = ManualClock()
        self.files = files or FaultyFiles()
        self.leaders = LeadersHere()
        self.observer = Observer()
        self.topics = Topics(ClusterImage("c"))
        self.moved: list[tuple[int, bool]] = []
        self.changed: list[Sequence[str]] = []
        self.store_fails = 0
        self.overrides: dict[str, str] = {}
        self.topic_id = T
        settings = Settings({})
        (root / "here").mkdir()
        self.replicas = Replicas(
            broker_id=HERE,
            topics=self.topics,
            store=self,  # type: ignore[arg-type]
            logs=LogDirectory(root / "here", self.clock, OpenFiles(self.files, 16)),
            cache=WireCache(0),
            clock=self.clock,
            settings=lambda: settings,
            leaders=self.leaders,
            reads=FollowedReads(lambda replica: self.replicas.fetchers.find(replica), Purgatory(Timers(self.clock))),
            throttle=Throttle(self.clock).throttle,
            observer=self.observer,
            changed=self.changed.append,
            moved=lambda topic, index: self.moved.append((index, index in topic.replicas)),
            run_blocking=run_blocking or self._run_blocking,
            later=lambda delay_ms, action: None,
            advance=lambda partition: None,
            leave=lambda partition: None,
        )

    @staticmethod
    async def _run_blocking(work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work)

    def load_topics(self) -> list[TopicRow]:
        if self.store_fails:
            self.store_fails -= 1
            raise KafkaStorageError("Delta is away")
        return [TopicRow("t", str(self.topic_id), 1, self.overrides, 0)]

    async def follow(self, *registered: PartitionRegistration) -> None:
        """Follow a version in which the topic has these partitions, none: without the topic."""
        image = self.topics.image
        await self.replicas.follow(
            image.with_topics({T: registered}) if registered else image.without_topics({T}), self.load_topics()
        )

    @property
    def topic(self) -> Topic:
        return self.topics.topic_by_id(T)

    def partition(self) -> Partition:
        return self.topic.replicas[0]

    def log_followed(self) -> Log:
        follower = self.replicas.fetchers.find(KEY)
        assert follower is not None
        return follower.log

    def lead_elsewhere(self, epoch: int, records: int = 3) -> Log:
        """The log of another broker that leads in an epoch."""
        log = open_log(self.root / f"other-{epoch}", self.clock)
        log.take_over(epoch)
        for number in range(records):
            append(log, simple_batch([b"%d" % number]), epoch=epoch)
        self.leaders.lead(KEY, log, epoch)
        return log

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.001)


def registered(leader: int, epoch: int, *replicas: int, partition_epoch: int = 0) -> PartitionRegistration:
    replicas = replicas or (HERE, OTHER)
    return PartitionRegistration(leader, epoch, replicas, replicas, partition_epoch=partition_epoch)


def test_a_replica_leads_follows_and_leads_again(tmp_path: Path) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        await here.follow(registered(HERE, 1))
        first = here.partition()
        assert (first.leader_epoch, first.log.latest_epoch, first.log.takeover_offset) == (1, 1, 0)
        for number in range(2):
            first.log.append([simple_batch([b"lost %d" % number])], 1)
        other = here.lead_elsewhere(2)
        await here.follow(registered(OTHER, 2))
        assert isinstance(first.refusal, NotLeaderOrFollowerError)
        await here.until(lambda: data_of(here.log_followed()) == data_of(other))
        log = here.log_followed()
        await here.follow(registered(HERE, 3))
        assert here.partition().log is log and here.replicas.fetchers.find(KEY) is None
        assert (log.latest_epoch, log.log_end_offset) == (3, 3)
        assert here.moved == [(0, True), (0, False), (0, True)]
        assert here.observer.seen == ["added", "resigned", "added"]

    run(test)


def test_the_leader_of_an_unclean_election_says_so_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        await here.follow(registered(HERE, 1))
        append(here.partition().log, simple_batch([b"a"]), epoch=1)
        await here.follow(registered(OTHER, 2))
        assert "unclean" not in caplog.text
        await here.follow(replace(registered(HERE, 3), isr=(HERE,), is_recovering=True))
        assert "unclean election, acknowledged records may be lost partition=t-0 epoch=3 end=1" in caplog.text
        await here.replicas.stop_following()

    run(test)


def test_a_version_that_could_not_be_followed_is_made_up_for_by_the_next_one(tmp_path: Path) -> None:
    """The topics of the next one are those that it has changed, as the controller gives them to its own broker."""

    async def test() -> None:
        here = Here(tmp_path)
        created = here.topics.image.with_topics({T: (registered(HERE, 1, HERE),)})
        here.store_fails = 1
        with pytest.raises(KafkaStorageError):
            await here.replicas.follow(created)
        later = replace(created, version=created.version + 1)
        await here.replicas.follow(later, [])
        assert here.partition().leader_epoch == 1
        here.store_fails, here.overrides = 1, {"retention.ms": "7"}
        altered = replace(later, version=later.version + 1, topics_version=later.topics_version + 1)
        with pytest.raises(KafkaStorageError):
            await here.replicas.follow(altered)
        await here.replicas.follow(replace(altered, version=altered.version + 1), [])
        assert here.topic.config.retention_ms == 7

    run(test)


def test_the_settings_of_the_logs_of_a_wide_topic_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(replicas, "log_config", lambda *of: made.append(of) or log_config(*of))

    async def test() -> None:
        here = Here(tmp_path)
        await here.replicas.follow(here.topics.image.with_topics({T: (registered(HERE, 1, HERE),) * 50}))
        assert len(here.topic.replicas) == 50

    run(test)
    assert len(made) <= 3


async def steps_of(following: Coroutine[Any, Any, None], count: Callable[[], int]) -> set[int]:
    """What has been counted in each turn of the event loop while a version was followed."""
    task = asyncio.ensure_future(following)
    counts = set()
    while not task.done():
        await asyncio.sleep(0)
        counts.add(count())
    await task
    return counts


def test_a_wide_topic_is_deleted_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_blocking, "TURN_NS", 0)

    async def test() -> None:
        here = Here(tmp_path)
        created = here.topics.image.with_topics({T: (registered(HERE, 1, HERE),) * 50})
        await here.replicas.follow(created)
        deleting = here.replicas.follow(created.without_topics({T}))
        removed = await steps_of(deleting, lambda: here.observer.seen.count("removed"))
        assert set(range(1, 51)) <= removed
        assert here.topics.find_id(T) is None
        await here.replicas.wait()
        assert not list((tmp_path / "here").glob("topic-*"))

    run(test)


def test_many_narrow_topics_are_deleted_and_altered_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        rows = [TopicRow(f"t{number}", str(UUID(int=number)), 1, {}, 0) for number in range(1, 51)]
        partitions = {UUID(row.topic_id): (registered(HERE, 1, HERE),) for row in rows}
        created = here.topics.image.with_topics(partitions)
        await here.replicas.follow(created, rows)
        configure = Topics.configure

        def alter(*args: Any) -> None:
            here.clock.advance(1)
            configure(*args)

        monkeypatch.setattr(Topics, "configure", alter)
        altered = [replace(row, config={"retention.ms": "1"}) for row in rows]
        following = here.replicas.follow(replace(created, version=created.version + 1), altered)
        changed = await steps_of(following, lambda: sum(bool(each.overrides) for each in here.topics))
        assert set(range(5, 50, 5)) <= changed

        def remove(partition: Partition) -> None:
            here.clock.advance(1)
            here.observer.seen.append("removed")

        monkeypatch.setattr(here.observer, "partition_removed", remove)
        deleting = here.replicas.follow(here.topics.image.without_topics(partitions))
        assert set(range(5, 50, 5)) <= await steps_of(deleting, lambda: here.observer.seen.count("removed"))
        await here.replicas.wait()

    run(test)


def test_the_logs_of_a_wide_topic_that_is_led_elsewhere_are_taken_away_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_blocking, "TURN_NS", 0)

    async def test() -> None:
        here = Here(tmp_path)
        created = here.topics.image.with_topics({T: (registered(OTHER, 1),) * 50})
        await here.replicas.follow(created)
        deleting = here.replicas.follow(created.without_topics({T}))
        left = await steps_of(deleting, lambda: len(here.replicas.idle))
        assert set(range(50)) <= left
        await here.replicas.wait()
        assert not list((tmp_path / "here").glob("topic-*"))

    run(test)


def test_the_leaderships_of_a_wide_topic_begin_and_end_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose log fails meanwhile ends once."""
    monkeypatch.setattr(run_blocking, "TURN_NS", 0)

    async def test() -> None:
        here = Here(tmp_path)
        led = here.topics.image.with_topics({T: (registered(HERE, 1),) * 50})
        begun = await steps_of(here.replicas.follow(led), lambda: here.observer.seen.count("added"))
        assert set(range(1, 51)) <= begun
        last = here.topic.replicas[49]

        def count_and_fail() -> int:
            if here.observer.seen.count("resigned") == 10 and 49 in here.topic.replicas:
                here.replicas.fail(last)
            return here.observer.seen.count("resigned")

        given_away = led.with_topics({T: (registered(OTHER, 2, partition_epoch=1),) * 50})
        ended = await steps_of(here.replicas.follow(given_away), count_and_fail)
        assert set(range(1, 51)) - {10, 11} <= ended
        assert max(ended) == 50
        assert not here.topic.replicas
        await here.replicas.stop_following()

    run(test)


def test_who_looks_at_all_topics_is_told_once_of_those_that_a_version_brings(tmp_path: Path) -> None:
    """Coordinators of groups look at all offsets then, which takes time."""

    async def test() -> None:
        here = Here(tmp_path)
        many = {UUID(int=number): (registered(HERE, 1, HERE),) for number in range(1, 6)}
        rows = [TopicRow(f"t{topic_id.int}", str(topic_id), 1, {}, 0) for topic_id in many]
        image = here.topics.image.with_topics(many)
        await here.replicas.follow(image, rows)
        await here.replicas.follow(replace(image, version=image.version + 1), [])
        await here.replicas.follow(replace(image, version=image.version + 2).without_topics({UUID(int=3)}), [])
        assert here.changed == [["t1", "t2", "t3", "t4", "t5"], ["t3"]]

    run(test)


def test_the_same_leadership_goes_on_and_a_newer_epoch_begins_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        await here.follow(registered(HERE, 1))
        first = here.partition()
        await here.follow(registered(HERE, 1, HERE, OTHER, THIRD, partition_epoch=1))
        assert here.partition() is first and first.leadership.replicas == (HERE, OTHER, THIRD)
        append(first.log, simple_batch([b"a"]), epoch=1)
        await here.follow(registered(HERE, 2))
        assert here.partition().log is first.log
        assert first.log.end_offset_for_epoch(1) == (1, 1) and first.log.latest_epoch == 2

    run(test)


def test_a_replica_without_a_leader_rests_and_one_that_is_taken_away_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        other = here.lead_elsewhere(1)
        await here.follow(registered(OTHER, 1))
        await here.until(lambda: here.log_followed().log_end_offset == other.log_end_offset)
        log = here.log_followed()
        await here.follow(registered(NO_LEADER, 1))
        assert here.replicas.idle == {KEY: log} and list(here.replicas.open_logs()) == [log]
        await here.follow(registered(OTHER, 1))
        assert here.log_followed() is log
        await here.follow(registered(OTHER, 1, OTHER, THIRD))
        assert not list(here.replicas.open_logs()) and not (tmp_path / "here" / "t-0").exists()
        await here.follow(registered(OTHER, 1, OTHER, HERE))
        await here.until(lambda: here.log_followed().log_end_offset == other.log_end_offset)
        await here.follow()
        await here.replicas.wait()
        assert not list(here.replicas.open_logs()) and not (tmp_path / "here" / "t-0").exists()

    run(test)


def test_a_replica_whose_disk_fails_is_offline_until_its_log_opens_again(tmp_path: Path) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        other = here.lead_elsewhere(1)
        await here.follow(registered(NO_LEADER, 0))
        here.files.fail_at_call = here.files.calls + 1
        await here.follow(registered(OTHER, 1))
        await here.until(lambda: list(here.replicas.offline()) == [KEY])
        await here.replicas.reopen_failed()
        assert list(here.replicas.offline()) == [KEY]
        here.files.fail_at_call = None
        await here.replicas.reopen_failed()
        await here.until(lambda: here.log_followed().log_end_offset == other.log_end_offset)
        assert not list(here.replicas.offline())

    run(test)


def test_a_log_that_fails_again_and_again_is_opened_less_often() -> None:
    async def opens_none(work: Callable[[], Any]) -> Any:
        raise AssertionError(work)

    idle, error = IdleLogs(opens_none), KafkaStorageError("its disk fails")
    for _ in range(2):
        idle.keep(KEY, error)
        tried = []
        for number in range(1, 40):
            if idle.due():
                tried.append(number)
                idle.keep(KEY, error)
        assert tried == [1, 2, 4, 8, 16, 24, 32]
        idle.take(KEY)


def test_what_a_replica_has_lost_is_forgotten_with_the_replica(tmp_path: Path) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        here.lead_elsewhere(1)
        await here.follow(registered(NO_LEADER, 0))
        here.files.fail_at_call = here.files.calls + 1
        await here.follow(registered(OTHER, 1))
        await here.until(lambda: list(here.replicas.offline()) == [KEY])
        assert not list(here.replicas.cut())
        shutil.rmtree(tmp_path / "here" / "t-0")
        here.files.fail_at_call = None
        await here.replicas.reopen_failed()
        assert list(here.replicas.cut()) == [KEY]
        await here.follow(registered(OTHER, 1, OTHER, THIRD))
        assert not list(here.replicas.offline()) and not list(here.replicas.cut())
        here.files.fail_at_call = here.files.calls + 1
        await here.follow(registered(OTHER, 1, OTHER, HERE))
        assert list(here.replicas.offline()) == [KEY] and not list(here.replicas.cut())

    run(test)


@pytest.mark.parametrize("leader", [HERE, OTHER])
def test_a_topic_that_is_created_again_in_the_version_that_deletes_it_has_a_directory_of_its_own(
    tmp_path: Path, leader: int
) -> None:
    """A broker that comes late follows both changes in one version."""
    again = UUID(int=8)

    async def test() -> None:
        here = Here(tmp_path)
        elsewhere = here.lead_elsewhere(1)
        await here.follow(registered(leader, 1))
        if leader == HERE:
            append(here.partition().log, simple_batch([b"old"]), epoch=1)
        else:
            await here.until(lambda: here.log_followed().log_end_offset == elsewhere.log_end_offset)
        now = here.topics.image
        image = replace(now, version=now.version + 2, partitions={again: (registered(HERE, 1, HERE),)})
        here.topic_id = again
        await here.replicas.follow(image)
        await here.replicas.wait()
        partition = here.topics.topic_by_id(again).replicas[0]
        append(partition.log, simple_batch([b"new"]), epoch=1)
        assert partition.log.log_end_offset == 1
        assert read_topic_id(tmp_path / "here" / "t-0") == again
        assert {path.name for path in (tmp_path / "here").iterdir()} == {"t-0", retired_name("t", 0, T)}
        assert read_topic_id(tmp_path / "here" / retired_name("t", 0, T)) == T

    run(test)


def test_a_topic_that_is_created_again_waits_until_the_directories_of_the_one_before_are_away(tmp_path: Path) -> None:
    again = UUID(int=8)

    async def test() -> None:
        released, held = asyncio.Event(), [False]

        async def run_blocking(work: Callable[[], Any]) -> Any:
            """Hold the first work, of those that are to be held."""
            is_held, held[0] = held[0], False
            if is_held:
                await released.wait()
            return work()

        here = Here(tmp_path, run_blocking)
        await here.follow(registered(HERE, 1, HERE))
        held[0] = True
        await here.follow()
        now = here.topics.image
        image = replace(now, version=now.version + 1, partitions={again: (registered(HERE, 1, HERE),)})
        here.topic_id = again
        following = asyncio.ensure_future(here.replicas.follow(image, here.load_topics()))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not following.done() and not held[0]
        released.set()
        await following
        await here.replicas.wait()
        assert read_topic_id(tmp_path / "here" / "t-0") == again
        assert read_topic_id(tmp_path / "here" / retired_name("t", 0, T)) == T

    run(test)


def test_a_replica_whose_segment_is_damaged_under_it_keeps_no_other_from_being_led(tmp_path: Path) -> None:
    async def test() -> None:
        here = Here(tmp_path)
        both = registered(HERE, 1)
        await here.follow(both, both)
        for number in range(2):
            append(here.topic.replicas[number].log, simple_batch([b"a"]), epoch=1)
        segment = tmp_path / "here" / "t-0" / file_name(0)
        segment.write_bytes(bytes(segment.stat().st_size))
        both = registered(HERE, 2)
        await here.follow(both, both)
        led = here.topic.replicas
        assert [each.is_offline for each in led.values()] == [True, False] and led[1].leader_epoch == 2
        assert list(here.replicas.offline()) == [KEY]

    run(test)


class FailingState(FaultyFiles):
    """Files of which the one at `path` takes a few more writes, once their number is set."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.writes_left: int | None = None
        self._path = str(path)
        self._descriptors: set[int] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        descriptor = super().open(path, write=write, create=create)
        (self._descriptors.add if path == self._path else self._descriptors.discard)(descriptor)
        return descriptor

    def write(self, descriptor: int, data: Any, position: int) -> int:
        if self.writes_left is not None and descriptor in self._descriptors:
            if not self.writes_left:
                raise OSError(errno.EIO, "this file cannot be written on purpose")
            self.writes_left -= 1
        return super().write(descriptor, data, position)


def test_a_replica_whose_disk_fails_as_it_begins_to_lead_keeps_no_other_from_being_led(tmp_path: Path) -> None:
    async def test() -> None:
        files = FailingState(tmp_path / "here" / "t-0" / STATE_FILE)
        here = Here(tmp_path, files=files)
        both = registered(HERE, 1, HERE)
        await here.follow(both, both)
        for number in range(2):
            here.topic.replicas[number].log.append([simple_batch([b"a"])], 1)
        files.writes_left = 1  # that of the epoch
        both = registered(HERE, 2, HERE)
        await here.follow(both, both)
        led = here.topic.replicas
        assert [each.is_offline for each in led.values()] == [True, False]
        assert led[1].leader_epoch == 2 and led[1].log.high_watermark == 1
        assert list(here.replicas.offline()) == [KEY]

    run(test)


class HeldSync(FaultyFiles):
    """Files of which one sync, once `holds` is set, waits for `released` and fails."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.held, self.released = threading.Event(), threading.Event()

    def sync(self, descriptor: int) -> None:
        if self.holds:
            self.holds = False
            self.held.set()
            assert self.released.wait(10)
            raise OSError(errno.EIO, "fsync fails on purpose")
        super().sync(descriptor)


@pytest.mark.parametrize("of_queue", [True, False])
def test_a_flush_of_a_leader_discards_nothing_that_it_has_copied_since_it_resigned(
    tmp_path: Path, of_queue: bool
) -> None:
    """The next leader counts this replica for what it has copied."""

    async def test() -> None:
        files = HeldSync()
        here = Here(tmp_path, files=files)
        await here.follow(registered(HERE, 1))
        first = here.partition()
        first.log.append([simple_batch([b"0"])], 1)
        first.log.flush()
        first.log.append([simple_batch([b"1"])], 1)
        files.holds = True
        flush = first.sync(here._run_blocking) if of_queue else first.change_log(here._run_blocking, first.log.flush)
        flushing = asyncio.ensure_future(flush)
        await here.until(files.held.is_set)
        other = here.lead_elsewhere(2, records=0)
        for number in range(3):
            other.append([simple_batch([b"new %d" % number])], 2)
        following = asyncio.ensure_future(here.follow(registered(OTHER, 2)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert here.replicas.fetchers.find(KEY) is None and not following.done()
        files.released.set()
        with pytest.raises(KafkaStorageError):
            await flushing
        await following
        await here.until(lambda: data_of(here.log_followed()) == data_of(other))
        assert not list(here.replicas.offline()) and here.moved == [(0, True), (0, False)]

    run(test)
