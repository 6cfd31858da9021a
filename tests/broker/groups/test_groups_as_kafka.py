"""The same requests get the same answers from our coordinator and from an Apache Kafka 4.1.1.

Each script is a function of a world; what it yields is compared line by line.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from broker.groups import coordination
from broker.groups.worlds import SESSION_MS, KafkaWorld, OurWorld, World
from kafka_reference import ApacheKafka, create_topic

Line = object
Script = Callable[[World, str, str], Iterator[Line]]


def new_member(w: World, group: str, topic: str, *names: str) -> str:
    """A member id for a dynamic member."""
    return str(w.join(group, "", None, names or ("range",), topic).get()["member"])


def one_member(w: World, group: str, topic: str, instance: str | None = None) -> str:
    """A stable group with one member; its id."""
    member = "" if instance is not None else new_member(w, group, topic)
    joined = w.join(group, member, instance, ("range",), topic).get()
    assert joined["error"] == "NONE"
    assert w.sync(group, joined["member"], 1, {joined["member"]: b"all"}, instance).get()["error"] == "NONE"
    return str(joined["member"])


def outline(answer: dict[str, object]) -> tuple[object, ...]:
    """A join's answer without the ids, which are random."""
    member = answer["member"]
    return (
        answer["error"],
        answer["generation"],
        answer["protocol"],
        "has an id" if member else "no id",
        answer["leader"] == member if answer["error"] == "NONE" else answer["leader"],
        len(answer["members"]),  # type: ignore[arg-type]
        answer["skip"],
    )


def life_of_a_dynamic_member(w: World, group: str, topic: str) -> Iterator[Line]:
    yield w.describe(group)
    first = w.join(group, "", None, ("range", "sticky"), topic).get()
    yield outline(first)
    member = first["member"]
    yield w.heartbeat(group, member, -1, None)
    yield w.heartbeat(group, member, 0, None)
    yield w.sync(group, member, 0, {}, None).get()
    yield outline(w.join(group, member, None, ("range", "sticky"), topic).get())
    yield w.describe(group)
    yield w.heartbeat(group, member, 1, None)
    yield w.commit(group, [(topic, 0, 1, "")], member, 1)
    yield w.sync(group, member, 2, {member: b"all"}, None).get()
    yield w.sync(group, "other", 1, {member: b"all"}, None).get()
    yield w.sync(group, member, 1, {member: b"all"}, None).get()
    yield w.describe(group)
    yield w.sync(group, member, 1, {}, None).get()
    yield w.heartbeat(group, member, 1, None)
    yield w.heartbeat(group, member, 0, None)
    yield w.heartbeat(group, "other", 1, None)
    yield w.heartbeat(group, "", 1, None)
    yield w.leave(group, [("other", None), (member, None), (member, None)])
    yield w.describe(group)
    yield w.heartbeat(group, member, 1, None)
    yield outline(w.join(group, member, None, ("range",), topic).get())
    yield w.delete([group, group + "-nothing"])
    yield w.describe(group)


def joins_of_a_stable_group(w: World, group: str, topic: str) -> Iterator[Line]:
    leader = one_member(w, group, topic)
    follower = new_member(w, group, topic)
    waiting = w.join(group, follower, None, ("range",), topic)
    w.settle()
    yield waiting.is_there
    yield w.heartbeat(group, leader, 1, None)
    yield w.sync(group, leader, 1, {}, None).get()
    yield w.describe(group)
    yield outline(w.join(group, leader, None, ("range",), topic).get())
    yield outline(waiting.get())
    of_follower = w.sync(group, follower, 2, {}, None)
    w.settle()
    yield of_follower.is_there
    yield w.sync(group, leader, 2, {leader: b"0", follower: b"1", "stranger": b"2"}, None).get()
    yield of_follower.get()
    yield outline(w.join(group, follower, None, ("range",), topic).get())  # unchanged follower
    yield w.describe(group)
    yield outline(w.join(group, "", None, ("sticky",), topic).get())
    yield outline(w.join(group, "", None, (), topic).get())
    yield outline(w.join(group, follower, None, ("sticky",), topic).get())
    yield outline(w.join(group, "stranger", None, ("range",), topic).get())
    yield outline(w.join(group, leader, "instance", ("range",), topic).get())
    waiting = w.join(group, leader, None, ("range",), topic)  # a leader that rejoins
    w.settle()
    yield waiting.is_there
    yield w.describe(group)
    yield w.leave(group, [(follower, None)])
    yield outline(waiting.get())
    yield w.leave(group, [(leader, None)])
    yield w.describe(group)


def static_members(w: World, group: str, topic: str) -> Iterator[Line]:
    old = one_member(w, group, topic, "one")
    back = w.join(group, "", "one", ("range",), topic).get()
    new = str(back["member"])
    yield outline(back)
    yield old == new
    yield w.heartbeat(group, old, 1, "one")
    yield w.heartbeat(group, old, 1, None)
    yield w.heartbeat(group, new, 1, "one")
    yield w.heartbeat(group, new, 1, None)
    yield w.heartbeat(group, new, 1, "two")
    yield w.sync(group, old, 1, {}, "one").get()
    yield w.sync(group, new, 1, {}, "one").get()
    yield outline(w.join(group, old, "one", ("range",), topic).get())
    yield w.leave(group, [(old, "one"), ("", "two"), ("", None)])
    yield w.describe(group)
    other = w.join(group, "", "two", ("range",), topic)
    w.settle()
    yield other.is_there
    other_again = w.join(group, "", "two", ("range",), topic)
    yield outline(other.get())
    w.settle()
    yield other_again.is_there
    yield outline(w.join(group, new, "one", ("range",), topic).get())
    yield outline(other_again.get())
    second = str(other_again.get()["member"])
    back = w.join(group, "", "two", ("range",), topic)  # between join and sync
    w.settle()
    yield back.is_there
    yield w.heartbeat(group, second, 2, "two")
    yield w.leave(group, [("", "one"), ("", "two")])
    yield outline(back.get())
    yield w.describe(group)


def times_that_run_out(w: World, group: str, topic: str) -> Iterator[Line]:
    leader = one_member(w, group, topic)
    follower = new_member(w, group, topic)
    waiting = w.join(group, follower, None, ("range",), topic)
    w.settle()
    w.pass_time(2_000)
    yield waiting.is_there
    yield w.heartbeat(group, leader, 1, None)
    w.pass_time(1_500)  # past the rebalance timeout: the leader did not rejoin
    yield outline(waiting.get())
    yield w.heartbeat(group, leader, 1, None)
    w.pass_time(3_500)  # nor did the follower ask for its assignment
    yield w.describe(group)
    yield w.heartbeat(group, follower, 2, None)
    member = one_member_again(w, group, topic)
    yield member[1]
    w.pass_time(SESSION_MS + 500)
    yield w.describe(group)
    yield w.heartbeat(group, member[0], 4, None)


def one_member_again(w: World, group: str, topic: str) -> tuple[str, object]:
    """A member for a group that has had others."""
    member = new_member(w, group, topic)
    joined = w.join(group, member, None, ("range",), topic).get()
    w.sync(group, member, joined["generation"], {member: b"all"}, None).get()
    return member, joined["generation"]


def votes(w: World, group: str, topic: str) -> Iterator[Line]:
    lists = [("range", "sticky", "roundrobin"), ("sticky", "range"), ("roundrobin", "sticky", "range")]
    leader = one_member_with(w, group, topic, lists[0])
    answers = []
    for names in lists[1:]:
        answers.append(w.join(group, new_member(w, group, topic, *names), None, names, topic))
        w.settle()
    answers.append(w.join(group, leader, None, lists[1], topic))
    yield [(answer.get()["error"], answer.get()["protocol"]) for answer in answers]


def one_member_with(w: World, group: str, topic: str, names: tuple[str, ...]) -> str:
    member = new_member(w, group, topic, *names)
    assert w.join(group, member, None, names, topic).get()["error"] == "NONE"
    w.sync(group, member, 1, {member: b"all"}, None).get()
    return member


def offsets(w: World, group: str, topic: str) -> Iterator[Line]:
    yield w.commit(group, [(topic, 0, 5, "note")], "", 1)
    yield w.commit(group, [(topic, 0, 5, "note")], "someone", 1)
    yield w.describe(group)
    yield w.fetch(group)
    yield w.commit(group, [(topic, 0, 5, "note"), (topic, 1, 6, "x" * 4096), (topic, 2, 7, "x" * 4097)])
    yield w.commit(group, [(topic, 99, 5, ""), ("nothing-" + topic, 0, 5, "")])
    yield w.fetch(group)
    yield w.describe(group)
    yield w.commit(group, [(topic, 0, -1, "")])
    yield w.commit(group, [(topic, 1, -5, "")])
    yield w.fetch(group)
    yield w.commit(group, [(topic, 0, 3, "")], "someone")
    yield w.delete_offsets(group, topic, [0, 2])
    yield w.delete_offsets(group + "-nothing", topic, [0])
    yield w.fetch(group)
    member = one_member(w, group, topic)
    yield w.commit(group, [(topic, 0, 8, "")])
    yield w.commit(group, [(topic, 0, 8, "")], member, 0)
    yield w.commit(group, [(topic, 0, 8, "")], "other", 1)
    yield w.commit(group, [(topic, 0, 8, "")], member, 1)
    yield w.delete_offsets(group, topic, [0, 1])
    yield w.delete([group])
    joining = w.join(group, new_member(w, group, topic), None, ("range",), topic)
    w.settle()
    yield w.commit(group, [(topic, 0, 9, "")], member, 1)
    yield w.leave(group, [(member, None)])
    yield outline(joining.get())
    yield w.fetch(group)
    yield w.leave(group, [(str(joining.get()["member"]), None)])
    yield w.commit(group, [(topic, 0, 10, "")])
    yield w.delete([group])
    yield w.fetch(group)


def leaving(w: World, group: str, topic: str) -> Iterator[Line]:
    """By an administrator, who may name anybody."""
    yield w.leave(group, [("nobody", None), ("", "nothing"), ("", None)])
    yield w.leave(group, [])
    member = one_member(w, group, topic, "one")
    yield w.leave(group, [])
    yield w.leave(
        group, [("nobody", None), ("", "nothing"), ("nobody", "nothing"), ("wrong", "one"), ("", ""), ("x", "")]
    )
    for instance in ("nothing", "one", None):  # a member id that has not joined leaves, whatever the instance
        newcomer = new_member(w, group, topic)
        yield w.leave(group, [(newcomer, instance), (newcomer, instance)])
    yield w.describe(group)
    yield w.leave(group, [("", "one"), ("nobody", None), ("", "one"), (member, "one"), (member, None)])
    yield w.describe(group)
    yield w.leave(group, [("", "one"), (member, None)])
    yield w.leave(group, [(one_member_of_instance(w, group, topic, "one"), None)])
    yield w.delete([group])
    yield w.leave(group, [(member, None), ("", "one")])
    yield w.leave(group, [])


def one_member_of_instance(w: World, group: str, topic: str, instance: str) -> str:
    """The id of a static member of a group that has had others."""
    joined = w.join(group, "", instance, ("range",), topic).get()
    assert joined["error"] == "NONE"
    return str(joined["member"])


def bad_input(w: World, group: str, topic: str) -> Iterator[Line]:
    yield outline(w.join("", "", None, ("range",), topic).get())
    yield w.sync("", "m", 1, {}, None).get()
    yield w.heartbeat("", "m", 1, None)
    yield w.heartbeat(group, "m", 1, None)
    yield w.sync(group, "m", 1, {}, None).get()
    yield outline(w.join(group, "m", None, ("range",), topic).get())
    yield w.leave(group, [("m", None), ("", "i")])
    yield w.delete([group, ""])
    yield w.describe("")
    # Whether the group is there afterwards is left open: Kafka answers now Dead, now Empty.
    yield outline(w.join(group, "", None, (), topic).get())


SCRIPTS: list[Script] = [
    life_of_a_dynamic_member,
    joins_of_a_stable_group,
    static_members,
    times_that_run_out,
    votes,
    offsets,
    leaving,
    bad_input,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_our_coordinator_answers_as_kafka_does(script: Script, kafka_reference: ApacheKafka) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    group = f"group-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_reference, topic, partitions=4)
    coordination.TOPICS[topic] = 4
    kafka = KafkaWorld(kafka_reference.bootstrap_servers)
    kafka.wait_for_coordinator(group)
    theirs = script(kafka, group, topic)
    ours = script(OurWorld(), group, topic)
    for number, (expected, found) in enumerate(zip(theirs, ours, strict=True), 1):
        assert found == expected, f"line {number}"
