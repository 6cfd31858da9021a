"""The leader's knowledge of its replicas: the high watermark, the ISR, refusals, and where logs part."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest
from cluster_images import TOPIC, cluster, partition, rules
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalake.cluster.partition_changes import ANY_EPOCH, IsrState, Replica, alter_partitions
from kafkalake.cluster.replication import (
    UNKNOWN,
    EpochEnd,
    Leadership,
    ReplicaFetch,
    begin_leadership,
    check_leader_epoch,
    decide_truncation,
    diverging_epoch,
    follow_registration,
    high_watermark,
    is_repeated,
    isr_change,
    joining_replicas,
    note_fetch,
    propose_growth,
    propose_shrink,
    refusal_after,
    refusal_before,
    settle_proposal,
    with_min_isr,
)
from kafkalake.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    KafkaError,
    NewLeaderElectedError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    OperationNotAttemptedError,
    RequestTimedOutError,
    UnknownLeaderEpochError,
)
from kafkalake.storage.leader_epochs import LeaderEpochs

OF = (TOPIC, 0)
LAG_MS = 30_000
BROKERS = cluster().brokers


def leading(
    isr: str = "012", replicas: str = "012", log_end: int = 10, min_isr: int = 2, now_ms: int = 0
) -> Leadership:
    """Return the leadership of broker 0 in leader epoch 5, which began at 10."""
    return begin_leadership(partition(0, replicas, isr), 0, log_end, min_isr, now_ms)


def fetched(state: Leadership, broker_id: int, offset: int, log_end: int, now_ms: int = 0) -> Leadership:
    epoch = 10 * broker_id
    return note_fetch(state, ReplicaFetch(broker_id, epoch, offset), log_end, epoch, now_ms)


def test_the_only_replica_has_its_log_end_as_the_watermark() -> None:
    assert high_watermark(leading("0", "0", min_isr=2), 15, 10) == 15


def test_the_watermark_waits_until_each_replica_of_the_isr_has_fetched_in_this_epoch() -> None:
    state = leading()
    assert high_watermark(state, 15, 7) == 7
    state = fetched(state, 1, 15, 15)
    assert high_watermark(state, 15, 7) == 7
    state = fetched(state, 2, 12, 15)
    assert high_watermark(state, 15, 7) == 12
    assert high_watermark(fetched(state, 2, 11, 15), 15, 12) == 12, "it never goes back"


def test_a_replica_outside_of_the_isr_does_not_hold_the_watermark() -> None:
    assert high_watermark(fetched(leading("01"), 1, 14, 15), 15, 7) == 14


def test_the_watermark_stays_while_the_isr_is_smaller_than_it_must_be() -> None:
    assert high_watermark(leading("0"), 15, 7) == 7
    assert high_watermark(leading("0", min_isr=1), 15, 7) == 15
    assert high_watermark(leading("01", "01", min_isr=3), 15, 7) == 7, "its follower has not fetched"
    assert high_watermark(fetched(leading("01", "01", min_isr=3), 1, 13, 15), 15, 7) == 13, (
        "two replicas are all there are"
    )


def test_the_watermark_waits_for_a_proposed_replica_and_for_one_that_is_proposed_to_leave() -> None:
    grown = replace(fetched(fetched(leading("01"), 1, 15, 15), 2, 12, 15), proposed=(0, 1, 2))
    assert high_watermark(grown, 15, 7) == 12
    shrunk = replace(fetched(fetched(leading(), 1, 15, 15), 2, 12, 15), proposed=(0, 1))
    assert high_watermark(shrunk, 15, 7) == 12


def test_the_watermark_waits_for_a_replica_that_is_about_to_join() -> None:
    state = fetched(leading("01", min_isr=1), 1, 20, 20, 100)
    state = fetched(state, 2, 20, 20, 100)
    joining = joining_replicas(state, 25, BROKERS, 200, LAG_MS)
    assert joining == (2,)
    assert high_watermark(fetched(state, 1, 25, 25, 200), 25, 7, joining) == 20
    assert joining_replicas(state, 25, BROKERS, 100 + LAG_MS + 1, LAG_MS) == ()
    assert joining_replicas(state, 25, cluster(unfenced="01", fenced="2").brokers, 200, LAG_MS) == ()
    assert joining_replicas(leading("01"), 25, BROKERS, 0, LAG_MS) == (), "it has never fetched"


@pytest.mark.parametrize(
    ("offset", "watermark", "joins"),
    [(20, 20, True), (21, 20, True), (19, 20, False), (10, 5, True), (9, 5, False)],
)
def test_a_follower_joins_at_the_watermark_and_not_below_the_start_of_the_epoch(
    offset: int, watermark: int, joins: bool
) -> None:
    state = fetched(leading("01"), 2, offset, 21)
    after = propose_growth(state, 2, watermark, BROKERS[2])
    assert after.proposed == ((0, 1, 2) if joins else None)
    assert (after is state) is not joins


def test_a_follower_joins_only_as_the_registered_incarnation_of_an_active_broker() -> None:
    state = fetched(leading("01"), 2, 10, 10)
    for unable in (
        None,
        replace(BROKERS[2], epoch=21),
        replace(BROKERS[2], is_fenced=True),
        replace(BROKERS[2], is_shutting_down=True),
    ):
        assert propose_growth(state, 2, 0, unable) is state
    assert propose_growth(leading("01"), 2, 0, BROKERS[2]).proposed is None, "it has not fetched in this epoch"
    assert propose_growth(state, 1, 0, BROKERS[1]) is state, "it is in the ISR"
    assert propose_growth(replace(state, proposed=(0,)), 2, 0, BROKERS[2]).proposed == (0,), "one proposal at a time"


def test_a_follower_leaves_once_it_has_lagged_for_the_lag_time() -> None:
    state = leading(now_ms=1000)
    assert propose_shrink(state, 10, 1000 + LAG_MS, LAG_MS) is state
    assert propose_shrink(state, 10, 1001 + LAG_MS, LAG_MS).proposed == (0,)
    state = fetched(state, 1, 10, 10, 1001)
    assert propose_shrink(state, 10, 10 * LAG_MS, LAG_MS).proposed == (0, 1), "it has all there is"
    assert propose_shrink(state, 11, 1002 + LAG_MS, LAG_MS).proposed == (0,)
    assert propose_shrink(replace(state, proposed=(0, 1)), 11, 10 * LAG_MS, LAG_MS).proposed == (0, 1)


def test_a_follower_that_stays_one_fetch_behind_does_not_lag() -> None:
    state, log_end = leading("01", "01"), 10
    for now_ms in range(0, 10 * LAG_MS, LAG_MS // 2):
        state = fetched(state, 1, log_end, log_end + 5, now_ms)
        log_end += 5
        assert propose_shrink(state, log_end, now_ms, LAG_MS) is state
    assert propose_shrink(state, log_end, now_ms + 2 * LAG_MS, LAG_MS).proposed == (0,)


def test_a_fetch_of_no_replica_or_of_an_earlier_incarnation_changes_nothing() -> None:
    with pytest.raises(UnknownLeaderEpochError):
        note_fetch(leading(replicas="01", isr="01"), ReplicaFetch(2, 20, 10), 10, 20, 0)
    with pytest.raises(NotLeaderOrFollowerError):
        note_fetch(leading(), ReplicaFetch(2, 19, 10), 10, 20, 0)
    assert note_fetch(leading(), ReplicaFetch(2, 21, 10), 10, 20, 0).follower(2) is not None, "the image is behind"


@pytest.mark.parametrize(
    ("asked", "refused"), [(-1, None), (5, None), (4, FencedLeaderEpochError), (6, UnknownLeaderEpochError)]
)
def test_a_request_of_another_leader_epoch_is_refused(asked: int, refused: type[KafkaError] | None) -> None:
    if refused is None:
        check_leader_epoch(asked, 5)
    else:
        with pytest.raises(refused):
            check_leader_epoch(asked, 5)


def test_a_proposal_goes_to_the_controller_with_epochs_and_comes_into_force_by_its_answer() -> None:
    state = propose_growth(fetched(leading("01"), 2, 10, 10), 2, 0, BROKERS[2])
    asked = isr_change(OF, state, 0)
    assert asked.isr == (Replica(0, 0), Replica(1, ANY_EPOCH), Replica(2, 20))
    image, errors = alter_partitions(cluster(partition(0, "012", "01")), 0, 0, [asked], lambda _: rules(2))
    assert not errors
    registered = image.partition(OF)
    assert registered is not None
    answer = IsrState(0, 5, registered.partition_epoch, registered.isr)
    after = settle_proposal(state, asked, answer)
    assert (after.isr, after.proposed, after.partition_epoch) == ((0, 1, 2), None, 8)
    assert follow_registration(after, registered) is after, "the registration says the same"
    assert settle_proposal(after, asked, answer) is after


@pytest.mark.parametrize(
    ("answer", "stays", "repeated"),
    [
        (IneligibleReplicaError(), False, False),
        (OperationNotAttemptedError(), False, False),
        (InvalidUpdateVersionError(), True, False),
        (NewLeaderElectedError(), True, False),
        (FencedLeaderEpochError(), True, False),
        (RequestTimedOutError(), True, True),
    ],
)
def test_a_refused_proposal_is_dropped_awaited_or_repeated(answer: KafkaError, stays: bool, repeated: bool) -> None:
    state = replace(leading("01"), proposed=(0, 1, 2))
    asked = isr_change(OF, state, 0)
    assert is_repeated(state, asked, answer) is repeated
    assert settle_proposal(state, asked, answer).proposed == ((0, 1, 2) if stays else None)


def test_a_newer_registration_settles_a_proposal_and_a_late_answer_to_it_is_passed_over() -> None:
    state = replace(fetched(leading("01"), 1, 13, 15), proposed=(0, 1, 2))
    asked = isr_change(OF, state, 0)
    newer = replace(partition(0, "013", "01"), partition_epoch=9)
    after = follow_registration(state, newer)
    assert (after.isr, after.proposed, after.partition_epoch) == ((0, 1), None, 9)
    assert [each.broker_id for each in after.followers] == [1, 3]
    assert high_watermark(after, 15, 7) == 13, "what is known of a follower stays"
    assert settle_proposal(after, asked, IsrState(0, 5, 8, (0, 1, 2))) is after
    assert not is_repeated(after, asked, RequestTimedOutError())
    assert follow_registration(after, newer) is after


def test_records_are_refused_before_and_after_by_the_size_of_the_isr() -> None:
    assert refusal_before(leading("01")) is None
    assert isinstance(refusal_before(leading("0")), NotEnoughReplicasError)
    assert refusal_before(with_min_isr(leading("0"), 1)) is None
    assert refusal_after(replace(leading("0"), proposed=(0, 1))) is None
    assert isinstance(refusal_after(leading("0")), NotEnoughReplicasAfterAppendError)
    assert refusal_before(leading("0", "0", min_isr=2)) is None, "one replica is all there is"


offsets = st.integers(0, 30)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("fetch"), st.integers(1, 2), offsets),
        st.tuples(st.just("shrink"), st.just(0), st.just(0)),
        st.tuples(st.just("answer"), st.booleans(), st.booleans()),
        st.tuples(st.just("register"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("time"), st.integers(0, 2 * LAG_MS), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.exhaustive
@settings(max_examples=100)
@given(steps, st.integers(1, 3))
def test_the_watermark_never_falls_and_never_passes_a_replica_that_may_be_in_the_isr(
    run: list[tuple[str, int, int]], min_isr: int
) -> None:
    state, log_end, watermark, now_ms = leading(min_isr=min_isr), 10, 5, 0
    for kind, first, second in run:
        if kind == "append":
            log_end += first
        elif kind == "time":
            now_ms += first
        elif kind == "shrink":
            state = propose_shrink(state, log_end, now_ms, LAG_MS)
        elif kind == "fetch":
            state = fetched(state, first, min(second, log_end), log_end, now_ms)
            before, state = state, propose_growth(state, first, watermark, BROKERS[first])
            follower = state.follower(first)
            assert follower is not None
            if state is not before:
                assert follower.log_end >= max(watermark, state.epoch_start)
        elif kind == "answer" and state.proposed is not None:
            refusal = IneligibleReplicaError() if second else RequestTimedOutError()
            answer = IsrState(0, 5, state.partition_epoch + 1, state.proposed) if first else refusal
            state = settle_proposal(state, isr_change(OF, state, 0), answer)
        elif kind == "register":
            isr = [(0,), (0, 1), (0, 2), (0, 1, 2)][first]
            if set(isr) <= set(state.maximal_isr):  # the controller alone only takes replicas away
                newer = replace(partition(0, "012", "012"), isr=isr, partition_epoch=state.partition_epoch + 1)
                state = follow_registration(state, newer)
        joining = joining_replicas(state, log_end, BROKERS, now_ms, LAG_MS)
        after = high_watermark(state, log_end, watermark, joining)
        assert watermark <= after <= log_end
        if after > watermark:
            assert len(state.isr) >= min(min_isr, 3)
            ends = {each.broker_id: each.log_end for each in state.followers}
            assert all(ends[each] >= after for each in state.maximal_isr if each)
        watermark = after
        assert state.proposed != state.isr
        assert 0 in state.maximal_isr


class EpochLog:
    """A log whose records are (epoch, number), no two the same, with the leader epochs that production keeps."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []
        self.epochs = LeaderEpochs()

    def append(self, record: tuple[int, int]) -> None:
        self.epochs.assign(record[0], len(self.records))
        self.records.append(record)

    def end(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.epochs.end_offset(epoch, len(self.records)))

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_end(offset)


def replicate(leader: EpochLog, follower: EpochLog, most: int) -> None:
    """Let a follower cut its log and then fetch `most` records, as the protocol says."""
    equal = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(leader.records, follower.records, strict=False))
    )
    while (last := follower.epochs.latest) >= 0:  # that of a leader without records, too: it begins at the log end
        end, epochs = len(follower.records), follower.epochs.entries()
        diverging = diverging_epoch(last, end, leader.end(last), 0)
        if diverging is None:
            break
        offset = decide_truncation(diverging, follower.end(diverging.epoch), end)
        follower.truncate(offset)
        assert equal <= offset <= end, "it cuts what differs, and nothing else"
        assert (len(follower.records), follower.epochs.entries()) != (end, epochs)
    assert follower.records == leader.records[: len(follower.records)]
    for record in leader.records[len(follower.records) :][:most]:
        follower.append(record)


elections = st.tuples(st.integers(0, 2), st.integers(0, 3), st.tuples(st.integers(0, 3), st.integers(0, 3)))


@pytest.mark.exhaustive
@settings(max_examples=200)
@given(st.lists(elections, max_size=8))
def test_followers_cut_their_logs_exactly_where_they_part_from_the_leader_s(
    history: list[tuple[int, int, tuple[int, int]]],
) -> None:
    logs = [EpochLog(), EpochLog(), EpochLog()]
    for epoch, (leader, appended, copied) in enumerate(history):
        logs[leader].epochs.assign(epoch, len(logs[leader].records))
        for number in range(appended):
            logs[leader].append((epoch, number))
        for follower, most in zip((each for each in range(3) if each != leader), copied, strict=True):
            if most:
                replicate(logs[leader], logs[follower], most)


def test_a_reader_before_the_log_start_or_of_an_unknown_epoch_is_out_of_range() -> None:
    with pytest.raises(OffsetOutOfRangeError):
        diverging_epoch(3, 5, EpochEnd(3, 9), 6)
    with pytest.raises(OffsetOutOfRangeError):
        diverging_epoch(3, 5, EpochEnd(UNKNOWN, UNKNOWN), 0)
    assert decide_truncation(EpochEnd(3, 9), EpochEnd(UNKNOWN, UNKNOWN), 7) == 7
