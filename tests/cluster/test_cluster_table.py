"""The table `cluster` on a real disk: processes, losses of power, damage, and what other engines read of it."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from cluster_processes import commit_often
from deltalake import DeltaTable
from forgetful_disk import ForgetfulDisk
from random_images import following, random_change, random_id, random_partition

from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.delta_checkpoint import entry_path
from kafkalake.metadata.paths import CLUSTER, table_path
from kafkalake.metadata.tables.cluster_rows import BUCKETS, changed_parts, with_parts
from kafkalake.metadata.tables.delta_table import OpenDeltaTable

pytestmark = pytest.mark.exhaustive

EMPTY = ClusterImage("")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    """In memory where this machine has /dev/shm: nothing here is about the real disk."""
    shared = Path("/dev/shm")
    root = shared / f"kafkalake-test-{os.getpid()}-{tmp_path.name}" if shared.is_dir() else tmp_path / "work"
    (root / "lake").mkdir(parents=True)
    yield root / "lake"
    shutil.rmtree(root, ignore_errors=True)


def committed(lake: Path, versions: int) -> list[ClusterImage]:
    """Commit so many versions and return them, the empty one first."""
    random, images = Random(3), [EMPTY]
    store = DeltaMetadataStore(lake).control_store
    for _ in range(versions):
        images.append(random_change(random, images[-1]))
        store.commit(images[-1])
    return images


@pytest.mark.parametrize("seed", range(40))
def test_images_are_the_parts_that_differ(seed: int) -> None:
    random = Random(seed)
    image = random_change(random, EMPTY)
    for _ in range(5):
        after = random_change(random, image)
        assert with_parts(image, after.version, changed_parts(image, after)) == after
        assert changed_parts(after, replace(after, version=9)) == {}
        image = after


def test_a_change_of_a_topic_rewrites_its_bucket_alone() -> None:
    random = Random(1)
    image = following(EMPTY, partitions={random_id(random): (random_partition(random),) for _ in range(3 * BUCKETS)})
    changed = next(iter(image.partitions))
    after = following(image, partitions={**image.partitions, changed: (random_partition(random),)})
    assert list(changed_parts(image, after)) == [("partition", changed.int % BUCKETS)]


@pytest.mark.process
def test_of_processes_at_once_one_makes_each_version(lake: Path) -> None:
    DeltaMetadataStore(lake)
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(2)]
    writers = [
        spawn.Process(target=commit_often, args=(lake, broker_id, 25, theirs))
        for broker_id, (_, theirs) in enumerate(pipes)
    ]
    for writer in writers:
        writer.start()
    for ours, _ in pipes:
        assert ours.recv() == "ready"
    for ours, _ in pipes:
        ours.send("go")
    made = [ours.recv() for ours, _ in pipes]
    for writer in writers:
        writer.join()
    last = DeltaMetadataStore(lake).control_store.load()
    assert sorted([*made[0], *made[1]]) == list(range(1, last.version + 1))
    assert last.controller_epoch == last.version >= 25


def test_nothing_is_parsed_or_listed_when_nothing_has_changed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = committed(lake, 3)
    store = DeltaMetadataStore(lake).control_store
    first = store.load()
    monkeypatch.setattr(OpenDeltaTable, "refresh", lambda self: pytest.fail("the log was listed"))
    assert store.load_newer(images[-1].version) is None
    assert store.load_newer(0) is first


def test_a_reader_whose_next_entries_have_expired_still_catches_up(lake: Path) -> None:
    store = DeltaMetadataStore(lake).control_store
    store.commit(following(EMPTY))
    other = DeltaMetadataStore(lake)
    for epoch in range(4):
        store.commit(following(store.load(), controller_epoch=epoch))
    other.maintain_table(CLUSTER)
    for version in range(4):
        entry_path(table_path(lake, CLUSTER), version).unlink()
    assert store.load_newer(4) == other.control_store.load() == store.load()


def test_a_lake_that_is_only_read_may_have_no_such_table(lake: Path) -> None:
    DeltaMetadataStore(lake)
    shutil.rmtree(table_path(lake, CLUSTER))
    store = DeltaMetadataStore(lake, create=False).control_store
    assert store.load() == EMPTY
    with pytest.raises(KafkaStorageError, match="opened to be read"):
        store.commit(following(EMPTY))
    assert DeltaMetadataStore(lake).control_store.load() == EMPTY


@pytest.mark.parametrize("left", [0, 40, -1])
def test_a_torn_last_commit_is_set_aside(lake: Path, left: int) -> None:
    images = committed(lake, 3)
    entry = entry_path(table_path(lake, CLUSTER), 3)
    entry.write_bytes(entry.read_bytes()[:left])
    store = DeltaMetadataStore(lake).control_store
    assert store.load() == images[2]
    store.commit(images[3])
    assert DeltaMetadataStore(lake).control_store.load() == images[3]


def test_a_commit_with_a_torn_file_is_set_aside(lake: Path) -> None:
    images = committed(lake, 3)
    store = DeltaMetadataStore(lake)
    before = set(table_path(lake, CLUSTER).rglob("*.parquet"))
    store.control_store.commit(following(images[3], next_producer_id=1))
    (file,) = set(table_path(lake, CLUSTER).rglob("*.parquet")) - before
    file.write_bytes(file.read_bytes()[:100])
    assert DeltaMetadataStore(lake).control_store.load() == images[3]


def test_a_table_that_has_lost_its_log_is_not_begun_anew(lake: Path) -> None:
    committed(lake, 1)
    shutil.rmtree(table_path(lake, CLUSTER) / "_delta_log")
    with pytest.raises(LakeError, match=r"files but no log\. Restore"):
        DeltaMetadataStore(lake)


def test_a_file_that_cannot_be_read_is_reported(lake: Path) -> None:
    committed(lake, 2)
    store = DeltaMetadataStore(lake).control_store
    for file in table_path(lake, CLUSTER).glob("kind=controller/*.parquet"):
        file.unlink()
    with pytest.raises(KafkaStorageError, match="cannot read"):
        store.load()


@pytest.mark.parametrize("seed", range(6))
def test_an_image_that_was_loaded_outlives_a_loss_of_power(lake: Path, seed: int) -> None:
    disk = ForgetfulDisk(lake, lake.parent / "aside")
    writer, reader = (DeltaMetadataStore(lake, disk=disk).control_store for _ in range(2))
    written = random_change(Random(seed), EMPTY)
    with pytest.MonkeyPatch.context() as patched:  # the writer is killed before it forces anything
        patched.setattr(disk, "force", lambda file: None)
        patched.setattr(disk, "force_directory", lambda directory: None)
        writer.commit(written)
    assert reader.load_newer(0) == written
    disk.lose_power(Random(seed))
    assert DeltaMetadataStore(lake, disk=disk).control_store.load() == written


def test_a_failed_fsync_is_repeated_before_the_commit_returns(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, image = DeltaMetadataStore(lake).control_store, following(EMPTY, controller_id=1)
    force = OpenDeltaTable.force
    failures = [KafkaStorageError("cannot force"), KafkaStorageError("cannot force")]

    def fail_after_commit(table: OpenDeltaTable) -> None:
        if table.version == 1 and failures:
            raise failures.pop()
        force(table)

    monkeypatch.setattr(OpenDeltaTable, "force", fail_after_commit)
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="cannot force"):
            store.commit(image)
    store.commit(image)
    assert store.load() == image


def test_an_outcome_is_found_although_the_log_could_not_be_read(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, image = DeltaMetadataStore(lake).control_store, following(EMPTY, controller_id=1)
    write, refresh = OpenDeltaTable._commit_files, OpenDeltaTable.refresh
    failing: list[bool] = []

    def write_and_fail(*args: object) -> None:
        write(*args)  # type: ignore[arg-type]
        failing.append(True)
        raise OSError("no answer")

    def refresh_unless_failing(table: OpenDeltaTable) -> None:
        if failing:
            raise KafkaStorageError("cannot read the log")
        refresh(table)

    monkeypatch.setattr(OpenDeltaTable, "_commit_files", write_and_fail)
    monkeypatch.setattr(OpenDeltaTable, "refresh", refresh_unless_failing)
    with pytest.raises(KafkaStorageError, match="cannot read the log"):
        store.commit(image)
    failing.clear()
    store.commit(image)
    assert DeltaMetadataStore(lake).control_store.load() == image


def test_other_engines_read_the_table(lake: Path) -> None:
    image = committed(lake, 6)[-1]
    table = DeltaTable(table_path(lake, CLUSTER))
    rows = table.to_pyarrow_table().to_pylist()
    assert table.version() == image.version
    led = {(row["topic_id"], row["partition"]): row["leader"] for row in rows if row["kind"] == "partition"}
    assert led == {
        (str(topic_id), number): partition.leader
        for topic_id, partitions in image.partitions.items()
        for number, partition in enumerate(partitions)
    }
    assert {row["broker_id"] for row in rows if row["kind"] == "broker"} == image.brokers.keys()
    assert {row["controller_epoch"] for row in rows} == {None, image.controller_epoch}


def test_old_versions_are_removed_as_those_of_other_tables(lake: Path) -> None:
    image = committed(lake, 4)[-1]
    store = DeltaMetadataStore(lake)
    table = DeltaTable(table_path(lake, CLUSTER))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    store.maintain_table(CLUSTER)
    left = {file.name for file in table_path(lake, CLUSTER).glob("kind=*/*.parquet")}
    assert left == {Path(path).name for path in DeltaTable(table_path(lake, CLUSTER)).file_uris()}
    found = store.control_store.load()
    assert replace(found, version=image.version) == image
