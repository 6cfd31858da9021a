"""Reading partitions with several replicas: from which directory, up to which offset, before, during and after a failover."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import record_batch
from replicated_lake import ReplicatedLake, replicated_clicks

from kafkalake.cluster.image import NO_LEADER, ClusterImage, PartitionRegistration
from kafkalake.dataset import topic_reader
from kafkalake.errors import LakeError
from kafkalake.reader import live_partitions, snapshot
from kafkalake.reader.live_partitions import LivePartition, LivePartitions
from kafkalake.reader.watermarks import has_begun, is_settled, watermark_limit, with_known_watermarks
from kafkalake.spark.planner.tables import load_table
from kafkalake.storage.log import Log
from kafkalake.storage.state import STATE_BYTES, STATE_FILE, PartitionState

pytestmark = pytest.mark.exhaustive  # commits to Delta tables


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ReplicatedLake]:
    with replicated_clicks(tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_partitions, "_PATIENCE_S", 0.03)


def values(lake: ReplicatedLake) -> list[bytes]:
    """The records that a dataset reads."""
    found: list[bytes] = topic_reader(lake.path, "clicks", columns=["value"]).read_all()["value"].to_pylist()
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def live(lake: ReplicatedLake) -> LivePartition:
    store = lake.store
    return LivePartitions(lake.path, store.load_partitions(), store.newest_image).of(lake.topics["clicks"], 0)


def test_a_table_says_how_many_replicas_its_topic_has(lake: ReplicatedLake) -> None:
    properties = load_table({"lake": str(lake.path), "topic": "clicks"})["properties"]
    assert (properties["partitions"], properties["replication"]) == ("1", "3")
    lake.create("new")
    assert "replication" not in load_table({"lake": str(lake.path), "topic": "new"})["properties"]


def append(log: Log, *found: bytes, leader_epoch: int) -> None:
    log.append([record_batch([(1_000, None, value, []) for value in found])], leader_epoch)
    log.advance_high_watermark(log.log_end_offset)


def test_records_of_the_leader_in_the_table_cluster_are_read(lake: ReplicatedLake) -> None:
    log = lake.open_replica(1, "clicks")
    log.take_over(lake.elect("clicks", 1))
    append(log, b"30", b"31", leader_epoch=1)
    assert live(lake).broker_id == 1
    assert values(lake) == numbers(32)
    log.close()


def test_the_state_of_an_earlier_leader_is_not_the_truth(lake: ReplicatedLake) -> None:
    """Broker 0 led alone and wrote on; then an unclean election made broker 1 the leader, which never had those records."""
    lake.append_values("clicks", 0, [b"lost", b"lost too"])
    log = lake.open_replica(1, "clicks")
    log.take_over(lake.elect("clicks", 1))
    assert values(lake) == numbers(30)
    append(log, b"30", leader_epoch=1)
    assert values(lake) == numbers(31)
    log.close()


def test_sealed_segments_are_read_from_any_replica_that_has_them(lake: ReplicatedLake) -> None:
    (lake.directory("clicks") / f"{0:020d}.arrow").unlink()
    assert values(lake) == numbers(30)
    (lake.directory_of(1, "clicks") / f"{0:020d}.arrow").unlink()
    assert values(lake) == numbers(30)
    (lake.directory_of(2, "clicks") / f"{0:020d}.arrow").unlink()
    with pytest.raises(LakeError, match=r"logs/0/clicks-0/0{20}[.]arrow cannot be read"):
        values(lake)


def test_a_segment_that_delta_has_and_the_leader_has_not_sealed_yet_is_read_up_to_its_end(lake: ReplicatedLake) -> None:
    segments, state = lake.described("clicks", 0)
    lake.roll("clicks")
    sealed, _ = lake.described("clicks", 0)
    lake.publish_rows([row for row in sealed if row not in segments], [state])
    lake.elect("clicks", 1)
    lake.change_state(1, "clicks", leader_epoch=1)
    path = lake.directory_of(1, "clicks") / f"{20:020d}.arrow"
    path.write_bytes(path.read_bytes() + b"the beginning of a message")
    assert values(lake) == numbers(30)


def test_a_replica_that_is_removed_between_two_looks_at_its_files_is_read_elsewhere(
    lake: ReplicatedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.roll("clicks")  # its last segment is sealed, and Delta does not have it yet
    here, list_files = lake.directory("clicks"), snapshot.file_names
    removed = here.with_name("clicks-0.removed-delete")

    def list_and_remove(directory: Path) -> list[str]:
        found = list_files(directory)
        if directory == here:
            lake.elect("clicks", 1)
            lake.change_state(1, "clicks", leader_epoch=1)
            here.rename(removed)
        return found

    monkeypatch.setattr(snapshot, "file_names", list_and_remove)
    assert values(lake) == numbers(30)
    removed.rename(here)  # where the lake closes its log


@pytest.mark.parametrize("unpublished", [[0], [1], [0, 1]])
def test_sealed_segments_that_delta_does_not_have_are_found_wherever_they_lie(
    lake: ReplicatedLake, unpublished: list[int]
) -> None:
    rows = lake.store.load_segments()
    lake.store.remove_segments([rows[number].key for number in unpublished])
    assert values(lake) == numbers(30)


def test_without_the_leaders_directory_the_largest_known_watermark_counts(
    lake: ReplicatedLake, _impatient: None
) -> None:
    lake.change_state(1, "clicks", high_watermark=25, last_stable_offset=25)
    lake.change_state(2, "clicks", high_watermark=20, last_stable_offset=20)
    lake.close()
    shutil.rmtree(lake.directory("clicks"))
    assert live(lake).broker_id == 1
    assert values(lake) == numbers(30)  # published
    for broker_id in (1, 2):
        shutil.rmtree(lake.directory_of(broker_id, "clicks"))
    with pytest.raises(LakeError, match=r"logs/0/clicks-0 cannot be seen on host .*, and holds clicks-0"):
        values(lake)


@pytest.mark.parametrize("leader", [0, NO_LEADER])
def test_a_replica_whose_state_cannot_be_read_is_as_one_that_is_not_there(
    lake: ReplicatedLake, leader: int, _impatient: None
) -> None:
    lake.elect("clicks", leader)
    lake.close()
    states = [lake.directory_of(broker_id, "clicks") / STATE_FILE for broker_id in range(3)]
    states[0].write_bytes(bytes(STATE_BYTES))
    assert values(lake) == numbers(30)
    for state in states:
        state.write_bytes(bytes(STATE_BYTES))
    with pytest.raises(LakeError, match=r"logs/0/clicks-0/state: neither slot has the right checksum"):
        values(lake)


def test_a_partition_without_a_leader_is_read_from_the_replica_that_knows_most(lake: ReplicatedLake) -> None:
    lake.append_values("clicks", 0, [b"30"])
    lake.elect("clicks", NO_LEADER, elr=(0,))
    assert live(lake).broker_id == 0
    assert values(lake) == numbers(31)


def test_what_the_last_leader_acknowledged_is_read_while_the_next_one_has_not_begun(
    lake: ReplicatedLake, _impatient: None
) -> None:
    log = lake.open_replica(1, "clicks")
    append(log, b"30", b"31", b"not acknowledged", leader_epoch=0)
    lake.append_values("clicks", 0, [b"30", b"31"])
    lake.elect("clicks", 1)
    lake.change_state(1, "clicks", high_watermark=28, last_stable_offset=28)
    assert values(lake) == numbers(32)
    log.close()


def test_a_leader_whose_state_knows_nothing_of_its_last_records_is_waited_for(lake: ReplicatedLake) -> None:
    """A follower appends records, and its `state` does not say so until its watermark moves."""
    log = lake.open_replica(1, "clicks")
    log.append([record_batch([(1_000, None, b"30", []), (1_000, None, b"31", [])])], 0)
    lake.append_values("clicks", 0, [b"30", b"31"])
    epoch = lake.elect("clicks", 1)
    began = threading.Timer(0.05, lambda: log.take_over(epoch))
    began.start()
    assert live(lake).broker_id == 1
    assert values(lake) == numbers(32)
    began.join()
    log.close()


def test_a_leader_that_does_not_begin_is_not_waited_for_longer(lake: ReplicatedLake, _impatient: None) -> None:
    log = lake.open_replica(1, "clicks")
    log.append([record_batch([(1_000, None, b"30", []), (1_000, None, b"31", [])])], 0)
    lake.append_values("clicks", 0, [b"30", b"31"])
    lake.elect("clicks", 1)
    assert live(lake).broker_id == 0
    assert values(lake) == numbers(32)
    lake.close()
    shutil.rmtree(lake.directory("clicks"))
    assert live(lake).broker_id == 1
    assert values(lake) == numbers(30), "published"
    log.close()


def test_a_watermark_that_may_lag_is_waited_for(lake: ReplicatedLake) -> None:
    epoch = lake.elect("clicks", 1)
    lagging = {"leader_epoch": epoch, "high_watermark": 25, "last_stable_offset": 25, "takeover_offset": 30}
    lake.change_state(1, "clicks", **lagging)
    lake.close()
    for broker_id in (0, 2):
        shutil.rmtree(lake.directory_of(broker_id, "clicks"))
    caught_up = {"high_watermark": 30, "last_stable_offset": 30, "takeover_offset": 0}
    timer = threading.Timer(0.05, lambda: lake.change_state(1, "clicks", **caught_up))
    timer.start()
    assert values(lake) == numbers(30)
    timer.join()


def test_a_watermark_that_goes_on_lagging_is_not_waited_for_longer(lake: ReplicatedLake, _impatient: None) -> None:
    """The published watermark counts, and no record that only the new leader has."""
    log = lake.open_replica(1, "clicks")
    append(log, b"30", b"31", leader_epoch=0)
    epoch = lake.elect("clicks", 1)
    lagging = {"leader_epoch": epoch, "high_watermark": 25, "last_stable_offset": 25, "takeover_offset": 32}
    lake.change_state(1, "clicks", **lagging)
    lake.close()
    shutil.rmtree(lake.directory("clicks"))
    assert values(lake) == numbers(30)
    log.close()


def test_a_read_that_began_before_an_election_looks_again(lake: ReplicatedLake) -> None:
    before = lake.store.newest_image()
    epoch = lake.elect("clicks", 1)
    lake.change_state(1, "clicks", leader_epoch=epoch)
    images = iter([before])

    def newest() -> ClusterImage:
        return next(images, lake.store.newest_image())

    found = LivePartitions(lake.path, lake.store.load_partitions(), newest).of(lake.topics["clicks"], 0)
    assert found.broker_id == 1


def test_leaders_that_never_settle_end_a_read_in_time(lake: ReplicatedLake, _impatient: None) -> None:
    image = lake.store.newest_image()
    topic_id, (registered,) = next(iter(image.partitions.items()))
    epochs = iter(range(1, 10**9))

    def newest() -> ClusterImage:
        changed = PartitionRegistration(0, next(epochs), registered.replicas, registered.isr)
        return ClusterImage("", partitions={topic_id: (changed,)})

    found = LivePartitions(lake.path, lake.store.load_partitions(), newest).of(lake.topics["clicks"], 0)
    assert found.state.high_watermark == 30


OFFSETS = st.integers(0, 9)


@given(st.lists(st.tuples(OFFSETS, OFFSETS), min_size=1), OFFSETS, OFFSETS, st.integers(0, 2), st.integers(0, 2))
def test_known_watermarks_never_take_back_or_exceed_the_log(
    known: list[tuple[int, int]], end: int, takeover: int, own_epoch: int, epoch: int
) -> None:
    states = [PartitionState(0, max(pair), min(pair), max(pair)) for pair in known]
    own = states[0]._replace(log_end_offset=max(end, takeover, states[0].high_watermark), leader_epoch=own_epoch)
    own = own._replace(takeover_offset=takeover)
    registration = PartitionRegistration(0, epoch, (0, 1, 2), (0, 1, 2))
    found = with_known_watermarks(own, states[1:], watermark_limit(own, leads=has_begun(own, registration)))
    assert own.high_watermark <= found.high_watermark <= own.log_end_offset
    assert own.last_stable_offset <= found.last_stable_offset <= found.high_watermark
    if is_settled(own, registration):
        assert found.high_watermark == own.high_watermark
