"""What the leader of a partition knows of its replicas, and the decisions that follow from it (KIP-101, 279, 320, 497, 903, 966).

A `Leadership` is that knowledge in one leader epoch. Fetches of followers, answers of the controller and newer registrations make
the next one. Time is a parameter, in milliseconds of a clock that never goes back.

The ISR that the leader proposes to the controller counts together with the one in force until the controller, or a newer
registration, has settled the proposal: whichever of the two is in force, the high watermark never passes a replica in it
(`maximal_isr`). And it moves only while the ISR in force is as large as `min.insync.replicas` asks: the replicas that leave a
smaller one stay eligible to lead, so they must not miss a record below the watermark (`election`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalake.cluster.image import BrokerRegistration, PartitionRegistration, TopicIdPartition
from kafkalake.cluster.partition_changes import ANY_EPOCH, IsrChange, IsrState, Replica
from kafkalake.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    NewLeaderElectedError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    OperationNotAttemptedError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)

UNKNOWN = -1
"""An offset, epoch or time that is not known yet."""


class EpochEnd(NamedTuple):
    """A leader epoch and the offset at which it ended."""

    epoch: int
    end_offset: int


class ReplicaFetch(NamedTuple):
    """A follower's fetch of one partition: the broker, its epoch (`ANY_EPOCH`: not given), the offset, and its log start."""

    broker_id: int
    broker_epoch: int
    offset: int
    log_start_offset: int = UNKNOWN


class Follower(NamedTuple):
    """The progress of a follower in this leader epoch. `UNKNOWN` before its first fetch.

    log_end: the offset that it fetched last, so it has all before. caught_up_ms: when it last had all that the leader had when it
    fetched. fetched_ms, leader_end_then: time and log end of the leader at its last fetch. broker_epoch: under which it fetched.
    """

    broker_id: int
    log_end: int = UNKNOWN
    log_start: int = UNKNOWN
    caught_up_ms: int = UNKNOWN
    fetched_ms: int = UNKNOWN
    leader_end_then: int = UNKNOWN
    broker_epoch: int = ANY_EPOCH

    def is_caught_up(self, log_end: int, now_ms: int, lag_ms: int) -> bool:
        """Return whether it has all up to the leader's `log_end`, or had so within `lag_ms` (`replica.lag.time.max.ms`)."""
        return self.log_end == log_end or (self.caught_up_ms != UNKNOWN and now_ms - self.caught_up_ms <= lag_ms)


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition as its leader knows it, in one leader epoch.

    partition_epoch, replicas, isr: of the newest registration or answer. proposed: the ISR that the controller was asked for and
    has not settled. epoch_start: the log end at which the epoch began. followers: the replicas but the leader, in their order.
    min_isr: `min.insync.replicas`, at most the number of replicas counts.
    """

    broker_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    epoch_start: int
    min_isr: int = 1
    followers: tuple[Follower, ...] = ()
    proposed: tuple[int, ...] | None = None

    @property
    def is_under_min_isr(self) -> bool:
        """Return whether the ISR in force is too small to acknowledge records with acks=all."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that may be in the ISR now: those of the one in force and of the proposed one."""
        if self.proposed is None:
            return self.isr
        return (*self.isr, *(each for each in self.proposed if each not in self.isr))

    def follower(self, broker_id: int) -> Follower | None:
        """Return the progress of a follower, None if the broker is none."""
        return next((each for each in self.followers if each.broker_id == broker_id), None)

    def has_older_start(self, fetch: ReplicaFetch) -> bool:
        """Return whether a follower has raised its log start since the fetch before this one."""
        follower = self.follower(fetch.broker_id)
        return follower is not None and UNKNOWN < follower.log_start < fetch.log_start_offset


# Registrations and answers of the controller


def begin_leadership(
    registration: PartitionRegistration, broker_id: int, log_end: int, min_isr: int, now_ms: int
) -> Leadership:
    """Return the leadership of `broker_id` in the epoch of its registration, which begins at its log end.

    Nothing is known of the followers. Those in the ISR have the lag time from now on to fetch.
    """
    isr = registration.isr
    followers = tuple(
        Follower(each, caught_up_ms=now_ms if each in isr else UNKNOWN)
        for each in registration.replicas
        if each != broker_id
    )
    return Leadership(
        broker_id,
        registration.leader_epoch,
        registration.partition_epoch,
        registration.replicas,
        isr,
        log_end,
        min_isr,
        followers,
    )


def follow_registration(state: Leadership, registration: PartitionRegistration) -> Leadership:
    """Return the leadership by a newer registration of the same leader epoch; the same object if it is not newer.

    It settles the proposal: the controller refuses what was proposed on an older partition epoch.
    """
    assert (registration.leader, registration.leader_epoch) == (state.broker_id, state.leader_epoch)
    if registration.partition_epoch <= state.partition_epoch:
        return state
    followers = tuple(
        state.follower(each) or Follower(each) for each in registration.replicas if each != state.broker_id
    )
    return replace(
        state,
        partition_epoch=registration.partition_epoch,
        replicas=registration.replicas,
        isr=registration.isr,
        followers=followers,
        proposed=None,
    )


def with_min_isr(state: Leadership, min_isr: int) -> Leadership:
    """Return the leadership by another `min.insync.replicas`."""
    return state if min_isr == state.min_isr else replace(state, min_isr=min_isr)


def isr_change(of: TopicIdPartition, state: Leadership, broker_epoch: int) -> IsrChange:
    """Return the request for the proposed ISR. `broker_epoch`: of the leader's broker."""
    assert state.proposed is not None
    epochs = {each.broker_id: each.broker_epoch for each in state.followers} | {state.broker_id: broker_epoch}
    isr = tuple(Replica(each, epochs.get(each, ANY_EPOCH)) for each in state.proposed)
    return IsrChange(of, state.leader_epoch, state.partition_epoch, isr)


_REFUSED_UNCHANGED = (IneligibleReplicaError, OperationNotAttemptedError)
_WAITS_FOR_REGISTRATION = (
    FencedLeaderEpochError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NewLeaderElectedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)


def settle_proposal(state: Leadership, asked: IsrChange, answer: IsrState | KafkaError) -> Leadership:
    """Return the leadership after the controller's answer to `asked`; the same object if it settles nothing.

    An answer that came late, to a proposal of before the newest registration, is passed over. After an error the proposal is
    dropped only if the controller said that the partition is unchanged. After others it may be in force, so it stays until a
    registration settles it, or the request is repeated (`is_repeated`).
    """
    if not is_pending(state, asked):
        return state
    if isinstance(answer, KafkaError):
        return replace(state, proposed=None) if isinstance(answer, _REFUSED_UNCHANGED) else state
    if answer.leader_epoch != state.leader_epoch or answer.partition_epoch < state.partition_epoch:
        return state
    return replace(state, partition_epoch=answer.partition_epoch, isr=answer.isr, proposed=None)


def is_pending(state: Leadership, asked: IsrChange) -> bool:
    """Return whether a request is that of the proposal which is not settled yet."""
    return state.proposed == asked.broker_ids and (state.leader_epoch, state.partition_epoch) == (
        asked.leader_epoch,
        asked.partition_epoch,
    )


def is_repeated(state: Leadership, asked: IsrChange, answer: KafkaError) -> bool:
    """Return whether a refused request is sent again, rather than that a newer registration is awaited."""
    return is_pending(state, asked) and not isinstance(answer, _REFUSED_UNCHANGED + _WAITS_FOR_REGISTRATION)


# Fetches of followers


def check_leader_epoch(asked: int, leader_epoch: int) -> None:
    """Check the leader epoch of a request (-1: none). Source: KIP-320.

    Raise `FencedLeaderEpochError` if it is older than the leader's, `UnknownLeaderEpochError` if it is newer.
    """
    if asked >= 0 and asked != leader_epoch:
        raise FencedLeaderEpochError() if asked < leader_epoch else UnknownLeaderEpochError()


def check_replica(state: Leadership, fetch: ReplicaFetch, registered_epoch: int) -> Follower:
    """Return the follower that fetches, in the leader's epoch. `registered_epoch`: of its broker, `ANY_EPOCH` if unknown.

    Raise `UnknownLeaderEpochError` if it is not a replica, which a newer registration may make it; `NotLeaderOrFollowerError` if
    an incarnation of its broker before the registered one asks. Source: KIP-903.
    """
    follower = state.follower(fetch.broker_id)
    if follower is None:
        raise UnknownLeaderEpochError(f"broker {fetch.broker_id} is not a replica")
    if fetch.broker_epoch != ANY_EPOCH and fetch.broker_epoch < registered_epoch:
        raise NotLeaderOrFollowerError(f"broker {fetch.broker_id} is registered with epoch {registered_epoch}")
    return follower


def note_fetch(state: Leadership, fetch: ReplicaFetch, log_end: int, registered_epoch: int, now_ms: int) -> Leadership:
    """Return the leadership after a fetch in its epoch, at an offset where the follower's log equals the leader's.

    Raise as `check_replica`.
    """
    before = check_replica(state, fetch, registered_epoch)
    caught_up_ms = before.caught_up_ms
    if fetch.offset >= log_end:
        caught_up_ms = max(caught_up_ms, now_ms)
    elif before.fetched_ms != UNKNOWN and fetch.offset >= before.leader_end_then:
        caught_up_ms = max(caught_up_ms, before.fetched_ms)
    after = Follower(
        fetch.broker_id,
        fetch.offset,
        fetch.log_start_offset,
        caught_up_ms,
        now_ms,
        max(log_end, before.leader_end_then),
        fetch.broker_epoch,
    )
    return replace(state, followers=tuple(after if each is before else each for each in state.followers))


def note_repeated(state: Leadership, broker_id: int, fetched_ms: int) -> Leadership:
    """Return the leadership after a fetch at `fetched_ms` that repeats the follower's last one, when the leader had nothing newer.

    The same object if that is known.
    """
    before = state.follower(broker_id)
    if before is None or before.fetched_ms >= fetched_ms or before.fetched_ms == UNKNOWN:
        return state
    is_caught_up = before.log_end >= before.leader_end_then
    caught_up_ms = max(before.caught_up_ms, fetched_ms) if is_caught_up else before.caught_up_ms
    after = before._replace(caught_up_ms=caught_up_ms, fetched_ms=fetched_ms)
    return replace(state, followers=tuple(after if each is before else each for each in state.followers))


def diverging_epoch(last_fetched_epoch: int, offset: int, own: EpochEnd, log_start_offset: int) -> EpochEnd | None:
    """Return where the log of a reader that has a record of `last_fetched_epoch` before `offset` parts from the leader's.

    own: the leader's largest epoch up to that one, and its end. None: the two logs are equal up to `offset`.
    Raise `OffsetOutOfRangeError` if the offset is before the log start, or the leader does not know the epoch. Source: KIP-595.
    """
    if own.epoch < 0 or own.end_offset < 0:
        raise OffsetOutOfRangeError(f"the end of leader epoch {last_fetched_epoch} is not known")
    if offset < log_start_offset:
        raise OffsetOutOfRangeError(f"offset {offset} is before the log start {log_start_offset}")
    return own if own.epoch < last_fetched_epoch or own.end_offset < offset else None


def decide_truncation(diverging: EpochEnd, own: EpochEnd, log_end: int) -> int:
    """Return the offset at which a follower cuts its log, before it fetches again.

    diverging: the leader's answer. own: the follower's largest epoch up to `diverging.epoch`, and its end. Where the follower does
    not know the leader's epoch it cuts at the end of the one before, and asks again from there. Source: KIP-101, 279.
    """
    if own.epoch < 0 or own.end_offset < 0:
        return min(diverging.end_offset, log_end)
    if own.epoch != diverging.epoch:
        return min(own.end_offset, log_end)
    return min(own.end_offset, diverging.end_offset, log_end)


# The high watermark


def high_watermark(state: Leadership, log_end: int, now: int, joining: Container[int] = ()) -> int:
    """Return the high watermark, `now` or larger: the smallest log end over the maximal ISR, unless the ISR is too small.

    joining: replicas to wait for although they are not in the ISR yet (`joining_replicas`), which else would never reach it.
    """
    if state.is_under_min_isr:
        return now
    smallest, maximal = log_end, state.maximal_isr
    for each in state.followers:
        if each.log_end < smallest and (each.broker_id in maximal or each.broker_id in joining):
            smallest = each.log_end
    return max(smallest, now)


def low_watermark(state: Leadership, log_start: int) -> int:
    """Return the smallest log start of the replicas in sync, `UNKNOWN` while one of them has not fetched in this epoch."""
    return min([log_start, *(each.log_start for each in state.followers if each.broker_id in state.maximal_isr)])


def joining_replicas(
    state: Leadership, log_end: int, brokers: Mapping[int, BrokerRegistration], now_ms: int, lag_ms: int
) -> tuple[int, ...]:
    """Return the followers that are caught up and may join the ISR, but are not in it."""
    return tuple(
        each.broker_id
        for each in state.followers
        if each.broker_id not in state.isr
        and each.is_caught_up(log_end, now_ms, lag_ms)
        and _may_join(each, brokers.get(each.broker_id))
    )


def refusal_before(state: Leadership) -> KafkaError | None:
    """Return why records with acks=all are not appended, None if they are."""
    if not state.is_under_min_isr:
        return None
    return NotEnoughReplicasError(f"the ISR is {list(state.isr)}, min.insync.replicas is {state.min_isr}")


def refusal_after(state: Leadership) -> KafkaError | None:
    """Return why appended records, which the high watermark has passed, are not acknowledged with acks=all, None if they are."""
    if len(state.maximal_isr) >= min(state.min_isr, len(state.replicas)):
        return None
    return NotEnoughReplicasAfterAppendError(f"the ISR is {list(state.isr)}, min.insync.replicas is {state.min_isr}")


# The ISR


def propose_growth(
    state: Leadership, broker_id: int, high_watermark: int, broker: BrokerRegistration | None
) -> Leadership:
    """Return the leadership with an ISR proposed that a follower joins; the same object if it does not join now.

    It joins once it has fetched, in this epoch, at or above the high watermark and the start of the epoch: it then has all that any
    leader acknowledged. broker: its registration. It must be active and of the incarnation that fetched (KIP-841, 903).
    """
    follower = state.follower(broker_id)
    if state.proposed is not None or follower is None or broker_id in state.isr:
        return state
    if follower.log_end < max(high_watermark, state.epoch_start) or not _may_join(follower, broker):
        return state
    return replace(state, proposed=(*state.isr, broker_id))


def _may_join(follower: Follower, broker: BrokerRegistration | None) -> bool:
    return broker is not None and broker.is_active and follower.broker_epoch in (ANY_EPOCH, broker.epoch)


def propose_shrink(state: Leadership, log_end: int, now_ms: int, lag_ms: int) -> Leadership:
    """Return the leadership with an ISR proposed that the followers leave which lag; the same object if none does.

    A follower lags if it has not had all of the leader's records within `lag_ms`.
    """
    if state.proposed is not None:
        return state
    lagging = {each.broker_id for each in state.followers if not each.is_caught_up(log_end, now_ms, lag_ms)}
    isr = tuple(each for each in state.isr if each not in lagging)
    return state if isr == state.isr else replace(state, proposed=isr)
