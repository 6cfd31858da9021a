"""The contract of every `ControlStore`, in memory and on Delta: of two commits of a version one succeeds, whatever fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from memory_control_store import MemoryControlStore
from random_images import following, random_change

from kafkalake.cluster.control_store import ControlStore
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import KafkaStorageError, StaleImageError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.delta_table import OpenDeltaTable

pytestmark = pytest.mark.exhaustive

EMPTY = ClusterImage("")
NOTHING: Callable[[], None] = lambda: None  # noqa: E731


class StoreOfTest:
    """Stores of several brokers on one medium. `before` and `after` are called around each write of a commit."""

    def __init__(self, lake: Path | None) -> None:
        self.lake = lake
        self.before = self.after = NOTHING
        self._memory = MemoryControlStore(before_commit=lambda: self.before(), after_commit=lambda: self.after())

    def store(self) -> ControlStore:
        """Return the store of one more broker, or of one that was started again."""
        return self._memory if self.lake is None else DeltaMetadataStore(self.lake).control_store

    def fail_once(self, *, written: bool) -> None:
        """Have the next write fail, before it happens or after."""

        def fail() -> None:
            self.before = self.after = NOTHING
            raise KafkaStorageError("no answer") if self.lake is None else OSError("no answer")

        if written:
            self.after = fail
        else:
            self.before = fail


@pytest.fixture(params=["memory", "delta"])
def tested(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreOfTest]:
    found = StoreOfTest(tmp_path / "lake" if request.param == "delta" else None)
    write = OpenDeltaTable._commit_files

    def commit_files(*args: object) -> None:
        found.before()
        write(*args)  # type: ignore[arg-type]
        found.after()

    monkeypatch.setattr(OpenDeltaTable, "_commit_files", commit_files)
    return found


def settled(store: ControlStore, image: ClusterImage) -> None:
    """Commit an image, and again if the outcome is not known."""
    try:
        store.commit(image)
    except KafkaStorageError:
        store.commit(image)


def test_a_new_store_is_empty(tested: StoreOfTest) -> None:
    store = tested.store()
    assert store.load() == EMPTY
    assert store.load_newer(0) is None


def test_a_commit_is_loaded_by_all(tested: StoreOfTest) -> None:
    store, other = tested.store(), tested.store()
    first = following(EMPTY, controller_id=3, controller_epoch=1)
    store.commit(first)
    assert store.load() == store.load_newer(0) == first
    assert other.load_newer(0) == other.load() == first
    assert other.load_newer(1) is store.load_newer(1) is None
    assert other.load_newer(2) is None  # of a version that was lost, say


def test_whatever_changes_is_loaded_by_who_followed_and_by_who_starts(tested: StoreOfTest) -> None:
    random = Random(7)
    store, other = tested.store(), tested.store()
    image = EMPTY
    for _ in range(8):
        image = random_change(random, image)
        store.commit(image)
        assert store.load() == other.load_newer(image.version - 1) == image
    assert tested.store().load() == image


def test_a_reader_catches_up_over_versions_that_it_never_saw(tested: StoreOfTest) -> None:
    random = Random(8)
    store, other = tested.store(), tested.store()
    image = EMPTY
    for _ in range(3):
        for _ in range(4):
            image = random_change(random, image)
            store.commit(image)
        assert other.load_newer(image.version - 4) == image


@pytest.mark.parametrize("version", [0, 1, 3])
def test_only_the_next_version_is_committed(tested: StoreOfTest, version: int) -> None:
    store = tested.store()
    first = following(EMPTY, controller_id=1)
    store.commit(first)
    with pytest.raises(StaleImageError, match=f"version {version} .* cannot follow version 1"):
        store.commit(replace(EMPTY, version=version, controller_id=2))
    assert store.load() == first


def test_a_commit_decided_before_that_of_another_broker_is_refused(tested: StoreOfTest) -> None:
    store, other = tested.store(), tested.store()
    store.load()
    other.commit(following(EMPTY, controller_id=2))
    with pytest.raises(StaleImageError):
        store.commit(following(EMPTY, controller_id=1))
    assert store.load().controller_id == 2
    store.commit(following(store.load(), controller_id=1))  # the refusal has left nothing behind
    assert other.load().controller_id == 1


def test_of_writers_at_once_one_makes_each_version(tested: StoreOfTest) -> None:
    made: list[int] = []

    def write(store: ControlStore, broker_id: int) -> None:
        while (image := store.load()).version < 12:
            try:
                store.commit(following(image, controller_id=broker_id, controller_epoch=image.controller_epoch + 1))
                made.append(image.version + 1)
            except StaleImageError:
                continue

    writers = [threading.Thread(target=write, args=(tested.store(), broker_id)) for broker_id in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    last = tested.store().load()
    assert sorted(made) == list(range(1, last.version + 1))
    assert last.controller_epoch == last.version >= 12


def test_a_commit_that_was_not_written_is_made_by_a_repetition(tested: StoreOfTest) -> None:
    store, image = tested.store(), following(EMPTY, controller_id=1)
    tested.fail_once(written=False)
    with pytest.raises(KafkaStorageError, match="no answer"):
        store.commit(image)
    assert tested.store().load() == EMPTY
    store.commit(image)
    assert tested.store().load() == image


def test_a_commit_that_was_not_written_may_be_decided_anew(tested: StoreOfTest) -> None:
    store = tested.store()
    tested.fail_once(written=False)
    with pytest.raises(KafkaStorageError):
        store.commit(following(EMPTY, controller_id=1))
    store.commit(following(EMPTY, controller_id=2))
    assert tested.store().load().controller_id == 2


def test_a_commit_that_was_written_though_it_failed_is_found(tested: StoreOfTest) -> None:
    store, image = tested.store(), following(EMPTY, controller_id=1)
    tested.fail_once(written=True)
    settled(store, image)
    assert tested.store().load() == store.load() == image
    with pytest.raises(StaleImageError):
        store.commit(following(EMPTY, controller_id=1))  # equal, but decided by someone else
    store.commit(following(image, controller_id=2))


def test_a_commit_that_was_written_though_it_failed_is_found_under_later_ones(tested: StoreOfTest) -> None:
    store, other, image = tested.store(), tested.store(), following(EMPTY, controller_id=1)

    def overtaken() -> None:
        tested.after = NOTHING
        other.commit(following(image, controller_id=2))
        raise KafkaStorageError("no answer") if tested.lake is None else OSError("no answer")

    tested.after = overtaken
    settled(store, image)
    assert store.load().controller_id == 2


def test_a_commit_that_stalls_is_refused_if_another_came_meanwhile(tested: StoreOfTest) -> None:
    store, other = tested.store(), tested.store()
    reached, goes_on = threading.Event(), threading.Event()

    def stall() -> None:
        tested.before = NOTHING
        reached.set()
        assert goes_on.wait(60)

    tested.before = stall
    outcome: list[StaleImageError | None] = []

    def commit() -> None:
        try:
            store.commit(following(EMPTY, controller_id=1))
            outcome.append(None)
        except StaleImageError as error:
            outcome.append(error)

    stalled = threading.Thread(target=commit)
    stalled.start()
    assert reached.wait(60)
    claimed = following(EMPTY, controller_id=2, controller_epoch=1)
    other.commit(claimed)
    goes_on.set()
    stalled.join()
    assert isinstance(outcome[0], StaleImageError)
    assert tested.store().load() == store.load() == claimed
