"""Brokers register, shut down, are fenced and unregistered: their state, and the leaders elected in the same version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest
from cluster_images import TOPIC, check_next, cluster, incarnation, only, partition, rules, text

from kafkalake.cluster.controller_election import electors
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import NO_LEADER, ClusterImage, ControllerRegistration, PartitionRegistration
from kafkalake.cluster.quorum import observers, voters
from kafkalake.cluster.registration import (
    NO_EPOCH,
    begin_controlled_shutdown,
    expired_brokers,
    fence_broker,
    may_be_replaced,
    register_broker,
    register_controller,
    replace_incarnation,
    report_offline_logs,
    unfence_broker,
    unregister_broker,
    was_clean,
)
from kafkalake.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
)


def two(_: object) -> ElectionRules:
    return rules(2)


def one(_: object) -> ElectionRules:
    return rules(1)


@pytest.mark.parametrize(
    ("silent_ms", "expired"),
    [
        ({1: 9_000, 2: 0}, []),
        ({1: 9_001, 2: 4_500}, [1]),
        ({1: 9_001}, [1]),
        ({1: 9_001, 2: 4_501}, []),
        ({1: 13_501, 2: 13_500}, [1]),
        ({1: 13_501, 2: 13_501}, [1, 2]),
        ({1: 9_001, 2: 9_001, 3: 0, 4: 0}, [1, 2]),
        ({1: 9_001, 2: 9_001, 3: 4_501, 4: 0}, []),
        ({}, []),
    ],
)
def test_a_controller_that_hears_nobody_may_be_cut_off_and_fences_the_others_later(
    silent_ms: dict[int, int], expired: list[int]
) -> None:
    assert expired_brokers(silent_ms, 9_000) == expired


@pytest.mark.parametrize(
    ("silent_ms", "may_be"),
    [
        ({1: 8_999}, False),
        ({1: 9_000}, True),
        ({1: 9_000, 2: 8_999}, False),
        ({1: 9_000, 2: 9_000}, True),
        ({1: 9_000, 2: 9_000, 3: 0}, True),
        ({1: 9_000, 2: 9_000, 3: 0, 4: 0}, False),
        ({}, False),
    ],
)
def test_a_controller_that_hears_no_majority_may_be_replaced(silent_ms: dict[int, int], may_be: bool) -> None:
    assert may_be_replaced(silent_ms, 9_000) == may_be


def test_a_broker_is_registered_fenced_at_the_version_that_registers_it() -> None:
    image = cluster(unfenced="0")
    after = register_broker(image, replace(incarnation(1), is_fenced=False, is_shutting_down=True), one, is_clean=True)
    check_next(image, after)
    broker = after.brokers[1]
    assert (broker.epoch, broker.is_fenced, broker.is_shutting_down) == (101, True, False)


def test_the_same_incarnation_keeps_its_epoch_and_its_state() -> None:
    image = cluster(unfenced="01")
    assert register_broker(image, incarnation(1), one, is_clean=False) is image
    after = register_broker(image, incarnation(1, rack="r"), one, is_clean=False)
    assert after.brokers[1] == replace(image.brokers[1], rack="r")


def test_another_incarnation_is_refused_while_the_first_one_is_active() -> None:
    for fenced, shutting_down in (("1", ""), ("", "1")):
        image = cluster(unfenced="0", fenced=fenced, shutting_down=shutting_down)
        assert register_broker(image, incarnation(1, 1), one, is_clean=True).brokers[1].epoch == 101
    with pytest.raises(DuplicateBrokerRegistrationError):
        register_broker(cluster(unfenced="01"), incarnation(1, 1), one, is_clean=True)


def test_an_incarnation_that_ended_unfenced_is_replaced_at_one_version_whose_epoch_no_later_one_has() -> None:
    image = cluster(unfenced="01")
    after = replace_incarnation(image, incarnation(1, 1), one, previous_epoch=NO_EPOCH, is_cut=False)
    check_next(image, after)
    assert (after.brokers[1].epoch, after.brokers[1].is_fenced) == (after.version, True)
    again = replace_incarnation(after, incarnation(1, 2), one, previous_epoch=NO_EPOCH, is_cut=False)
    assert again.brokers[1].epoch == after.version + 1


@pytest.mark.parametrize(
    ("previous_epoch", "boot_id", "is_cut", "clean"),
    [
        (20, "other", True, True),  # closed in order
        (NO_EPOCH, "same", False, True),  # only the process has died
        (NO_EPOCH, "same", True, False),
        (NO_EPOCH, "other", False, False),
        (NO_EPOCH, "", False, False),
        (19, "other", False, False),  # closed in order, but not by the last incarnation
        (19, "same", False, False),  # which has taken that note away: the directory is one of before
    ],
)
def test_what_a_restarted_broker_may_have_lost(previous_epoch: int, boot_id: str, is_cut: bool, clean: bool) -> None:
    known = replace(incarnation(2, boot_id="same"), epoch=20)
    again = incarnation(2, 1, boot_id=boot_id)
    assert was_clean(known, again, previous_epoch, is_cut=is_cut) == clean
    assert not was_clean(replace(known, boot_id=""), replace(again, boot_id=""), NO_EPOCH, is_cut=False)
    assert was_clean(None, again, previous_epoch, is_cut=is_cut)


@pytest.mark.parametrize(("previous_epoch", "after"), [(20, "2 2/1/- +1+1"), (19, "none 1/-/- +0+1")])
def test_a_broker_with_a_directory_of_before_leaves_what_another_replica_has_to_that(
    previous_epoch: int, after: str
) -> None:
    before = cluster(partition(NO_LEADER, "12", "2", elr="1"), unfenced="0", fenced="12")
    known = replace(before.brokers[2], boot_id="same")
    image = replace(before, brokers={**before.brokers, 2: known})
    here = incarnation(2, 1, boot_id="same")
    joined = replace_incarnation(image, here, two, previous_epoch=previous_epoch, is_cut=False)
    assert text(only(unfence_broker(joined, 2, joined.version, two))) == after


Change = Callable[[ClusterImage], ClusterImage]
FENCE: Change = partial(fence_broker, broker_id=0, broker_epoch=0, rules=two)
SHUT_DOWN: Change = partial(begin_controlled_shutdown, broker_id=0, broker_epoch=0, rules=two)
UNFENCE: Change = partial(unfence_broker, broker_id=0, broker_epoch=0, rules=two)
UNREGISTER: Change = partial(unregister_broker, broker_id=0, rules=two)
RETURN: Change = partial(register_broker, broker=incarnation(0, 1), rules=two, is_clean=True)
RETURN_LOSSY: Change = partial(register_broker, broker=incarnation(0, 1), rules=two, is_clean=False)
OFFLINE: Change = partial(report_offline_logs, broker_id=0, broker_epoch=0, offline=[(TOPIC, 0)], rules=two)
CUT: Change = partial(OFFLINE, cut=[(TOPIC, 0)])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (FENCE, partition(0, "012", "012"), "1 12/-/- +1+1"),
        (FENCE, partition(1, "012", "012"), "1 12/-/- +0+1"),
        (FENCE, partition(0, "012", "02"), "2 2/0/- +1+1"),
        (FENCE, partition(0, "0", "0"), "none 0/-/- +1+1"),  # the last replica stays in the ISR
        (FENCE, partition(0, "012", "0", elr="2"), "2 2/0/- +1+1"),
        (FENCE, partition(0, "034", "0", elr="3"), "none 0/3/- +1+1"),
        (FENCE, partition(2, "012", "2", elr="0"), "2 2/0/- +0+0"),
        (FENCE, partition(1, "12", "12"), "1 12/-/- +0+0"),
        (SHUT_DOWN, partition(0, "012", "012"), "1 12/-/- +1+1"),
        (SHUT_DOWN, partition(1, "012", "012"), "1 12/-/- +0+1"),
        (SHUT_DOWN, partition(0, "012", "0", elr="1"), "1 1/0/- +1+1"),
        (SHUT_DOWN, partition(0, "0", "0"), "0 0/-/- +0+0"),  # it serves to the end
        (SHUT_DOWN, partition(0, "034", "0"), "0 0/-/- +0+0"),
        (UNREGISTER, partition(0, "012", "012"), "1 12/-/- +1+1"),
        (UNREGISTER, partition(1, "012", "1", elr="0"), "1 1/-/- +0+1"),
        (UNREGISTER, partition(0, "034", "0", elr="34"), "none 3/4/- +1+1"),
        (UNREGISTER, partition(0, "0", "0"), "none 0/-/- +1+1"),
        (OFFLINE, partition(0, "012", "012"), "1 12/-/- +1+1"),
        (OFFLINE, partition(0, "0", "0"), "none 0/-/- +1+1"),
        (OFFLINE, partition(0, "0", "0", offline="0"), "0 0/-/- +0+0"),
        (OFFLINE, partition(1, "012", "10"), "1 1/0/- +0+1"),
        (CUT, partition(1, "012", "10"), "1 1/-/- +0+1"),
        (CUT, partition(1, "012", "1", elr="0"), "1 1/-/- +0+1"),
        (CUT, partition(1, "012", "1", elr="0", offline="0"), "1 1/-/- +0+1"),
        (CUT, partition(1, "012", "1", offline="0"), "1 1/-/- +0+0"),
        (CUT, partition(0, "012", "0"), "none 0/-/0 +1+1"),  # it leads again, uncleanly, if nobody has more
        (CUT, partition(-1, "012", "0", last="0", offline="0"), "none 0/-/0 +0+0"),
        (CUT, partition(-1, "034", "0", elr="34", offline="0"), "none 3/4/- +0+1"),
    ],
)
def test_leaders_when_an_active_broker_goes(change: Change, before: PartitionRegistration, after: str) -> None:
    image = cluster(before)
    changed = change(image)
    check_next(image, changed) if not before.offline else None
    assert text(only(changed)) == after
    assert (only(changed) is before) == after.endswith("+0+0")


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (UNFENCE, partition(-1, "0", "0"), "0 0/-/- +1+1"),
        (UNFENCE, partition(1, "012", "12"), "1 12/-/- +0+0"),  # it joins the ISR when it has caught up
        (UNFENCE, partition(-1, "034", "3", elr="0"), "0 0/3/- +1+1"),
        (UNFENCE, partition(-1, "034", "3"), "none 3/-/- +0+0"),
        (UNFENCE, partition(-1, "034", "0", last="0"), "0! 0/-/- +1+1"),
        (UNFENCE, partition(9, "09", "9", elr="0"), "0 0/9/- +1+1"),  # from a leader that shuts down
        (RETURN, partition(-1, "012", "0"), "none 0/-/- +0+0"),
        (RETURN, partition(1, "012", "1", elr="0"), "1 1/0/- +0+0"),
        (RETURN, partition(-1, "0", "0", offline="0"), "none 0/-/- +0+1"),  # whether it has a log is yet to be seen
        (RETURN, partition(0, "0", "0"), "none 0/-/- +1+1"),  # a lake that had no table of brokers
        (RETURN_LOSSY, partition(1, "012", "1", elr="0"), "1 1/-/- +0+1"),
        (RETURN_LOSSY, partition(-1, "034", "0", elr="43"), "none 3/4/- +0+1"),
        (RETURN_LOSSY, partition(-1, "034", "0"), "none 0/-/0 +0+1"),
        (RETURN_LOSSY, partition(-1, "0", "0"), "none 0/-/- +0+0"),  # nobody else has more
    ],
)
def test_leaders_when_a_fenced_broker_returns(change: Change, before: PartitionRegistration, after: str) -> None:
    image = cluster(before, unfenced="12", fenced="0", shutting_down="9")
    changed = change(image)
    assert changed.version == image.version + 1
    assert text(only(changed)) == after


def test_a_new_incarnation_has_yet_to_say_which_logs_it_has() -> None:
    image = cluster(partition(-1, "01", "0", offline="10"), unfenced="1", fenced="0")
    assert only(RETURN(image)).offline == (1,)


def test_an_incarnation_that_follows_one_in_shutdown_takes_its_leaderships() -> None:
    image = cluster(partition(0, "0", "0"), unfenced="1", shutting_down="0")
    assert text(only(RETURN(image))) == "none 0/-/- +1+1"


def test_a_log_that_opens_again_leads_again() -> None:
    image = cluster(partition(-1, "0", "0", offline="0"))
    after = report_offline_logs(image, 0, 0, [], one)
    assert (text(only(after)), only(after).offline) == ("0 0/-/- +1+1", ())
    assert report_offline_logs(after, 0, 0, [], one) is after
    assert report_offline_logs(after, 0, 0, [(TOPIC, 1), (uuid4(), 0)], one) is after


@pytest.mark.parametrize(
    ("change", "image"),
    [
        (FENCE, cluster(fenced="0")),
        (UNFENCE, cluster()),
        (SHUT_DOWN, cluster(fenced="0")),
        (SHUT_DOWN, cluster(unfenced="1", shutting_down="0")),
    ],
)
def test_what_is_so_already_changes_nothing(change: Change, image: ClusterImage) -> None:
    assert change(image) is image


@pytest.mark.parametrize("change", [FENCE, UNFENCE, SHUT_DOWN, OFFLINE])
def test_an_earlier_incarnation_is_refused(change: Change) -> None:
    image = cluster(unfenced="1")
    with pytest.raises(StaleBrokerEpochError, match="No broker registration found for broker id 0"):
        change(image)
    newer = register_broker(image, incarnation(0, 1), one, is_clean=True)
    with pytest.raises(StaleBrokerEpochError, match="Expected broker epoch 101, but got broker epoch 0"):
        change(newer)


def test_a_broker_that_is_not_registered_cannot_be_unregistered() -> None:
    with pytest.raises(BrokerIdNotRegisteredError, match="Broker ID 0 is not currently registered"):
        UNREGISTER(cluster(unfenced="1"))
    assert list(UNREGISTER(cluster()).brokers) == [1, 2]


def test_a_broker_that_lives_on_after_a_shutdown_was_asked_for_leads_again() -> None:
    image = cluster(partition(1, "1", "1"), unfenced="01")
    ending = fence_broker(begin_controlled_shutdown(image, 1, 10, one), 1, 10, one)
    assert not ending.brokers[1].is_active and only(ending).leader == -1
    after = unfence_broker(ending, 1, 10, one)
    assert after.brokers[1].is_active and only(after).leader == 1


def controller(node_id: int, number: int = 0) -> ControllerRegistration:
    return ControllerRegistration(node_id, incarnation(node_id, number).incarnation_id, ())


def test_a_controller_alone_votes_and_is_no_broker() -> None:
    image = replace(cluster(unfenced="01"), controller_id=0)
    after = register_controller(image, controller(7))
    assert (after.version, set(after.brokers), after.nodes) == (image.version + 1, {0, 1}, {0, 1, 7})
    assert register_controller(after, controller(7)) is after
    assert register_controller(after, controller(7, 1)).controllers == {7: controller(7, 1)}
    assert electors(after, 1) == (7,) and electors(after, 7) == (1,)
    assert unregister_broker(after, 7, one).controllers == {}
    with pytest.raises(BrokerIdNotRegisteredError):
        unregister_broker(replace(after, controller_id=7), 7, one)


def test_a_node_has_one_role_or_the_other() -> None:
    image = cluster(partition(0, "0", "0"), unfenced="0", fenced="1")
    after = register_controller(image, controller(1))
    assert (set(after.brokers), set(after.controllers)) == ({0}, {1})
    back = register_broker(after, incarnation(1, 2), one, is_clean=True)
    assert (set(back.brokers), set(back.controllers)) == ({0, 1}, set())
    with pytest.raises(InvalidRequestError, match="replicas"):
        register_controller(image, controller(0))


def test_voters_may_be_elected_and_other_brokers_observe() -> None:
    image = replace(cluster(unfenced="012"), controller_id=2)
    image = register_controller(image, controller(7))
    image = image.with_broker(replace(image.brokers[1], is_voter=False))
    assert (voters(image), observers(image)) == ([0, 2, 7], [1])
