"""The logs of the replication model, and what must hold of them (see `replication_model`)."""

from __future__ import annotations

from functools import cache

from exploration import Violation
from replication_state import Log, Record, State, with_node

from kafkalake.cluster import replication
from kafkalake.cluster.image import NO_LEADER
from kafkalake.cluster.replication import EpochEnd, Leadership
from kafkalake.storage.leader_epochs import LeaderEpochs


def epochs_of(entries: tuple[tuple[int, int], ...]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


@cache
def end_offset(entries: tuple[tuple[int, int], ...], epoch: int, log_end: int) -> tuple[int, int]:
    return epochs_of(entries).end_offset(epoch, log_end)


@cache
def appended(log: Log, epoch: int, value: int) -> Log:
    epochs = epochs_of(log.epochs)
    epochs.assign(epoch, log.end)
    return log._replace(records=(*log.records, Record(epoch, value)), epochs=tuple(epochs.entries()))


@cache
def cut_at(log: Log, end: int, *, is_lossy: bool = False) -> Log:
    if end == log.end:
        return log
    epochs = epochs_of(log.epochs)
    epochs.truncate_end(end)
    watermark = min(log.high_watermark, end)
    return log._replace(records=log.records[:end], epochs=tuple(epochs.entries()), high_watermark=watermark)


@cache
def without_empty_epochs(log: Log) -> Log:
    """Return a log as recovery finds it: epochs without a record are forgotten."""
    epochs = epochs_of(log.epochs)
    epochs.truncate_end(log.end)
    return log._replace(epochs=tuple(epochs.entries()))


def received(state: State, broker_id: int, leader: Log) -> State:
    """Return the state after a follower has appended the next record of its leader, and taken over the watermark of then."""
    node = state.nodes[broker_id]
    log = node.log
    if log.end < leader.end:
        log = appended(log, *leader.records[log.end])
    log = log._replace(high_watermark=max(log.high_watermark, min(leader.high_watermark, log.end)))
    if log is node.log:
        return state
    state = with_node(state, broker_id, node._replace(log=log))
    check_matching(state, broker_id)
    check_read(state.committed, log)
    return state


def truncated(state: State, broker_id: int, diverging: EpochEnd) -> State:
    node = state.nodes[broker_id]
    if diverging.epoch < 0:
        end = min(diverging.end_offset, node.log.end)
    else:
        own = EpochEnd(*end_offset(node.log.epochs, diverging.epoch, node.log.end))
        end = replication.decide_truncation(diverging, own, node.log.end)
    if end < node.log.high_watermark and not state.image.partition.is_recovering:
        raise Violation(f"broker {broker_id} removes what is below its own watermark")
    epochs = epochs_of(node.log.epochs)
    epochs.truncate_end(end)
    log = cut_at(node.log, end)._replace(epochs=tuple(epochs.entries()))
    after = with_node(state, broker_id, node._replace(log=log))
    check_loss(after)
    return after


# Invariants


def check_read(committed: tuple[int, ...], log: Log) -> None:
    watermark = min(log.high_watermark, len(committed))
    if log.values(watermark) != committed[:watermark]:
        raise Violation("consistent read: an offset has another value than before")


def check_matching(state: State, broker_id: int) -> None:
    mine = state.nodes[broker_id].log.records
    for other, node in enumerate(state.nodes):
        theirs = node.log.records
        for offset in range(min(len(mine), len(theirs)) - 1, -1, -1):
            if mine[offset].epoch == theirs[offset].epoch:
                if mine[: offset + 1] != theirs[: offset + 1]:
                    raise Violation(f"log matching: brokers {broker_id} and {other} differ in one epoch")
                break


def check_loss(state: State) -> None:
    for offset, value in enumerate(state.committed):
        if not any(node.log.end > offset and node.log.records[offset].value == value for node in state.nodes):
            raise Violation(f"global loss: no replica has offset {offset}")


def shown(state: State) -> State:
    """Return the state in which readers have seen the watermark of the elected leader. Raise `Violation` if it fell."""
    partition = state.image.partition
    if partition.leader == NO_LEADER:
        return state
    node = state.nodes[partition.leader]
    role, log = node.role, node.log
    if not isinstance(role, Leadership) or role.leader_epoch != partition.leader_epoch or log.takeover:
        return state
    if log.high_watermark < state.shown:
        raise Violation("the watermark that readers are shown has fallen")
    return state if log.high_watermark == state.shown else state._replace(shown=log.high_watermark)
