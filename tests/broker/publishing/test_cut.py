"""The cut: every version shows each transaction whole or not, hides no more than it must, and nothing goes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.transactions.cut import (
    UNFINISHED,
    UNKNOWN,
    EndedTransaction,
    Seen,
    Shown,
    cut,
    decide_cut,
    group_by_links,
    merge,
)
from kafkalake.offset_range import OffsetRange
from kafkalake.topic_partition import TopicPartition

Ranges = Mapping[TopicPartition, OffsetRange]
END = 6

_partitions = st.sampled_from([("t", 0), ("t", 1), ("t", 2)])
_range = st.tuples(st.integers(0, END), st.integers(0, END)).map(lambda both: OffsetRange(min(both), max(both)))
_transactions = st.lists(st.dictionaries(_partitions, _range, min_size=1, max_size=3), max_size=5)
_stable = st.fixed_dictionaries({("t", index): st.integers(0, END + 1) for index in range(3)})


def shows_whole(positions: Mapping[TopicPartition, int], ranges: Ranges) -> bool:
    """Return whether a transaction is shown in all its partitions, or in none."""
    return all(positions[each] > last for each, (_, last) in ranges.items()) or is_hidden(positions, ranges)


def is_hidden(positions: Mapping[TopicPartition, int], ranges: Ranges) -> bool:
    return all(positions[each] <= first for each, (first, _) in ranges.items())


@given(stable=_stable, transactions=_transactions)
def test_each_transaction_is_shown_whole_or_not_and_nothing_is_hidden_without_need(
    stable: dict[TopicPartition, int], transactions: Sequence[Ranges]
) -> None:
    positions, hidden = cut(stable, transactions)
    assert all(shows_whole(positions, each) for each in transactions)
    assert hidden == {number for number, each in enumerate(transactions) if is_hidden(positions, each)}
    possible = [
        dict(zip(stable, found, strict=True)) for found in product(*(range(each + 1) for each in stable.values()))
    ]
    whole = [found for found in possible if all(shows_whole(found, each) for each in transactions)]
    assert positions == {each: max(found[each] for found in whole) for each in stable}, "the largest there are"
    assert cut(positions, transactions) == (positions, hidden)


def _run(events: Sequence[tuple[int, int, int]], late: bool) -> None:
    """Run transactions of four producers over three partitions and publish after some steps, as brokers report then.

    events: what is done (0 to 3: a record, 4: begun anew after the end, 5: publish), the partition and the producer.
    """
    ends = dict.fromkeys([("t", 0), ("t", 1), ("t", 2)], 0)
    open_: dict[int, dict[TopicPartition, OffsetRange]] = {}
    ended: list[EndedTransaction] = []
    published = dict(ends)
    seen: Seen = {}
    number = 0
    truth: list[Ranges] = []
    for action, index, producer in events:
        partition = ("t", index)
        if action < 4:
            ranges = open_.setdefault(producer, {})
            first = ranges[partition].first_offset if partition in ranges else ends[partition]
            ranges[partition] = OffsetRange(first, ends[partition])
            ends[partition] += 1
        elif action == 4 and producer in open_:
            ranges = open_.pop(producer)
            truth.append(ranges)
            known = {
                each: OffsetRange(UNKNOWN, UNKNOWN) if late and each[1] == 0 else found
                for each, found in ranges.items()
            }
            ended.append(EndedTransaction((0, number), known))
            number += 1
            for each in ranges:
                ends[each] += 1  # the marker
        elif action == 5:
            open_of = [(each, found.first_offset) for ranges in open_.values() for each, found in ranges.items()]
            stable = {each: min([end, *(first for of, first in open_of if of == each)]) for each, end in ends.items()}
            shown = {
                each: Shown(published[each], published[each] if each == partition and late else stable[each], end)
                for each, end in ends.items()
            }
            found = decide_cut(ended, shown, seen)
            seen = found.seen
            assert found.hidden is not None
            ended = [each for each in ended if each.position in found.hidden]
            now = {each: found.positions.get(each, of.stable) for each, of in shown.items()}
            assert all(now[each] >= published[each] for each in now), "nothing goes back"
            published = now
            assert all(shows_whole(published, each) for each in truth)


@given(
    events=st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 3, 4, 4, 5]), st.integers(0, 2), st.integers(0, 3)), max_size=60
    ),
    late=st.booleans(),
)
def test_version_after_version_shows_whole_transactions(events: list[tuple[int, int, int]], late: bool) -> None:
    """`late`: of one partition the ranges are not known, and one leader does not answer."""
    _run(events, late)


@given(stable=_stable, transactions=_transactions)
def test_transactions_taken_for_one_hide_more_and_never_less(
    stable: dict[TopicPartition, int], transactions: Sequence[Ranges]
) -> None:
    ended = [EndedTransaction((0, number), ranges) for number, ranges in enumerate(transactions)]
    sets = group_by_links(ended)
    assert sorted(each for linked in sets for each in linked) == sorted(ended)
    of_sets = [{each for one in linked for each in one.ranges} for linked in sets]
    assert sum(map(len, of_sets)) == len(set().union(*of_sets)), "sets have no partition in common"
    positions, _ = cut(stable, [merge(linked) for linked in sets])
    assert all(shows_whole(positions, each) for each in transactions)


def test_an_open_transaction_hides_only_what_is_linked_to_it() -> None:
    a, b, c, d = (("t", index) for index in range(4))
    t2 = EndedTransaction((0, 2), {a: OffsetRange(5, 5), b: OffsetRange(3, 4)})
    t3 = EndedTransaction((0, 3), {b: OffsetRange(6, 6), c: OffsetRange(0, 0)})
    t4 = EndedTransaction((0, 4), {d: OffsetRange(0, 7)})
    shown = {a: Shown(0, 4, 8), b: Shown(0, 8, 8), c: Shown(0, 2, 2), d: Shown(0, 9, 9)}
    found = decide_cut([t2, t3, t4], shown, {})
    assert found[:2] == ({a: 4, b: 3, c: 0}, {(0, 2), (0, 3)})


def test_a_transaction_whose_end_is_not_known_is_shown_behind_the_log_end_at_which_it_was_seen() -> None:
    a, b = ("t", 0), ("t", 1)
    found = EndedTransaction((3, 7), {a: OffsetRange(UNKNOWN, UNKNOWN), b: OffsetRange(2, 2)})
    seen = {(3, 7): {a: OffsetRange(UNKNOWN, 8), b: OffsetRange(2, 2)}}
    assert decide_cut([found], {a: Shown(1, 4, 9), b: Shown(0, 5, 5)}, {}) == ({a: 1, b: 2}, {(3, 7)}, seen)
    assert decide_cut([found], {a: Shown(1, 8, 20), b: Shown(2, 5, 5)}, seen) == ({a: 1, b: 2}, {(3, 7)}, seen)
    silent = {a: Shown(1, 1, None), b: Shown(2, 5, 5)}
    assert decide_cut([found], silent, seen) == ({a: 1, b: 2}, {(3, 7)}, seen), "its leader does not answer"
    assert decide_cut([found], {a: Shown(1, 9, 20), b: Shown(2, 5, 5)}, seen) == ({}, set(), seen)


def test_what_a_coordinator_has_reported_is_known_when_another_one_takes_over() -> None:
    a, b = ("t", 0), ("t", 1)
    whole = {a: OffsetRange(5, 5), b: OffsetRange(2, 2)}
    shown = {a: Shown(1, 4, 9), b: Shown(0, 5, 5)}
    seen = decide_cut([EndedTransaction((3, 7), whole)], shown, {}).seen
    for last in (UNKNOWN, UNFINISHED):
        found = EndedTransaction((3, 7), dict.fromkeys(whole, OffsetRange(UNKNOWN, last)))
        assert decide_cut([found], shown, seen) == ({a: 4, b: 2}, {(3, 7)}, {(3, 7): whole})
        assert decide_cut([found], shown, {}).positions == {a: 1, b: 0}, "where it is not known"


def test_what_is_unfinished_hides_the_transaction_and_what_is_gone_hides_nothing() -> None:
    a, b = ("t", 0), ("t", 1)
    found = EndedTransaction((0, 0), {a: OffsetRange(UNKNOWN, UNFINISHED), b: OffsetRange(4, 4)})
    assert decide_cut([found], {a: Shown(2, 9, 9), b: Shown(0, 5, 5)}, {}).positions == {a: 2, b: 4}
    assert decide_cut([found], {b: Shown(0, 5, 5)}, {}).positions == {}, "the topic of a is gone"
    again = EndedTransaction((0, 0), {a: OffsetRange(0, 9), b: OffsetRange(4, 4)})
    assert decide_cut([again], {a: Shown(0, 3, 3), b: Shown(0, 5, 5)}, {}).positions == {}, "a was made again"
