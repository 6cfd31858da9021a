"""Clients of Python side by side, on a kafkalake broker and on Apache Kafka: records a second of 100 bytes, acks=all.

Each client has a process of its own, and they take turns. A row compares kafkalake's client with another one on one broker.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType

from kafka_reference import BrokerProcess, create_topic

from benchmarks import client_memory
from benchmarks.passing_topics import REMOVING, passing_topic
from benchmarks.plan import Plan, costing, progress
from benchmarks.rows import Cost, Row, number

PARTITIONS = 4
"""Those of a topic that takes millions of records a second. In one partition the broker's work on a request bounds the rate."""


@dataclass(frozen=True)
class Case:
    """kafkalake's client `ours` against `theirs`. Records of a round each. partitions: 0 for those of the plan."""

    key: str
    title: str
    ours: str
    theirs: str
    records_of_ours: int
    records_of_theirs: int
    at_least: float
    partitions: int = 0
    bound: str = ""
    """The name of what shows how much the broker takes, if that may be less than what the clients can send."""


class ClientProcess:
    """A client that waits for rounds."""

    def __init__(self, name: str, servers: str, records: int) -> None:
        command = [sys.executable, "-m", "benchmarks.client_process", name, servers, str(records)]
        self._records = records
        self.by_processor: list[float] = []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def round(self, topic: str) -> float:
        """Return the records a second of a round. Those of a second of processor time are kept in `by_processor`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{topic}\n")
        self._process.stdin.flush()
        seconds, worked = map(float, self._process.stdout.readline().split())
        self.by_processor.append(self._records / worked)
        return self._records / seconds


def measure(plan: Plan) -> Iterator[Row]:
    few, many = plan.size(100_000, 20_000), plan.size(400_000, 100_000)
    arrow = plan.size(4_000_000, 1_000_000)
    send = "`Producer.send`, one record at a time"
    cases = (
        Case("client-send", send, "kafkalake_send", "kafka_python", many, few, 2),
        Case("client-send", send, "kafkalake_send", "aiokafka", many, few, 2),
        *(
            Case(
                key,
                "`Producer.send_arrow`",
                "kafkalake_send_arrow",
                "confluent_kafka",
                arrow,
                many,
                5,
                partitions=partitions,
                bound="prepared_requests",
            )
            for key, partitions in (("client-send-arrow", PARTITIONS), ("client-send-arrow-to-one-partition", 1))
        ),
    )
    poll = "`Consumer.poll`, records as objects"
    reading = (
        Case("client-poll", poll, "kafkalake_poll", "kafka_python_poll", many, many, 2),
        Case("client-poll", poll, "kafkalake_poll", "aiokafka_poll", many, many, 2),
        Case(
            "client-poll-arrow",
            "`Consumer.poll_arrow`",
            "kafkalake_poll_arrow",
            "confluent_kafka_consume",
            arrow,
            arrow,
            5,
        ),
    )
    if plan.wants(client_memory.KEY):
        yield client_memory.measure(plan)
    if not any(plan.wants(case.key) for case in (*cases, *reading)):
        return
    with plan.brokers(REMOVING) as brokers:
        for broker in brokers:
            for case in cases:
                if plan.wants(case.key):
                    yield _row(plan, broker, case)
            for case in reading:
                if plan.wants(case.key):
                    yield _read_row(plan, broker, case)


def _row(plan: Plan, broker: BrokerProcess, case: Case) -> Row:
    """Each sends a round to warm the broker, then they take turns. Dirty pages go to the disk before each, as in `take_turns`.

    Each turn has a topic of its own (`passing_topic`).
    """
    key = f"{case.key}-{case.theirs.replace('_', '-')}-on-{broker.name}"
    progress(key)
    cost = Cost("M records")
    with contextlib.ExitStack() as stack:
        clients = [
            (stack.enter_context(ClientProcess(name, broker.bootstrap_servers, records)), records)
            for name, records in (
                (case.ours, case.records_of_ours),
                (case.theirs, case.records_of_theirs),
                (case.bound, case.records_of_ours),
            )
            if name
        ]
        figures: list[list[float]] = [[] for _ in clients]
        for client, _ in clients:
            with passing_topic(broker, key, case.partitions or plan.partitions) as topic:
                client.round(topic)
        for _ in range(plan.rounds):
            for (client, records), rates in zip(clients, figures, strict=True):
                with passing_topic(broker, key, case.partitions or plan.partitions) as topic:
                    os.sync()
                    with costing(cost, broker, records / 1e6):
                        rates.append(client.round(topic))
        work = [client.by_processor[1:] for client, _ in clients]
    row = compared(key, case, broker.name, (figures[0], work[0]), (figures[1], work[1]))
    return _bounded(row, figures[2], cost.seconds[broker.name][2::3]) if case.bound else row


def _bounded(row: Row, bound: list[float], cpu_s: list[float]) -> Row:
    """The row with the rate at which the broker takes prepared requests, and its own processor time for a million records then."""
    rate = statistics.median(bound)
    text = f"the broker takes {number(rate)} records/s from prepared requests, {number(statistics.median(cpu_s))} CPU s/M records"
    return replace(
        row,
        apache_kafka=f"{row.apache_kafka}; {text}",
        figures={**row.figures, "prepared_requests": bound, "broker_cpu_s": {"unit": "M records", "prepared": cpu_s}},
    )


def _read_row(plan: Plan, broker: BrokerProcess, case: Case) -> Row:
    """Both read the same partition from its beginning, which is written with the producer's default settings before."""
    key = f"{case.key}-{case.theirs.replace('_', '-')}-on-{broker.name}"
    progress(key)
    create_topic(broker, key, partitions=1)
    servers = broker.bootstrap_servers
    with ClientProcess("kafkalake_send", servers, case.records_of_ours) as writer:
        writer.round(key)
    ours: list[float] = []
    theirs: list[float] = []
    with (
        ClientProcess(case.ours, servers, case.records_of_ours) as own,
        ClientProcess(case.theirs, servers, case.records_of_theirs) as other,
    ):
        own.round(key)
        other.round(key)
        for _ in range(plan.rounds):
            ours.append(own.round(key))
            theirs.append(other.round(key))
        own_work, other_work = own.by_processor[1:], other.by_processor[1:]
    return compared(key, case, broker.name, (ours, own_work), (theirs, other_work))


Rounds = tuple[list[float], list[float]]
"""Records a second, and a second of the client's processor time, round by round."""


def compared(key: str, case: Case, broker: str, own: Rounds, other: Rounds) -> Row:
    """The row of a case: the ratio is ours over theirs, round by round."""
    (ours, own_work), (theirs, other_work) = own, other
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    name = case.theirs.replace("_", "-")
    return Row(
        key,
        f"{case.title}, 100-byte values, acks=all{_partitions(case)}, on {broker}, against {name}",
        _rates(ours, own_work),
        f"{name}: {_rates(theirs, other_work)}",
        f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{case.at_least:g} x",
        statistics.median(ratios) >= case.at_least,
        {
            "kafkalake": ours,
            case.theirs: theirs,
            "unit": "records/s",
            "per_processor_second": {"kafkalake": own_work, case.theirs: other_work},
        },
    )


def _partitions(case: Case) -> str:
    return f", {case.partitions} partitions" if case.partitions > 1 else ""


def _rates(rates: list[float], by_processor: list[float]) -> str:
    work = number(statistics.median(by_processor))
    return f"{number(statistics.median(rates))} records/s, {work} a second of its processor time"
