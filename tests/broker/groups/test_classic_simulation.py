"""Simulated consumers, well-behaved ones, against the coordinator, while consumers die and come back, time passes, appends
fail or take long and the coordinator restarts.

What must hold: each request is answered at most once; members that believe in the same generation have the assignment that
the leader of that generation made, so a partition has one owner in it; a commit is accepted from the current generation
only; and when the faults are over, all who live form one stable group that owns every partition exactly once.
"""

from __future__ import annotations

import pytest
from broker.groups.coordination import Cluster
from broker.groups.scenario import join_request, protocols
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.groups.requests import JoinResult, LeavingMember, SyncRequest, SyncResult
from kafkalake.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    KafkaStorageError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

PARTITIONS = 6
GROUP = "g"
QUIET_MS = 200_000
STEP_MS = 1_000


class SimulatedConsumer:
    """What a Kafka client does: join, sync, then heartbeats; on an error what the protocol says."""

    def __init__(self, cluster: Cluster, instance: str | None, topic: str) -> None:
        self.cluster = cluster
        self.instance = instance
        self.topic = topic
        self.member_id = ""
        self.generation_id = -1
        self.owned: frozenset[int] | None = None
        self.alive = True
        self.fenced = False
        self.waiting = False
        self.incarnation = 0
        self.leads: JoinResult | None = None
        self.joined = False

    def step(self) -> None:
        """The next thing this client does, if nothing is under way."""
        if not self.alive or self.fenced or self.waiting:
            return
        if self.owned is not None:
            self.heartbeat()
        elif self.joined:
            self.sync()
        else:
            self.join()

    def join(self) -> None:
        self.waiting = True
        incarnation = self.incarnation
        answered = []

        def reply(result: JoinResult) -> None:
            answered.append(result)
            assert len(answered) == 1
            if incarnation == self.incarnation:
                self.waiting = False
                self.on_joined(result)

        request = join_request(
            self.member_id,
            group_instance_id=self.instance,
            rebalance_timeout_ms=20_000,
            protocols=protocols("range", topic=self.topic),
        )
        self.cluster.coordinator.join_group(GROUP, request, reply)

    def on_joined(self, result: JoinResult) -> None:
        if result.error is None:
            assert result.generation_id >= 1
            self.member_id, self.generation_id = result.member_id, result.generation_id
            self.joined = True
            self.leads = result if result.leader == result.member_id else None
            if self.leads is not None:
                assert result.member_id in {member.member_id for member in result.members}
        elif result.error is MemberIdRequiredError:
            self.member_id = result.member_id
        else:
            self.on_error(result.error)

    def sync(self) -> None:
        self.waiting = True
        incarnation, generation_id = self.incarnation, self.generation_id
        answered = []

        def reply(result: SyncResult) -> None:
            answered.append(result)
            assert len(answered) == 1
            if incarnation == self.incarnation:
                self.waiting = False
                self.on_synced(result, generation_id)

        assignments = {}
        if self.leads is not None and not self.leads.skip_assignment:
            members = [member.member_id for member in self.leads.members]
            assignments = {
                member: bytes(range(index, PARTITIONS, len(members))) for index, member in enumerate(members)
            }
        request = SyncRequest(self.member_id, generation_id, assignments, self.instance, "consumer", "range")
        self.cluster.coordinator.sync_group(GROUP, request, reply)

    def on_synced(self, result: SyncResult, generation_id: int) -> None:
        if result.error is None:
            self.owned = frozenset(result.assignment)
            assert generation_id == self.generation_id
        else:
            self.on_error(result.error)

    def heartbeat(self) -> None:
        try:
            self.cluster.coordinator.heartbeat(GROUP, self.member_id, self.generation_id, self.instance)
        except KafkaError as error:
            self.on_error(type(error))

    def on_error(self, error: type[KafkaError]) -> None:
        self.joined, self.leads, self.owned = False, None, None
        if error is FencedInstanceIdError:
            self.fenced = True
        elif error in (UnknownMemberIdError, IllegalGenerationError):
            if error is UnknownMemberIdError:
                self.member_id = ""
            self.generation_id = -1
        elif error is not RebalanceInProgressError:
            assert error.retriable, error

    def lost_connection(self) -> None:
        """The request under way will not be answered; the client sends it again."""
        self.incarnation += 1
        self.waiting = False

    def restart(self) -> None:
        """The process is killed and a new one started, with the same instance id if it had one."""
        self.lost_connection()
        self.member_id, self.generation_id = "", -1
        self.joined, self.leads, self.owned = False, None, None
        self.alive, self.fenced = True, False


def check_one_owner(consumers: list[SimulatedConsumer]) -> None:
    """Among those who believe in one generation no partition has two owners (an incarnation that was replaced excepted)."""
    owners: dict[tuple[int, int], str] = {}
    for consumer in consumers:
        for partition in consumer.owned or ():
            key = (consumer.generation_id, partition)
            assert owners.setdefault(key, consumer.member_id) == consumer.member_id
            owners[key] = consumer.member_id


actions = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 3)),
        st.tuples(st.just("step"), st.integers(0, 3)),
        st.tuples(st.just("step"), st.integers(0, 3)),
        st.tuples(st.just("time"), st.sampled_from([500, 3_000, 5_000, 11_000])),
        st.tuples(st.just("kill"), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.integers(0, 3)),
        st.tuples(st.just("disconnect"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.integers(0, 3)),
        st.tuples(st.just("subscribe"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["fail", "hold", "release", "coordinator"]), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.exhaustive
@examples(150)
@given(actions, st.tuples(*[st.booleans()] * 4))
def test_whatever_happens_one_owner_and_in_the_end_a_stable_group(
    script: list[tuple[str, int]], static: tuple[bool, ...]
) -> None:
    cluster = Cluster()
    consumers = [
        SimulatedConsumer(cluster, f"instance-{number}" if is_static else None, "clicks")
        for number, is_static in enumerate(static)
    ]
    for action, argument in script:
        perform(cluster, consumers, action, argument)
        check_one_owner(consumers)

    cluster.journal.release()
    cluster.journal.hold = False
    cluster.journal.fail_next = None
    for consumer in consumers:
        if consumer.waiting:
            consumer.lost_connection()  # its coordinator may have been restarted
    for _ in range(QUIET_MS // STEP_MS):
        for consumer in consumers:
            consumer.step()
        cluster.advance(STEP_MS)
        check_one_owner(consumers)

    living = [consumer for consumer in consumers if consumer.alive and not consumer.fenced]
    if living:
        assert cluster.coordinator.describe_group(GROUP).state == "Stable"
        assert len({consumer.generation_id for consumer in living}) == 1
        owned = [partition for consumer in living for partition in consumer.owned or ()]
        assert sorted(owned) == list(range(PARTITIONS))
        follower_of_the_journal = [cluster.coordinator.describe_group(GROUP).members]
        cluster.start()
        assert [cluster.coordinator.describe_group(GROUP).members] == follower_of_the_journal
        for consumer in living:
            consumer.heartbeat()
            assert consumer.owned is not None


def perform(cluster: Cluster, consumers: list[SimulatedConsumer], action: str, argument: int) -> None:
    """One action of the script."""
    match action:
        case "step":
            consumers[argument].step()
        case "time":
            cluster.advance(argument)
        case "kill":
            consumers[argument].lost_connection()
            consumers[argument].alive = False
            consumers[argument].owned = None
        case "restart":
            consumers[argument].restart()
        case "disconnect":
            consumers[argument].lost_connection()
        case "leave":
            leave(cluster, consumers[argument])
        case "subscribe":
            consumers[argument].topic = "views" if consumers[argument].topic == "clicks" else "clicks"
            consumers[argument].joined = False
            consumers[argument].owned = None
            consumers[argument].lost_connection()
        case "fail":
            cluster.journal.fail_next = KafkaStorageError("no space")
        case "hold":
            cluster.journal.hold = True
        case "release":
            cluster.journal.hold = False
            cluster.journal.release()
        case "coordinator":
            cluster.journal.release()
            cluster.start()
            for consumer in consumers:
                if consumer.waiting:
                    consumer.lost_connection()


def leave(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    """A consumer closes; another is started in its place."""
    if consumer.alive and consumer.member_id:
        cluster.leave(GROUP, LeavingMember(consumer.member_id, consumer.instance))
        consumer.restart()
