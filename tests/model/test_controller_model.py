"""The check of all states finds nothing wrong in the election of a controller, and each fault that is put in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from controller_model import Election, explore_elections
from memory_control_store import MemoryControlStore

from kafkalake.cluster.image import ClusterImage


class StoreWithoutComparison(MemoryControlStore):
    """Writes each commit after the newest, whatever it was decided on."""

    def commit(self, image: ClusterImage) -> None:
        if not any(each is image for each in self._images):
            self._images.append(image)


class StoreThatComparesContents(MemoryControlStore):
    """Finds a commit by what it says instead of by who made it."""

    def commit(self, image: ClusterImage) -> None:
        if image not in self._images:
            super().commit(image)


def claim_in_the_same_epoch(image: ClusterImage, broker_id: int) -> ClusterImage:
    return replace(image, version=image.version + 1, controller_id=broker_id)


@pytest.mark.exhaustive
def test_no_two_controllers_of_an_epoch_no_commit_of_a_deposed_one_and_no_confused_incarnations() -> None:
    explored = explore_elections(Election(4), 100_000)
    assert explored.violation == ()
    assert explored.states > 50_000, "the model has lost most of its steps"


@pytest.mark.parametrize(
    ("store", "violation"),
    [
        (StoreWithoutComparison, "a version was replaced, or left out"),
        (StoreThatComparesContents, "a process takes the commit of another for its own"),
    ],
)
def test_a_wrong_store_is_found(store: Callable[..., MemoryControlStore], violation: str) -> None:
    explored = explore_elections(Election(3, make_store=store), 10_000)
    assert explored.violation[-1] == violation
    assert len(explored.violation) <= 4, "the shortest way to it"


def test_a_claim_that_begins_no_epoch_is_found() -> None:
    explored = explore_elections(Election(3, claimed=claim_in_the_same_epoch), 10_000)
    assert explored.violation[-1] == "two processes have committed as the controller of one epoch"
