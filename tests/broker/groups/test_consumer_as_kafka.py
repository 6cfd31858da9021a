"""The same heartbeats get the same answers from our consumer group and from an Apache Kafka 4.1.1.

Which partition a member gets is compared with the range assignor; of the uniform one only how many.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from broker.groups.consumer_worlds import REBALANCE_MS, Beat, KafkaGroup, OurGroup, World
from contract.test_consumer_groups_contract import create_assignable
from contract.test_groups_contract import await_coordinator
from contract.wire_client import WireClient
from kafka_reference import ApacheKafka

Line = object
Script = Callable[[World, str], Iterator[Line]]


def join(w: World, member: str, topic: str, assignor: str | None = "range", instance: str | None = None) -> Beat:
    return w.beat(member, 0, [], [topic], timeout_ms=REBALANCE_MS, assignor=assignor, instance=instance)


def two_members(w: World, topic: str) -> Iterator[Line]:
    """One after the other, with everything they can do wrong; then one leaves."""
    yield w.beat("a", 1)
    yield w.beat("a", -1)
    first = join(w, "a", topic)
    yield first
    yield w.describe()
    yield w.beat("a", 1)
    yield w.beat("a", 1, first[2])
    yield w.beat("a", 1, first[2], [topic], timeout_ms=REBALANCE_MS)
    yield w.beat("a", 2)
    yield w.beat("nobody", 1)
    yield join(w, "b", topic)
    yield w.describe()
    yield w.beat("b", 2)
    yield w.beat("a", 1)
    yield w.describe()
    yield w.beat("a", 1)
    yield w.beat("a", 1, first[2])
    yield w.beat("b", 2)
    yield w.beat("a", 1, [(topic, 0), (topic, 1)])
    yield w.beat("a", 1, [(topic, 0), (topic, 1)])
    yield w.beat("a", 1, first[2])
    yield w.beat("a", 1)
    yield w.describe()
    yield w.beat("b", 2)
    yield w.beat("b", 2, [])
    yield w.describe()
    yield w.beat("b", -1)
    yield w.describe()
    yield w.beat("b", 2)
    yield w.beat("b", -1)
    yield w.beat("a", 2)
    yield w.describe()
    yield w.beat("a", -1)
    yield w.describe()
    yield w.beat("a", 3)
    yield join(w, "a", topic)
    yield w.describe()


def rejoining(w: World, topic: str) -> Iterator[Line]:
    """A member that joins again under the id it has."""
    yield join(w, "a", topic)
    yield join(w, "a", topic)
    yield w.beat("a", 1)
    yield w.beat("a", 1, None, [f"{topic}-other"])
    yield join(w, "a", topic)
    yield w.describe()
    yield w.beat("a", 2, None, [])
    yield w.describe()


def static_members(w: World, topic: str) -> Iterator[Line]:
    """KIP-345 in the new protocol."""
    yield join(w, "a", topic, instance="i")
    yield join(w, "b", topic, instance="i")
    yield join(w, "a", topic, instance="i")
    yield w.beat("b", 1, instance="i")
    yield w.beat("b", 1, instance="unknown")
    yield w.beat("b", -1, instance="i")
    yield w.beat("b", -2, instance="i")
    yield w.beat("a", -2)
    yield w.beat("a", -2, instance="i")
    yield w.describe()
    yield w.beat("a", 1, instance="i")
    yield join(w, "b", topic, instance="i")
    yield w.describe()
    yield w.beat("a", 1, instance="i")
    yield w.beat("b", 1, instance="i")
    yield join(w, "c", topic, instance="j")
    yield w.describe()
    yield w.beat("b", -1, instance="i")
    yield w.describe()
    yield w.beat("c", 2, instance="j")
    yield w.describe()


def assignors(w: World, topic: str) -> Iterator[Line]:
    """Members vote; subscriptions change."""
    yield join(w, "a", topic, None)
    yield w.describe()
    yield join(w, "b", topic, "range")[0]
    yield w.describe()[4]
    yield join(w, "c", topic, "odd")
    yield w.describe()[2:5]
    yield w.beat("a", 1, [(topic, 0), (topic, 1)])[:2]
    yield w.beat("b", 2)[:2]
    yield w.beat("b", 2, None, [topic, f"{topic}-other"])[:2]
    yield w.describe()[1:5]
    yield w.beat("b", 3, None, None, assignor="uniform")[:2]
    yield w.describe()[1:5]


RESOLVING_BEATS_MAX = 1_000
"""Apache Kafka resolves a regular expression beside the heartbeats; on a busy machine many find nothing."""


def regular_expressions(w: World, topic: str) -> Iterator[Line]:
    """KIP-848's server-side regular expressions."""
    yield w.beat("a", 0, [], None, regex="(", timeout_ms=REBALANCE_MS)
    yield w.describe()[0]
    found = w.beat("a", 0, [], None, regex=f"{topic}-o.*", timeout_ms=REBALANCE_MS)
    yield found[0]
    for _ in range(RESOLVING_BEATS_MAX):
        w.settle()
        found = w.beat("a", found[1])
        if any(w.describe()[5][0][2:]):
            break
    yield w.describe()[1], w.describe()[5][0][2:]


def bad_input(w: World, topic: str) -> Iterator[Line]:
    """What makes no sense leaves nothing behind."""
    yield w.beat("", 0, [], [topic], timeout_ms=REBALANCE_MS)
    yield w.beat("a", 0, [], [topic])
    yield w.beat("a", 0, None, [topic], timeout_ms=REBALANCE_MS)
    yield w.beat("a", 0, [(topic, 0)], [topic], timeout_ms=REBALANCE_MS)
    yield w.beat("a", 0, [], None, timeout_ms=REBALANCE_MS)
    yield w.beat("a", -3, [], [topic], timeout_ms=REBALANCE_MS)
    yield w.beat("a", -2)
    yield w.beat("a", 0, [], [topic], timeout_ms=REBALANCE_MS, instance="")
    yield w.beat("a", 0, [], [topic], timeout_ms=REBALANCE_MS, assignor="odd")
    yield w.beat("a", 5)
    yield w.describe()
    yield w.beat("a", 0, [], [f"{topic}-not-there"], timeout_ms=REBALANCE_MS)
    yield w.describe()
    yield w.beat("b", 0, [], [], timeout_ms=REBALANCE_MS)


SCRIPTS: list[Script] = [two_members, rejoining, static_members, assignors, regular_expressions, bad_input]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_our_group_answers_as_kafka_does(script: Script, kafka_reference: ApacheKafka) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    counts = {topic: 4, f"{topic}-other": 2}
    servers, group = kafka_reference.bootstrap_servers, f"group-{uuid.uuid4().hex[:8]}"
    with WireClient(servers) as client:
        await_coordinator(client, group)
        ids = {name: create_assignable(client, group, name, count) for name, count in counts.items()}
    theirs = script(KafkaGroup(servers, group, ids), topic)
    ours = script(OurGroup(counts), topic)
    differences = []
    for number, (expected, found) in enumerate(zip(theirs, ours, strict=True), 1):
        if found != expected:
            differences.append(f"line {number}: Kafka {expected}, ours {found}")
    assert not differences, "\n".join(differences)
