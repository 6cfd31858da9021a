"""A state machine against a plain model: producers that come, write, end and come back, appends and markers that fail or are
slow, time that passes, and a coordinator that dies at any step and is replaced by one that reads the journal.

The model knows only what clients were told: an end that was acknowledged stays as it is, every partition of an acknowledged
transaction has exactly its marker, epochs given to producers grow, and when the faults are over nothing is left open.
"""

from __future__ import annotations

import pytest
from broker.transactions.our_world import ID, Cluster, Crashed
from examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.decisions import FaultPoint, Marker
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.errors import (
    InvalidTxnStateError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    TransactionalIdNotFoundError,
)

PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]


class TransactionsSurvive(RuleBasedStateMachine):
    """One transactional id, used by whoever was given it last (and by zombies)."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.given: list[ProducerIdAndEpoch] = []
        self.added: set[tuple[str, int]] = set()
        self.promised: list[tuple[Marker, frozenset[tuple[str, int]]]] = []
        self.v2 = False
        self.ending: bool | None = None

    @property
    def newest(self) -> ProducerIdAndEpoch:
        return self.given[-1]

    def _call(self, call: object) -> None:
        """Make a request; where the coordinator dies in it, a new one starts."""
        assert callable(call)
        try:
            call()
        except Crashed:
            self._restart()

    def _restart(self) -> None:
        self.cluster.crash_at = None
        self.cluster.logs.forget_held()
        self.cluster.journal.release()  # it may have been written: nobody was told
        self.cluster.start()

    @initialize(v2=st.booleans())
    def choose_client(self, v2: bool) -> None:
        self.v2 = v2

    @rule(known=st.booleans())
    def init(self, known: bool) -> None:
        expected = self.newest if known and self.given else None
        before = self.newest if self.given else None

        def reply(result: ProducerResult) -> None:
            if result.error is None:
                producer = ProducerIdAndEpoch(result.producer_id, result.epoch)
                if before is not None and before == self.newest:
                    assert producer.producer_id == before.producer_id and producer.epoch > before.epoch
                self.given.append(producer)
                self.added = set()
                self.ending = None

        self._call(lambda: self.cluster.coordinator.init_producer_id(ID, 60_000, expected, reply))

    @precondition(lambda self: self.given)
    @rule(partition=st.sampled_from(PARTITIONS))
    def add(self, partition: tuple[str, int]) -> None:
        if self.ending is not None:
            return  # first it has to know how that ended
        producer, v2 = self.newest, self.v2

        def reply(error: ErrorClass | None) -> None:
            if error is None and producer == self.newest:
                self.added.add(partition)

        self._call(
            lambda: self.cluster.coordinator.add_partitions(
                ID, producer, [partition], reply, client_version=2 if v2 else 0
            )
        )

    @precondition(lambda self: self.given)
    @rule(committed=st.booleans())
    def end(self, committed: bool) -> None:
        """A client asks again until it is told, and asks for nothing else before."""
        self.ending = committed if self.ending is None else self.ending
        producer, partitions, v2, committed = self.newest, frozenset(self.added), self.v2, self.ending

        def reply(result: ProducerResult) -> None:
            if result.error is InvalidTxnStateError and producer == self.newest:
                # Somebody else may have aborted it meanwhile, so that a commit comes too late; an abort never does.
                assert committed or not partitions
                self.ending = None
            if result.error is not None:
                return
            self.promised.append(
                (Marker(producer.producer_id, result.epoch if v2 else producer.epoch, committed), partitions)
            )
            if producer == self.newest:
                self.added, self.ending = set(), None
                if v2:
                    assert result.epoch == producer.epoch + 1
                    self.given.append(ProducerIdAndEpoch(result.producer_id, result.epoch))

        self._call(lambda: self.cluster.coordinator.end(ID, EndRequest(producer, committed, v2), reply))

    @precondition(lambda self: len(self.given) > 1 and self.given[-1] != self.given[-2])
    @rule(committed=st.booleans(), data=st.data())
    def zombie(self, committed: bool, data: st.DataObject) -> None:
        """An old epoch neither adds anything nor ends anything."""
        zombie = self.given[data.draw(st.integers(0, len(self.given) - 2))]
        if zombie == self.newest:
            return
        answers: list[object] = []
        self._call(lambda: self.cluster.coordinator.add_partitions(ID, zombie, PARTITIONS, answers.append))
        self._call(
            lambda: self.cluster.coordinator.end(
                ID, EndRequest(zombie, committed, False), lambda result: answers.append(result.error)
            )
        )
        assert None not in answers

    @rule(milliseconds=st.sampled_from([50, 500, 61_000]))
    def time(self, milliseconds: int) -> None:
        self._call(lambda: self.cluster.advance(milliseconds, step_ms=max(milliseconds // 20, 50)))

    @rule(
        fault=st.sampled_from(["journal", "partition", "slow", "fast", "die"]),
        partition=st.sampled_from(PARTITIONS),
        journal=st.booleans(),
    )
    def fault(self, fault: str, partition: tuple[str, int], journal: bool) -> None:
        cluster = self.cluster
        match fault:
            case "journal":
                cluster.journal.fail_next = KafkaStorageError("no space")
            case "partition":
                cluster.logs.refuse[partition] = [NotLeaderOrFollowerError]
            case "slow":
                cluster.journal.hold, cluster.logs.hold = journal, not journal
            case "fast":
                self.fast()
            case "die":
                self._restart()

    @rule(point=st.sampled_from(FaultPoint), committed=st.booleans(), partition=st.sampled_from(PARTITIONS))
    def die_while_it_ends(self, point: FaultPoint, committed: bool, partition: tuple[str, int]) -> None:
        self.whole_transaction(committed, partition, point)

    @rule(committed=st.booleans(), partition=st.sampled_from(PARTITIONS))
    def transaction(self, committed: bool, partition: tuple[str, int]) -> None:
        self.whole_transaction(committed, partition, None)

    @rule()
    def fast(self) -> None:
        """What was slow is over."""
        self.cluster.journal.hold = self.cluster.logs.hold = False
        self._call(self.cluster.journal.release)
        self._call(self.cluster.logs.release)

    def whole_transaction(self, committed: bool, partition: tuple[str, int], point: FaultPoint | None) -> None:
        if not self.given:
            self.init(known=False)
        if self.given:
            self.add(partition)
            self.cluster.crash_at = point
            self.end(committed)
            self.cluster.crash_at = None

    @invariant()
    def one_outcome_for_each_epoch(self) -> None:
        if not self.v2:
            return  # an older client ends many transactions in one epoch
        for markers in self.cluster.logs.markers.values():
            outcomes: dict[tuple[int, int], bool] = {}
            for marker in markers:
                assert outcomes.setdefault((marker.producer_id, marker.epoch), marker.committed) is marker.committed

    def teardown(self) -> None:
        """The faults are over: all that was promised is there, nothing is left open, and the producer goes on."""
        cluster = self.cluster
        cluster.crash_at = None
        cluster.journal.hold = cluster.logs.hold = False
        cluster.journal.fail_next = None
        cluster.logs.refuse = {}
        cluster.journal.release()
        cluster.logs.release()
        cluster.advance(130_000, step_ms=1_000)
        try:
            state = cluster.state
        except TransactionalIdNotFoundError:
            assert not self.given
            return
        assert state in ("Empty", "CompleteCommit", "CompleteAbort")
        for marker, partitions in self.promised:
            for partition in partitions:
                assert marker in cluster.logs.markers[partition]
        before = cluster.coordinator.describe(ID)
        cluster.start()
        assert cluster.coordinator.describe(ID) == before
        result = cluster.init()[0]
        assert result.error is None
        producer = ProducerIdAndEpoch(result.producer_id, result.epoch)
        assert cluster.add(producer, PARTITIONS[0]) == [None]
        assert cluster.end(producer, committed=True)[0].error is None
        assert cluster.state == "CompleteCommit"


TransactionsSurvive.TestCase.settings = examples(60, stateful_step_count=40)
TestTransactionsSurvive = pytest.mark.exhaustive(TransactionsSurvive.TestCase)
