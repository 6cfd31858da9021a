"""Committed offsets of one group: journal order, open transactions, expiry; checked against a plain model."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalake.broker.groups.offsets import ExpiryRule, GroupOffsets
from kafkalake.broker.groups.records import CommittedOffset
from kafkalake.errors import UnstableOffsetCommitError

KEY, OTHER = ("clicks", 0), ("clicks", 1)
HOUR_MS = 3_600_000


def at(offset: int, committed_at_ms: int = 0) -> CommittedOffset:
    return CommittedOffset(offset, committed_at_ms=committed_at_ms)


def test_the_newest_commit_wins_and_an_older_one_read_again_changes_nothing() -> None:
    offsets = GroupOffsets()
    assert offsets.commit(KEY, at(5), 10)
    assert offsets.commit(KEY, at(3), 11)
    assert not offsets.commit(KEY, at(5), 10)
    assert offsets.fetch(KEY, require_stable=True) == at(3)
    assert offsets.fetch(OTHER, require_stable=True) is None


def test_a_transactions_offset_waits_for_its_end() -> None:
    offsets = GroupOffsets()
    offsets.commit(KEY, at(1), 0)
    offsets.commit_pending(7, KEY, at(2), 1)
    assert offsets.fetch(KEY, require_stable=False) == at(1)
    with pytest.raises(UnstableOffsetCommitError):
        offsets.fetch(KEY, require_stable=True)
    assert offsets.complete(7, committed=True) == [KEY]
    assert offsets.fetch(KEY, require_stable=True) == at(2)
    assert not offsets.has_pending


def test_an_aborted_transaction_leaves_what_was_there() -> None:
    offsets = GroupOffsets()
    offsets.commit_pending(7, KEY, at(2), 1)
    assert offsets.known_keys() == [KEY]
    assert offsets.complete(7, committed=False) == []
    assert offsets.fetch(KEY, require_stable=True) is None
    assert offsets.known_keys() == []


def test_a_plain_commit_after_a_transactions_outlives_the_transactions_end() -> None:
    offsets = GroupOffsets()
    offsets.commit_pending(7, KEY, at(2), 1)
    offsets.commit(KEY, at(9), 2)
    assert offsets.complete(7, committed=True) == []
    assert offsets.fetch(KEY, require_stable=True) == at(9)


def test_offsets_of_an_empty_group_age_from_when_it_became_empty() -> None:
    offsets = GroupOffsets()
    offsets.commit(KEY, at(1, committed_at_ms=0), 0)
    rule = ExpiryRule(empty_since_ms=5 * HOUR_MS, subscribed=frozenset())
    assert offsets.expired(rule, 6 * HOUR_MS - 1, HOUR_MS) == []
    assert offsets.expired(rule, 6 * HOUR_MS, HOUR_MS) == [KEY]


def test_only_offsets_of_topics_that_nobody_reads_expire() -> None:
    offsets = GroupOffsets()
    offsets.commit(KEY, at(1), 0)
    offsets.commit(("views", 0), at(1), 1)
    assert offsets.expired(ExpiryRule(None, frozenset({"clicks"})), 2 * HOUR_MS, HOUR_MS) == [("views", 0)]
    assert offsets.expired(ExpiryRule(None, None), 2 * HOUR_MS, HOUR_MS) == []


def test_an_expiry_of_its_own_overrides_the_retention() -> None:
    offsets = GroupOffsets()
    offsets.commit(KEY, CommittedOffset(1, expires_at_ms=100), 0)
    rule = ExpiryRule(None, frozenset())
    assert offsets.expired(rule, 99, 0) == []
    assert offsets.expired(rule, 100, 10 * HOUR_MS) == [KEY]


def test_an_offset_that_a_transaction_may_change_does_not_expire() -> None:
    offsets = GroupOffsets()
    offsets.commit(KEY, at(1), 0)
    offsets.commit_pending(7, KEY, at(2), 1)
    assert offsets.expired(ExpiryRule(None, frozenset()), 2 * HOUR_MS, HOUR_MS) == []


keys = st.sampled_from([KEY, OTHER, ("views", 0)])
producers = st.integers(1, 3)


class OffsetsAgainstModel(RuleBasedStateMachine):
    """The model keeps the whole journal and derives every answer from it anew."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[tuple[str, object, object, int]] = []
        self.offsets = GroupOffsets()

    def follow(self, offsets: GroupOffsets, position: int) -> None:
        kind, who, key, value = self.journal[position]
        if kind == "commit":
            offsets.commit(key, at(value), position)  # type: ignore[arg-type]
        elif kind == "remove":
            offsets.remove(key)  # type: ignore[arg-type]
        elif kind == "pending":
            offsets.commit_pending(who, key, at(value), position)  # type: ignore[arg-type]
        else:
            offsets.complete(who, committed=kind == "committed")  # type: ignore[arg-type]

    def write(self, kind: str, who: object, key: object, value: int) -> None:
        self.journal.append((kind, who, key, value))
        self.follow(self.offsets, len(self.journal) - 1)

    @rule(key=keys, value=st.integers(0, 99))
    def commit(self, key: object, value: int) -> None:
        self.write("commit", None, key, value)

    @rule(key=keys)
    def remove(self, key: object) -> None:
        self.write("remove", None, key, 0)

    @rule(key=keys, who=producers, value=st.integers(0, 99))
    def commit_in_transaction(self, key: object, who: int, value: int) -> None:
        self.write("pending", who, key, value)

    @rule(who=producers, kind=st.sampled_from(["committed", "aborted"]))
    def end_transaction(self, who: int, kind: str) -> None:
        self.write(kind, who, None, 0)

    @rule()
    def restart(self) -> None:
        self.offsets = GroupOffsets()
        for position in range(len(self.journal)):
            self.follow(self.offsets, position)

    @invariant()
    def says_what_the_journal_says(self) -> None:
        state: dict[object, tuple[int, int]] = {}
        open_commits: dict[object, list[tuple[object, int, int]]] = {}
        for position, (kind, who, key, value) in enumerate(self.journal):
            if kind == "commit":
                state[key] = (value, position)
            elif kind == "remove":
                state.pop(
                    key, None
                )  # and what open transactions would make of it (Kafka's OffsetMetadataManager.replay)
                kept = {
                    one: [commit for commit in commits if commit[0] != key] for one, commits in open_commits.items()
                }
                open_commits = {one: commits for one, commits in kept.items() if commits}
            elif kind == "pending":
                open_commits.setdefault(who, []).append((key, value, position))
            else:
                for pending_key, pending_value, written_at in open_commits.pop(who, []):
                    if kind == "committed" and state.get(pending_key, (0, -1))[1] < written_at:
                        state[pending_key] = (pending_value, written_at)
        unstable = {key for commits in open_commits.values() for key, _, _ in commits}
        for key in (KEY, OTHER, ("views", 0)):
            found = self.offsets.fetch(key, require_stable=False)
            assert (None if found is None else found.offset) == (state[key][0] if key in state else None)
            if key in unstable:
                with pytest.raises(UnstableOffsetCommitError):
                    self.offsets.fetch(key, require_stable=True)
        assert set(self.offsets.known_keys()) == set(state) | unstable
        assert self.offsets.has_pending == bool(open_commits)


TestOffsetsAgainstModel = pytest.mark.exhaustive(OffsetsAgainstModel.TestCase)
TestOffsetsAgainstModel.settings = examples(60, stateful_step_count=30)
