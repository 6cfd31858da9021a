"""Groups: commits a second of 50 groups, a start with 100,000 committed offsets, and how soon a member that dies is replaced.

The first two speak the protocol on plain sockets, with requests encoded beforehand, so that the broker is what is measured. The
members of the third are librdkafka consumers, a process each.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
import uuid
from dataclasses import replace
from pathlib import Path

from contract.wire_client import WireClient, code, encode
from deltalake import DeltaTable
from group_member import SESSION_TIMEOUT_MS
from group_processes import Member, wait_until_shared
from kafka_reference import BrokerProcess, Kafkalake, create_topic

from benchmarks.plan import Plan, costing, progress, take_turns
from benchmarks.rows import Cost, Row, compare_rates, number

TOPIC = "groups"
PARTITIONS = 100
COMMITTING = 50
COMMITS_PER_S_MIN = 2_000
PUBLISH_INTERVAL_S = 1.0
START_LIMIT_S = 5.0
MEMBERS = 20
REPLACED_LIMIT_S = SESSION_TIMEOUT_MS / 1000 + 2.0
TIMEOUT_S = 60.0


def measure(plan: Plan) -> list[Row]:
    with plan.brokers() as brokers:
        for broker in brokers:
            create_topic(broker, TOPIC, partitions=PARTITIONS)
            _coordinator(broker, "any")
        measures = {"commits": _commits, "group-start": _start, "member-replaced": _replacement}
        return [measure(plan, brokers) for key, measure in measures.items() if plan.wants(key)]


def _commits(plan: Plan, brokers: tuple[BrokerProcess, ...]) -> Row:
    duration_s = plan.size(10, 3)
    versions: list[float] = []
    cost = Cost("M commits")

    def work(broker: BrokerProcess) -> float:
        before = _versions(broker)
        with costing(cost, broker) as units:
            rate = commit_rate(broker, duration_s)
            units.append(rate * duration_s / 1e6)
        if isinstance(broker, Kafkalake):
            versions.append((_versions(broker) - before) / (duration_s / PUBLISH_INTERVAL_S + 1))
        return rate

    for broker in brokers:
        commit_rate(broker, 2)
    ours, theirs = take_turns("commits", plan.rounds, brokers, work, "commits/s")
    most = max(versions)
    title = f"offset commits, {COMMITTING} groups, each as fast as it is answered"
    row = compare_rates(
        "commits", title, ours, theirs, at_least=0, unit="/s", cost=cost, versions_per_interval=versions
    )
    return replace(
        row,
        kafkalake=f"{row.kafkalake}; {most:.2f} Delta versions a publish interval",
        promise=f"{COMMITS_PER_S_MIN:,} /s; 1 version an interval at most",
        holds=statistics.median(ours) >= COMMITS_PER_S_MIN and most <= 1,
    )


def commit_rate(broker: BrokerProcess, duration_s: float) -> float:
    """Commits a second of `COMMITTING` groups on a connection each, every one with one commit under way."""
    waiting = selectors.DefaultSelector()
    answered = 0
    frames: dict[socket.socket, bytes] = {}
    try:
        for index in range(COMMITTING):
            connection = socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frames[connection] = encode("OffsetCommit", 8, 1, _commit(f"group-{index}", [index % PARTITIONS], 1))
            waiting.register(connection, selectors.EVENT_READ)
            connection.sendall(frames[connection])
        started = time.perf_counter()
        until = started + duration_s
        while time.perf_counter() < until:
            for key, _ in waiting.select(timeout=1):
                connection = key.fileobj  # type: ignore[assignment]
                answer = connection.recv(65_536)  # one commit under way: what comes is its whole answer
                if not answer.endswith(b"\0\0\0\0\0"):
                    raise ConnectionError(f"{broker.name} refused a commit: {answer!r}")
                answered += 1
                connection.sendall(frames[connection])
        return answered / (time.perf_counter() - started)
    finally:
        for connection in frames:
            connection.close()


def _start(plan: Plan, brokers: tuple[BrokerProcess, ...]) -> Row:
    groups = plan.size(1_000, 100)
    names = [f"start-{index}" for index in range(groups)]
    for broker in brokers:
        progress(f"group start: committing {groups * PARTITIONS:,} offsets to {broker.name}")
        with _coordinator(broker, names[0]) as client:
            for name in names:
                client.call("OffsetCommit", 8, **_commit(name, range(PARTITIONS), 7))

    def work(broker: BrokerProcess) -> float:
        broker.stop()
        started = time.perf_counter()
        broker.start()
        for name in (names[0], names[-1]):
            with _coordinator(broker, name) as client:
                answer = client.call("OffsetFetch", 7, group_id=name, topics=None, require_stable=False)
                found = sum(len(topic.partitions) for topic in answer.topics)
                assert found == PARTITIONS, f"{broker.name} has {found} offsets of {name}"
        return time.perf_counter() - started

    ours, theirs = take_turns("group start", max(plan.rounds // 2, 2), brokers, work, "s")
    slowest = max(ours)
    return Row(
        "group-start",
        f"start with {groups * PARTITIONS:,} committed offsets in {groups:,} groups, to the first offsets fetched",
        f"{number(statistics.median(ours))} s",
        f"{number(statistics.median(theirs))} s",
        "",
        f"{START_LIMIT_S:g} s",
        slowest <= START_LIMIT_S,
        {"kafkalake": ours, "apache_kafka": theirs},
    )


def _replacement(plan: Plan, brokers: tuple[BrokerProcess, ...]) -> Row:
    count = plan.size(MEMBERS, 4)

    def work(broker: BrokerProcess) -> float:
        group = f"members-{uuid.uuid4().hex[:8]}"
        members = [Member("confluent-kafka", broker.bootstrap_servers, group, TOPIC) for _ in range(count)]
        try:
            wait_until_shared(members, PARTITIONS)
            victim = members.pop(count // 2)
            died = time.perf_counter()
            victim.kill()
            wait_until_shared(members, PARTITIONS)
            return time.perf_counter() - died
        finally:
            for each in members:
                each.kill()

    ours, theirs = take_turns("member replaced", 2, brokers, work, "s")
    return Row(
        "member-replaced",
        f"{count} members, {PARTITIONS} partitions: from the SIGKILL of one to a stable assignment, "
        f"session timeout {SESSION_TIMEOUT_MS / 1000:g} s",
        f"{number(max(ours))} s",
        f"{number(max(theirs))} s",
        "",
        f"{REPLACED_LIMIT_S:g} s",
        max(ours) <= REPLACED_LIMIT_S,
        {"kafkalake": ours, "apache_kafka": theirs},
    )


def _commit(group: str, partitions: range | list[int], offset: int) -> dict[str, object]:
    """The fields of an OffsetCommit by nobody in particular."""
    asked = [{"partition_index": index, "committed_offset": offset, "committed_metadata": ""} for index in partitions]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": TOPIC, "partitions": asked}],
    }


def _coordinator(broker: BrokerProcess, group: str) -> WireClient:
    """A connection to the broker, once it coordinates the group."""
    deadline = time.monotonic() + TIMEOUT_S
    client = WireClient(broker.bootstrap_servers)
    while True:
        (found,) = client.call("FindCoordinator", 4, key_type=0, coordinator_keys=[group]).coordinators
        if code(found.error_code) == 0:
            answer = client.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)
            if code(answer.error_code) == 0:
                return client
        assert time.monotonic() < deadline, f"{broker.name} does not coordinate {group}"
        time.sleep(0.01)


def _versions(broker: BrokerProcess) -> int:
    """The version of kafkalake's table of committed offsets."""
    if not isinstance(broker, Kafkalake):
        return 0
    return int(DeltaTable(str(Path(broker.lake) / "metadata" / "group_offsets")).version())
