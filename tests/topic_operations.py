"""What hypothesis writes to a topic that is cleaned: batches, transactions of two producers, seals, at times that jump."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compacted_lake import HOUR_MS, CompactedTopic
from hypothesis import strategies as st
from written_lake import ABORT, COMMIT

Operation = tuple[str, int | None, Any]

_keys = st.one_of(st.sampled_from([b"a", b"b", b"c", b"longer key 4", b""]), st.none())
_pairs = st.lists(st.tuples(_keys, st.sampled_from([b"1", b"22", None])), min_size=1, max_size=4)
operations = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([-1, 1, 2]), _pairs),
    st.tuples(st.just("transaction"), st.sampled_from([1, 2]), _pairs),
    st.tuples(st.just("end"), st.sampled_from([1, 2]), st.sampled_from([ABORT, COMMIT])),
    st.tuples(st.just("seal"), st.none(), st.none()),
)
timed_operations = st.one_of(operations, st.tuples(st.just("hour"), st.integers(1, 9), st.none()))


def act(topic: CompactedTopic, given: Sequence[Operation]) -> None:
    """Do what hypothesis says, as far as it makes sense where the topic is."""
    for what, number, detail in given:
        if what == "seal":
            topic.seal()
        elif what == "hour":
            topic.time_ms = (number or 0) * HOUR_MS
        elif what == "end":
            if topic.is_open(number):
                topic.end(number, detail)
        else:
            inside = what == "transaction" or topic.is_open(number)
            topic.write(detail, number, transactional=inside)
