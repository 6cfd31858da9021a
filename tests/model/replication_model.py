"""All states of a replicated partition, breadth first, by the decisions of production: `cluster.replication`, `election`,
`partition_changes`, `registration`, the store, and the leader epochs of the storage.

Three brokers, all of which any fault may meet. Each learns the newest image whenever it likes. A follower's fetch is one step, or
it is under way for long (`Bounds.delayed`). The leader's request for an ISR waits until the controller takes it, and its answer
may be lost. A commit of the controller may be written only later, after others. A process ends and keeps its log, or its machine
loses power and any part of the log's end. Time passes at will: a replica may always be behind for too long.

What must hold (the TLA+ of Kafka's replication names the first four so, the others are ours):

- leader completeness: who begins to lead has every record that was below a high watermark;
- log matching: two logs with a record of one epoch at one offset are equal up to there;
- consistent read: below its high watermark each replica has the one value that was ever read at an offset;
- no global loss: a record that was below a high watermark is in some replica's log;
- no replica removes what is below its own high watermark;
- the watermark that readers are shown never falls: that of the elected leader, once it has reached the offset of its takeover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from controller_decisions import (
    Decide,
    accepts,
    altered,
    decided,
    elects_preferred,
    fences,
    reassigns,
    registers,
    registration_of,
    unfences,
)
from exploration import Violation, walk
from memory_control_store import MemoryControlStore
from replication_logs import (
    appended,
    check_loss,
    check_read,
    cut_at,
    end_offset,
    epochs_of,
    received,
    shown,
    truncated,
    without_empty_epochs,
)
from replication_state import (
    BROKERS,
    PARTITION,
    Bounds,
    Fetch,
    Following,
    Image,
    Log,
    Node,
    Pending,
    Process,
    State,
    ordered,
    rules_with,
    start,
    with_node,
)

from kafkalake.cluster import replication
from kafkalake.cluster.image import NO_LEADER, ClusterImage
from kafkalake.cluster.partition_changes import IsrChange
from kafkalake.cluster.replication import EpochEnd, Leadership, ReplicaFetch
from kafkalake.errors import KafkaError, OffsetOutOfRangeError
from kafkalake.storage.leader_epochs import LeaderEpochs

LAG_MS = 1
Step = tuple[str, State]


def assign_epoch(epochs: LeaderEpochs, epoch: int, log_end: int) -> None:
    """Take over: the epoch begins at the log end, before anything is appended."""
    epochs.assign(epoch, log_end)


def keep_log(log: Log) -> int:
    """Return where a replica cuts its log when it begins to follow a leader: nowhere."""
    return log.end


@dataclass(frozen=True)
class Decisions:
    """Production's, or one of them without its guard."""

    make_store: Callable[[ClusterImage], MemoryControlStore] = MemoryControlStore
    take_over: Callable[[LeaderEpochs, int, int], None] = assign_epoch
    begin_to_follow: Callable[[Log], int] = keep_log
    check_leader_epoch: Callable[[int, int], None] = replication.check_leader_epoch
    high_watermark: Callable[[Leadership, int, int], int] = replication.high_watermark
    propose_growth: Callable[..., Leadership] = replication.propose_growth


PRODUCTION = Decisions()


class Replication:
    """The steps from a state. `replicas`, `isr`: of the partition at first. `targets`: of reassignments.

    `begun`: the steps after which all is looked at.
    """

    def __init__(
        self,
        bounds: Bounds,
        decisions: Decisions = PRODUCTION,
        *,
        min_isr: int = 2,
        replicas: tuple[int, ...] = BROKERS,
        isr: tuple[int, ...] = (),
        targets: tuple[tuple[int, ...], ...] = (),
        begun: tuple[str, ...] = (),
    ) -> None:
        self._bounds = bounds
        self._decide = decisions
        rules = rules_with(min_isr)
        self._min_isr = min_isr
        self._begun = begun
        self._start = start(bounds, replicas, isr or replicas)
        self._targets = targets
        self._decided: Callable[[Image, Decide], tuple[Image, ...]] = cache(partial(decided, rules=rules))
        self._altered = cache(partial(altered, rules=rules))
        self._is_accepted = {each: accepts(decisions.make_store, is_newest=each) for each in (False, True)}
        self._watermark = cache(self._decide.high_watermark)
        self._assigned = cache(self._assigns)

    def start(self) -> State:
        return walk(self._start, self.steps, self._begun)

    def steps(self, state: State) -> Iterator[Step]:
        for broker_id, node in enumerate(state.nodes):
            if node.process is not Process.UP:
                yield from self._restarts(state, broker_id, node)
                continue
            yield from self._learns(state, broker_id, node)
            yield from self._crashes(state, broker_id, node)
            if isinstance(node.role, Leadership):
                yield from self._leads(state, broker_id, node, node.role)
            elif isinstance(node.role, Following) and node.role.leader != NO_LEADER:
                yield from self._fetches(state, broker_id, node, node.role)
        yield from self._controls(state)
        if state.delayed is not None:
            yield from self._arrives(state, state.delayed)

    # A broker follows the image.

    def _learns(self, state: State, broker_id: int, node: Node) -> Iterator[Step]:
        partition, label = state.image.partition, f"{broker_id} learns"
        if broker_id == partition.leader:
            yield from self._takes_lead(state, broker_id, node)
            return
        role = Following(partition.leader, partition.leader_epoch)
        is_replica = broker_id in partition.replicas
        if node.role == role or (node == Node(Log()) and not is_replica):
            return
        if not is_replica:
            label, log = f"{label}, and removes its log", Log()
        else:
            cut = self._decide.begin_to_follow(node.log)
            log = cut_at(node.log, cut)._replace(takeover=0)
        after = with_node(state, broker_id, node._replace(log=log, role=role, seen=(), asked=None))
        check_loss(after)
        yield label, after

    def _takes_lead(self, state: State, broker_id: int, node: Node) -> Iterator[Step]:
        partition, role = state.image.partition, node.role
        if isinstance(role, Leadership) and role.leader_epoch == partition.leader_epoch:
            followed = replication.follow_registration(role, partition)
            if followed is role and node.seen == state.image.brokers:
                return
            asked = node.asked if followed is role else None
            after = node._replace(role=ordered(followed), seen=state.image.brokers, asked=asked)
            yield f"{broker_id} learns", self._with_watermark(state, broker_id, after)
            return
        if not partition.is_recovering and node.log.values(len(state.committed)) != state.committed:
            raise Violation(f"leader completeness: broker {broker_id} leads without what was committed")
        leadership = replication.begin_leadership(partition, broker_id, node.log.end, self._min_isr, 0)
        log = node.log._replace(
            epochs=self._assigned(node.log.epochs, partition.leader_epoch, node.log.end), takeover=node.log.end
        )
        after = node._replace(log=log, role=ordered(leadership), seen=state.image.brokers, asked=None)
        yield f"{broker_id} takes over", self._with_watermark(state, broker_id, after)

    def _assigns(self, epochs: tuple[tuple[int, int], ...], epoch: int, log_end: int) -> tuple[tuple[int, int], ...]:
        known = epochs_of(epochs)
        self._decide.take_over(known, epoch, log_end)
        return tuple(known.entries())

    # A broker leads.

    def _leads(self, state: State, broker_id: int, node: Node, role: Leadership) -> Iterator[Step]:
        bounds = state.bounds
        if bounds.values:
            value = self._bounds.values - bounds.values
            log = appended(node.log, role.leader_epoch, value)
            after = state._replace(bounds=bounds._replace(values=bounds.values - 1))
            yield f"{broker_id} appends {value}", self._with_watermark(after, broker_id, node._replace(log=log))
        for follower in role.followers:
            broker = registration_of(follower.broker_id, node.seen[follower.broker_id])
            grown = self._decide.propose_growth(role, follower.broker_id, node.log.high_watermark, broker)
            if grown is not role:
                yield f"{broker_id} asks for {follower.broker_id} in the ISR", self._asks(state, broker_id, node, grown)
        if bounds.shrinks:
            shrunk = replication.propose_shrink(role, node.log.end, 2 * LAG_MS, LAG_MS)
            if shrunk is not role:
                less = state._replace(bounds=bounds._replace(shrinks=bounds.shrinks - 1))
                yield f"{broker_id} asks for a smaller ISR", self._asks(less, broker_id, node, shrunk)

    def _asks(self, state: State, broker_id: int, node: Node, role: Leadership) -> State:
        role = ordered(role)
        asked = replication.isr_change(PARTITION, role, node.epoch)
        return self._with_watermark(state, broker_id, node._replace(role=role, asked=asked))

    def _with_watermark(self, state: State, broker_id: int, node: Node) -> State:
        """Return the state with a leader's node, its high watermark moved. Raise `Violation` if another value was committed."""
        assert isinstance(node.role, Leadership)
        log, leader_epoch = node.log, node.role.leader_epoch
        watermark = self._watermark(node.role, log.end, log.high_watermark)
        takeover = log.takeover if watermark < log.takeover else 0
        if (watermark, takeover) != (log.high_watermark, log.takeover):
            node = node._replace(log=log._replace(high_watermark=watermark, takeover=takeover))
        state = with_node(state, broker_id, node)
        check_read(state.committed, node.log)
        if watermark > len(state.committed):
            state = state._replace(committed=log.values(watermark))
            if any(_lacks(other, state.committed, leader_epoch) for other in state.nodes):
                raise Violation("leader completeness: an earlier leader commits what a later one lacks")
        return shown(state)

    # A follower fetches.

    def _fetches(self, state: State, broker_id: int, node: Node, role: Following) -> Iterator[Step]:
        last_epoch = node.log.epochs[-1][0] if node.log.epochs else -1
        fetch = Fetch(broker_id, node.epoch, role.leader, role.leader_epoch, node.log.end, last_epoch)
        if state.bounds.delayed and state.delayed is None:
            less = state._replace(bounds=state.bounds._replace(delayed=state.bounds.delayed - 1))
            yield f"{broker_id} fetches, which takes long", less._replace(delayed=fetch)
        leader = state.nodes[role.leader]
        answered = self._noted(state, fetch)
        if isinstance(answered, State):
            yield f"{broker_id} fetches", received(answered, broker_id, leader.log)
        elif answered is not None:
            yield f"{broker_id} fetches and cuts", truncated(state, broker_id, answered)

    def _arrives(self, state: State, fetch: Fetch) -> Iterator[Step]:
        """A request that was under way for long reaches the leader; nobody waits for the answer any more."""
        answered = self._noted(state, fetch)
        if isinstance(answered, State):
            yield f"the fetch of {fetch.broker_id} arrives", answered._replace(delayed=None)

    def _noted(self, state: State, fetch: Fetch) -> State | EpochEnd | None:
        """Return the state after the leader has noted a fetch, where the follower's log diverges, or None if it is refused."""
        node = state.nodes[fetch.leader]
        role = node.role
        if node.process is not Process.UP or not isinstance(role, Leadership):
            return None
        try:
            self._decide.check_leader_epoch(fetch.leader_epoch, role.leader_epoch)
            if fetch.last_epoch >= 0:
                own = EpochEnd(*end_offset(node.log.epochs, fetch.last_epoch, node.log.end))
                diverging = replication.diverging_epoch(fetch.last_epoch, fetch.offset, own, 0)
                if diverging is not None:
                    return diverging
            asked = ReplicaFetch(fetch.broker_id, fetch.broker_epoch, fetch.offset, 0)
            registered = node.seen[fetch.broker_id].epoch
            noted = replication.note_fetch(role, asked, node.log.end, registered, 0)
        except OffsetOutOfRangeError:
            return EpochEnd(-1, 0)  # it begins again at the log start
        except KafkaError:
            return None
        return self._with_watermark(state, fetch.leader, node._replace(role=ordered(noted)))

    # Processes end and start.

    def _crashes(self, state: State, broker_id: int, node: Node) -> Iterator[Step]:
        bounds, ended = state.bounds, node._replace(role=None, seen=(), asked=None)
        if bounds.clean:
            less = state._replace(bounds=bounds._replace(clean=bounds.clean - 1))
            log = without_empty_epochs(node.log)
            yield f"{broker_id} is killed", with_node(less, broker_id, ended._replace(process=Process.DOWN, log=log))
        if bounds.lossy:
            less = state._replace(bounds=bounds._replace(lossy=bounds.lossy - 1))
            for end in range(node.log.end + 1):
                log = cut_at(node.log, end, is_lossy=True)
                after = with_node(less, broker_id, ended._replace(process=Process.LOST, log=log))
                check_loss(after)
                yield f"{broker_id} loses power, and all from offset {end}", after

    def _restarts(self, state: State, broker_id: int, node: Node) -> Iterator[Step]:
        is_cut = node.process is Process.LOST
        for image in self._decided(state.image, registers(broker_id, is_cut=is_cut)):
            up = node._replace(epoch=image.brokers[broker_id].epoch, process=Process.UP)
            yield f"{broker_id} registers", with_node(self._committed(state, image), broker_id, up)

    # The controller.

    def _controls(self, state: State) -> Iterator[Step]:
        bounds = state.bounds
        for broker_id, node in enumerate(state.nodes):
            broker = state.image.brokers[broker_id]
            is_up = node.process is Process.UP
            if not broker.is_fenced and (not is_up or bounds.fences):
                less = state._replace(bounds=bounds._replace(fences=bounds.fences - is_up))
                yield from self._commits(less, f"{broker_id} is fenced", fences(broker_id))
            if broker.is_fenced and is_up and node.role is not None and node.epoch == broker.epoch:
                yield from self._commits(state, f"{broker_id} is unfenced", unfences(broker_id))
            if node.asked is not None and is_up:
                yield from self._answers(state, broker_id, node, node.asked)
        if bounds.reassignments:
            less = state._replace(bounds=bounds._replace(reassignments=bounds.reassignments - 1))
            for target in self._targets:
                yield from self._commits(less, f"the partition moves to {target}", reassigns(target))
        if bounds.elections:
            less = state._replace(bounds=bounds._replace(elections=bounds.elections - 1))
            yield from self._commits(less, "the preferred leader is elected", elects_preferred)
        if state.pending is not None and self._is_accepted[state.pending.is_newest]:
            yield "the pending commit is written", self._committed(state, state.pending.image)

    def _commits(self, state: State, label: str, decide: Decide) -> Iterator[Step]:
        for image in self._decided(state.image, decide):
            yield label, self._committed(state, image)
            if state.bounds.ambiguous:
                yield f"{label}, which is written later", _pending(state, image)

    def _answers(self, state: State, broker_id: int, node: Node, asked: IsrChange) -> Iterator[Step]:
        """The controller takes the request for an ISR; its answer arrives or is lost."""
        assert isinstance(node.role, Leadership)
        for image, answer in self._altered(state.image, broker_id, node.epoch, asked):
            after = state
            if image != state.image:
                after = self._committed(state, image)
                yield f"{broker_id} has its ISR, and the answer is lost", after
                if state.bounds.ambiguous:
                    yield f"{broker_id} has its ISR, which is written later", _pending(state, image)
            if isinstance(answer, KafkaError) and replication.is_repeated(node.role, asked, answer):
                continue
            settled = ordered(replication.settle_proposal(node.role, asked, answer))
            label = f"{broker_id} is answered {answer if isinstance(answer, KafkaError) else answer.isr}"
            yield label, self._with_watermark(after, broker_id, node._replace(role=settled, asked=None))

    def _committed(self, state: State, image: Image) -> State:
        before, after = state.image.partition, image.partition
        if after.leader_epoch < before.leader_epoch or after.partition_epoch < before.partition_epoch:
            raise Violation("an epoch of the partition has fallen")
        pending = state.pending
        if pending is not None:
            pending = pending._replace(is_newest=False) if self._is_accepted[False] and pending.image != image else None
        return shown(state._replace(image=image, pending=pending))


def _pending(state: State, image: Image) -> State:
    bounds = state.bounds._replace(ambiguous=state.bounds.ambiguous - 1)
    return state._replace(bounds=bounds, pending=Pending(image))


def _lacks(node: Node, committed: tuple[int, ...], leader_epoch: int) -> bool:
    is_later = isinstance(node.role, Leadership) and node.role.leader_epoch > leader_epoch
    return is_later and node.log.values(len(committed)) != committed
