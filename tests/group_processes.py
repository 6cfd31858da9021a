"""Members of groups, each a process of its own: three Python clients (`group_member.py`) and Kafka's own tools in Java.

A member has `assigned`, the partitions that it reads now, and `values`, what it has read, whichever client it is. The fixture
`member` starts them and kills what is left at the end of the test.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import quick_jvm
from benchmarks import kafka_tools
from kafka_reference import die_with_parent
from waiting import wait_until

PARTITIONS = 6
"""Of the topics that members share, where a test says nothing else."""

TIMEOUT_S = 60
JAVA_SESSION_TIMEOUT_MS = 6_000
SMALL_JVM = ("-Xmx128m", *quick_jvm.options("kafka"))

ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
"""Java's class of each assignor in `org.apache.kafka.clients.consumer`."""


class Speaker:
    """A process that says a JSON object a line: `events`. `others` are its last lines that are none, of stderr too.

    `tell` gives it a line.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.events: list[dict[str, Any]] = []
        self.others: deque[str] = deque(maxlen=20)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stdout:
                if line.startswith(b"{"):
                    self.events.append(json.loads(line))
                else:
                    self.others.append(line.decode(errors="replace").rstrip())

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def finish(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until it has ended by itself and everything it said was read; its exit code."""
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def leave(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        self.finish()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.finish()


class Member(Speaker):
    """A consumer of one of the Python clients. `assignors`: names, the preferred one first."""

    def __init__(self, client: str, servers: str, group: str, topic: str, **options: Any) -> None:
        script = Path(__file__).with_name("group_member.py")
        super().__init__([sys.executable, str(script), client, servers, group, topic, json.dumps(options)])

    @property
    def assigned(self) -> list[int]:
        return next((event["assigned"] for event in reversed(self.events) if "assigned" in event), [])

    @property
    def values(self) -> list[str]:
        return [event["value"] for event in self.events if "value" in event]


class JavaMember(Speaker):
    """Kafka's VerifiableConsumer, which commits what it has read after each poll."""

    def __init__(
        self,
        client: str,
        servers: str,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        assignors: Sequence[str] = ("range",),
        protocol: str = "classic",
        session_timeout_ms: int = JAVA_SESSION_TIMEOUT_MS,
    ) -> None:
        arguments = ["--bootstrap-server", servers, "--group-id", group, "--topic", topic, "--verbose"]
        arguments += ["--group-instance-id", instance] if instance else []
        if protocol == "consumer":
            arguments += ["--group-protocol", protocol, "--group-remote-assignor", assignors[0]]
        else:
            classes = ",".join(f"org.apache.kafka.clients.consumer.{ASSIGNORS[name]}" for name in assignors)
            arguments += ["--assignment-strategy", classes, "--session-timeout", str(session_timeout_ms)]
        super().__init__(kafka_tools.tool_command("org.apache.kafka.tools.VerifiableConsumer", arguments, *SMALL_JVM))

    @property
    def assigned(self) -> list[int]:
        held: set[int] = set()
        for event in self.events:
            if event["name"] == "partitions_assigned":
                held |= {each["partition"] for each in event["partitions"]}
            elif event["name"] == "partitions_revoked":
                held -= {each["partition"] for each in event["partitions"]}
        return sorted(held)

    @property
    def values(self) -> list[str]:
        return [event["value"] for event in self.events if event["name"] == "record_data"]


Start = Callable[..., Any]


@pytest.fixture
def member() -> Iterator[Start]:
    """`member(client, servers, group, topic, instance=, assignors=, protocol=)`; the client "java" is VerifiableConsumer."""
    members: list[Speaker] = []

    def start(client: str, *arguments: str, **options: Any) -> Speaker:
        members.append((JavaMember if client == "java" else Member)(client, *arguments, **options))
        return members[-1]

    yield start
    for each in members:
        each.kill()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


def said(members: Sequence[Any]) -> list[Any]:
    """What each of them said last, and its exit code where it has ended."""
    return [(each.events[-5:], each.process.poll(), *each.others) for each in members]


def check_alive(members: Sequence[Any]) -> None:
    """Fails where one of them has ended."""
    ended = [each for each in members if each.process.poll() is not None]
    for each in ended:
        each.finish()  # so that its last words are known
    assert not ended, said(members)


def wait_until_shared(members: Sequence[Any], partitions: int = PARTITIONS) -> None:
    """Until each partition is read by one of `members`, and each of them reads as many as the others, or one more."""

    def shared() -> bool:
        check_alive(members)
        shares = [each.assigned for each in members]
        return sorted(index for share in shares for index in share) == list(range(partitions)) and all(
            partitions // len(members) <= len(share) <= -(-partitions // len(members)) for share in shares
        )

    wait_until(shared, lambda: said(members))
