"""The contract of every `ControlStore`: of two commits of a version one succeeds, and what is loaded is what was committed."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from kafkalake.cluster.control_store import MemoryControlStore
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import KafkaStorageError, StaleImageError

EMPTY = ClusterImage("")


def following(image: ClusterImage, **changes: object) -> ClusterImage:
    return replace(image, version=image.version + 1, **changes)  # type: ignore[arg-type]


def test_a_new_store_is_empty() -> None:
    store = MemoryControlStore()
    assert store.load() == EMPTY
    assert store.load_newer(0) is None


def test_a_commit_is_loaded() -> None:
    store = MemoryControlStore()
    first = following(EMPTY, controller_id=3, controller_epoch=1)
    store.commit(first)
    assert store.load() == store.load_newer(0) == first
    assert store.load_newer(1) is None
    assert store.images == (EMPTY, first)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_only_the_next_version_is_committed(version: int) -> None:
    store = MemoryControlStore()
    first = following(EMPTY)
    store.commit(first)
    with pytest.raises(StaleImageError, match=f"version {version} .* cannot follow version 1"):
        store.commit(replace(EMPTY, version=version))
    assert store.load() == first


def test_of_writers_at_once_one_makes_each_version() -> None:
    store = MemoryControlStore()
    won: list[int] = []

    def write(broker_id: int) -> None:
        while (image := store.load()).version < 50:
            try:
                store.commit(following(image, controller_id=broker_id))
                won.append(image.version + 1)
            except StaleImageError:
                continue

    writers = [threading.Thread(target=write, args=(broker_id,)) for broker_id in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(won) == list(range(1, 51))


def test_a_refused_commit_is_not_written() -> None:
    def refuse() -> None:
        raise KafkaStorageError("the disk is full")

    store = MemoryControlStore(before_commit=refuse)
    with pytest.raises(KafkaStorageError, match="full"):
        store.commit(following(EMPTY))
    assert store.load() == EMPTY


def test_after_an_unknown_outcome_the_same_commit_succeeds_and_another_is_refused() -> None:
    def fail_once() -> None:
        if failures:
            raise failures.pop()

    failures = [KafkaStorageError("no answer")]
    store = MemoryControlStore(after_commit=fail_once)
    written = following(EMPTY, controller_epoch=1)
    with pytest.raises(KafkaStorageError, match="no answer"):
        store.commit(written)
    with pytest.raises(StaleImageError):
        store.commit(following(EMPTY, controller_epoch=1))
    store.commit(written)
    assert store.load() is written
