"""States of a transactional id, with Kafka's names and their numbers in the journal."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """A state as (number in the journal, Kafka's name)."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def label(self) -> str:
        return self.value[1]

    @property
    def is_prepared(self) -> bool:
        """Return whether the outcome is decided and markers may be missing."""
        return self in PREPARED

    @property
    def is_settled(self) -> bool:
        """Return whether no transaction is open, so that a new one may begin and the id may expire."""
        return self in SETTLED


PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
SETTLED = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

# State -> its successors. PrepareEpochFence, which Kafka does not write either, exists for its name and number only: here a fencing
# abort is prepared in one step.
NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset(),
}

BY_NUMBER = {state.number: state for state in State}
BY_LABEL = {state.label: state for state in State}
