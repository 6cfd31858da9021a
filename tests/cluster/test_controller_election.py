"""Who claims to be the controller: whom most others miss it with, not whose own network is broken. Elections come to an end."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest
from cluster_images import cluster

from kafkalake.cluster.controller_election import Vote, claim, electors, is_controller, may_claim, pause_ms, vote
from kafkalake.cluster.image import NO_CONTROLLER, ClusterImage

M, R, G = Vote.MISSES, Vote.REACHES, Vote.GONE


def led_by(controller_id: int, unfenced: str = "012", fenced: str = "") -> ClusterImage:
    return replace(cluster(unfenced=unfenced, fenced=fenced), controller_id=controller_id, controller_epoch=5)


def claims(
    image: ClusterImage, votes: dict[int, Vote], *, is_gone: bool = False, silent_ms: int = 8_999, candidate: int = 1
) -> bool:
    return may_claim(image, candidate, votes, controller_is_gone=is_gone, silent_ms=silent_ms, patience_ms=9_000)


def test_a_claim_is_the_next_version_and_epoch() -> None:
    image = led_by(0)
    claimed = claim(image, 2)
    assert claimed == replace(image, version=image.version + 1, controller_id=2, controller_epoch=6)
    assert is_controller(image, 0, 5) and is_controller(claimed, 2, 6)
    assert not is_controller(claimed, 0, 5), "it was deposed"
    assert not is_controller(claim(claimed, 2), 2, 6), "deposed by another process of the same broker"
    assert is_controller(replace(image, version=image.version + 1), 0, 5), "a version that says nothing new"


@pytest.mark.parametrize(
    ("unfenced", "fenced", "votes", "expected"),
    [
        ("012", "", {2: M}, True),
        ("012", "", {2: R}, False),
        ("012", "", {}, False),
        ("012", "", {2: G}, False),
        ("01", "2", {}, False),
        ("01", "2", {2: M}, True),
        ("01", "2", {2: R}, False),
        ("01", "", {}, False),
        ("01234", "", {2: M, 3: M}, True),
        ("01234", "", {2: M, 3: R, 4: R}, False),
        ("01234", "", {2: M, 3: R}, False),
        ("01234", "", {2: M, 3: M, 4: R}, True),
        ("01234", "", {2: M}, False),
        ("01234", "", {2: M, 3: G, 4: G}, True),
        ("012", "34", {2: M}, True),
        ("012", "34", {2: M, 3: R}, False),
        ("0123", "", {2: M, 3: R}, False),
    ],
)
def test_a_majority_of_the_others_misses_the_controller(
    unfenced: str, fenced: str, votes: dict[int, Vote], expected: bool
) -> None:
    assert claims(led_by(0, unfenced, fenced), votes) is expected


@pytest.mark.parametrize("votes", [{}, {2: G}])
def test_without_a_majority_a_controller_is_replaced_that_has_ended_or_shows_no_life(votes: dict[int, Vote]) -> None:
    image = led_by(0)
    assert claims(image, votes, is_gone=True) and claims(image, votes, silent_ms=9_000)
    assert not claims(image, {2: R}, is_gone=True) and not claims(image, {2: R}, silent_ms=9_000)


@pytest.mark.parametrize("image", [led_by(1), led_by(NO_CONTROLLER), led_by(3), led_by(1, "1"), ClusterImage("")])
def test_nobody_is_asked_for_the_place_of_an_earlier_process_or_of_no_broker(image: ClusterImage) -> None:
    assert claims(image, {}, silent_ms=0)


def test_all_others_are_asked_and_a_lone_broker_does_not_wait() -> None:
    image = led_by(0, "012", "3")
    assert electors(image, 1) == (2, 3)
    assert 0 < pause_ms(image, 1, 1_000, Random(1).uniform) < 1_000
    assert electors(led_by(1, "1"), 1) == electors(ClusterImage(""), 1) == ()
    assert pause_ms(led_by(1, "1"), 1, 1_000, Random(1).uniform) == 0


@pytest.mark.parametrize(
    ("epoch", "reaches", "expected"), [(5, True, R), (5, False, M), (4, False, R), (4, True, R), (6, True, None)]
)
def test_a_vote_is_about_the_controller_of_an_epoch(epoch: int, reaches: bool, expected: Vote | None) -> None:
    assert vote(led_by(0), epoch, reaches=reaches) is expected


LINKS = list(combinations(range(4), 2))


def settle(image: ClusterImage, links: set[tuple[int, int]]) -> tuple[ClusterImage, int]:
    """Return where elections end while just these pairs of brokers reach each other, all live and see the lake, and how many.

    The controller fences whom it does not reach, and unfences the others.
    """
    elections = 0
    for _ in range(8):
        before = image
        leader = image.controller_id

        def reaches(a: int, b: int) -> bool:
            return a == b or (min(a, b), max(a, b)) in links

        brokers = {each: replace(of, is_fenced=not reaches(leader, each)) for each, of in image.brokers.items()}
        image = replace(image, brokers=brokers)
        for candidate in image.brokers:
            if reaches(candidate, leader) or image.controller_id != leader:
                continue
            answering = [each for each in electors(image, candidate) if reaches(candidate, each)]
            votes = {
                each: found
                for each in answering
                if (found := vote(image, image.controller_epoch, reaches=reaches(each, leader))) is not None
            }
            if claims(image, votes, candidate=candidate, silent_ms=0):
                image = claim(image, candidate)
                elections += 1
        if image == before:
            return image, elections
    raise AssertionError(f"elections without end: {links}")


@pytest.mark.parametrize("number", [2, 3, 4])
def test_elections_come_to_an_end_whatever_the_network(number: int) -> None:
    pairs = [pair for pair in LINKS if max(pair) < number]
    names = "0123"[:number]
    for present in product((False, True), repeat=len(pairs)):
        links = {pair for pair, is_there in zip(pairs, present, strict=True) if is_there}
        for controller in range(number):
            settled, elections = settle(led_by(controller, names), links)
            assert elections <= 2
            if elections == 0:
                assert settled.controller_id == controller
