"""Real brokers as processes: Apache Kafka 4.1.1, the reference, and kafkalake, both behind one small interface.

Contract tests and the benchmarks run the same client calls against both. Each broker has its own temporary directory, a free
port on 127.0.0.1 and a bounded heap, keeps its stderr in a file, and is certainly gone at the end: it runs in a process group
of its own that `kill` ends, it dies with its parent where the kernel can do that (Linux), and an atexit hook covers the rest.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import jars
import quick_jvm
from forked_process import ForkedProcess, die_with_parent, process_server

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PROJECT = Path(__file__).resolve().parent.parent
WITHOUT_DEV = Path(__file__).parent / "without_dev"

START_TIMEOUT_S = 120.0

PERFORMANCE_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The options of Kafka's own start scripts (KAFKA_JVM_PERFORMANCE_OPTS)."""
STOP_TIMEOUT_S = 30.0

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.max.size": "40",
}
"""Groups of both kinds of broker do not wait for more members, and soon notice what has changed."""


class BrokerFailed(Exception):
    """A broker did not start or stop in time; the text ends with what it wrote to stderr."""


class Broker(Protocol):
    """What a test may do with a broker, whichever it is."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def is_running(self) -> bool: ...
    def start(self) -> Broker: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def restart(self) -> None: ...


def as_users_have_it(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that finds no development dependency which costs it time (`tests/without_dev`)."""
    found = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": os.pathsep.join([str(WITHOUT_DEV), *([found] if found else [])])}


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class BrokerProcess:
    """Start, stop, kill and restart one broker process; subclasses say the command and when it is ready.

    `directory` holds the broker's data and its `stderr.log`; without one, a temporary directory is made and removed by `close`.
    """

    name = "broker"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._owns_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"kafkalake-test-{self.name}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.stderr_path = self.directory / "stderr.log"
        self.port = free_port()
        self._environment = dict(environment or {})
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        atexit.register(self.close)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker. Raises `BrokerFailed` where none runs."""
        if self._process is None or not self.is_running():
            raise BrokerFailed(f"{self.name} does not run{self.stderr_tail()}")
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> BrokerProcess:
        """Start and wait until the broker serves. Raises `BrokerFailed` with its stderr where it does not in time."""
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Start and do not wait."""
        if self._process is not None:
            raise BrokerFailed(f"{self.name} was started already")
        self._process = self._launch()

    def wait_until_ready(self) -> BrokerProcess:
        """Wait until the broker that was launched serves. Raises `BrokerFailed` as `start`."""
        try:
            self._wait_until_ready(time.monotonic() + self._start_timeout_s)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, and wait for the end. Raises `BrokerFailed` (after SIGKILL) where it takes longer than `timeout_s`."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"{self.name} ignored SIGTERM for {timeout_s:.0f} s{self.stderr_tail()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to the broker's whole process group: no chance to write anything."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def restart(self) -> None:
        """Stop in order where it runs, and start again on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill what runs and remove the temporary directory."""
        atexit.unregister(self.close)
        self.kill()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def stderr_tail(self, lines: int = 40) -> str:
        """The last lines the broker wrote to stderr, ready to be put behind an error's text."""
        with contextlib.suppress(OSError):
            said = self.stderr_path.read_text(errors="replace").splitlines()[-lines:]
            return f"; {self.stderr_path} ends with:\n" + "\n".join(said)
        return ""

    def __enter__(self) -> BrokerProcess:
        return self.start() if self._process is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _wait_until_ready(self, deadline: float) -> None:
        raise NotImplementedError

    def _launch(self) -> subprocess.Popen[bytes] | ForkedProcess:
        with self.stderr_path.open("ab") as stderr:
            return subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=die_with_parent if threading.current_thread() is threading.main_thread() else None,
                env=as_users_have_it({**os.environ, **self._environment}),
            )

    def _fail_if_ended(self, what: str) -> None:
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            raise BrokerFailed(f"{self.name} ended with status {status} {what}{self.stderr_tail()}")


class KafkaQuorum:
    """What the nodes of one Apache Kafka cluster have in common: its id, and the addresses of their controllers."""

    def __init__(self, nodes: int = 1) -> None:
        self.cluster_id = _kafka_id()
        self.ports = [free_port() for _ in range(nodes)]

    @property
    def voters(self) -> str:
        return ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(self.ports))


def _kafka_id() -> str:
    """A new id as Kafka writes them, without "-", since a first one would begin an option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"


@cache
def _bootstrap_checkpoint() -> bytes:
    """The features of a new cluster, as Kafka's own tool writes them: the same for each node, and a JVM of its own."""
    with tempfile.TemporaryDirectory() as directory:
        properties = Path(directory) / "server.properties"
        properties.write_text(
            "process.roles=broker,controller\nnode.id=0\ncontroller.quorum.voters=0@127.0.0.1:1\n"
            "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n"
            f"log.dirs={directory}/data\n"
        )
        run = subprocess.run(
            [
                *quick_jvm.kafka_command("-Xmx128m"),
                "kafka.tools.StorageTool",
                "format",
                "-t",
                _kafka_id(),
                "-c",
                str(properties),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if run.returncode:
            raise BrokerFailed(f"formatting failed; {run.stdout}{run.stderr}")
        return (Path(directory) / "data" / BOOTSTRAP_CHECKPOINT).read_bytes()


class ApacheKafka(BrokerProcess):
    """Apache Kafka 4.1.1, one KRaft node (controller and broker), formatted on the first start."""

    name = "apache-kafka"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        broker_id: int = 0,
        quorum: KafkaQuorum | None = None,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        jvm: Sequence[str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__(directory, start_timeout_s=start_timeout_s)
        self._settings = dict(settings or {})
        self._heap = heap
        self._jvm = quick_jvm.options("kafka") if jvm is None else jvm
        self.broker_id = broker_id
        self._quorum = quorum or KafkaQuorum()

    def start(self) -> ApacheKafka:
        super().start()
        return self

    def launch(self) -> None:
        properties = self.directory / "server.properties"
        if not properties.exists():
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._server_properties().items()))
            self._log4j_configuration()
            self._format()
        super().launch()

    def _server_properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.broker_id),
            "controller.quorum.voters": self._quorum.voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._quorum.ports[self.broker_id]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **QUICK_GROUPS,
            # A broker that was killed is fenced until its old session has run out.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "2000",
            # It looks for transactions whose time is up every ten seconds.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            # Tests write records of 1970: retention, which looks every five minutes, would take them away from under a reader.
            "log.initial.task.delay.ms": str(24 * 60 * 60 * 1000),
            **self._settings,
        }

    def _log4j_configuration(self) -> None:
        (self.directory / "log4j2.properties").write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = stderr\n"
            "appender.stderr.type = Console\nappender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
            "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = [%d] %p %m (%c)%n\n"
        )

    def _format(self) -> None:
        data = self.directory / "data"
        data.mkdir()
        (data / BOOTSTRAP_CHECKPOINT).write_bytes(_bootstrap_checkpoint())
        identity = {
            "version": 1,
            "cluster.id": self._quorum.cluster_id,
            "node.id": self.broker_id,
            "directory.id": _kafka_id(),
        }
        (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in identity.items()))

    def _command(self) -> Sequence[str]:
        return [
            quick_jvm.java(),
            f"-Xmx{self._heap}",
            f"-Xms{self._heap}",
            *self._jvm,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            ":".join(jars.jars("kafka")),
            "kafka.Kafka",
            str(self.directory / "server.properties"),
        ]

    def _launch(self) -> subprocess.Popen[bytes] | ForkedProcess:
        process = super()._launch()
        assert process.stdout is not None
        threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
        return process

    def _wait_until_ready(self, deadline: float) -> None:
        """Ready is when the broker, no longer fenced, answers with itself in the metadata."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        while time.monotonic() < deadline:
            self._fail_if_ended("while it started")
            if _accepts_connections(self.port):
                with contextlib.suppress(KafkaException):
                    client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
                    if client.list_topics(timeout=2).brokers:
                        return
            time.sleep(0.05)
        raise BrokerFailed(f"{self.name} was not ready in {self._start_timeout_s:.0f} s{self.stderr_tail()}")


COMMAND_LINE = (sys.executable, "-m", "kafkalake.cli.main")


class Kafkalake(BrokerProcess):
    """A kafkalake broker, started as a user starts it: through the command line, on a lake of its own or on a given one.

    Tests fork it from a process that has imported the package (`forked_process`).
    """

    name = "kafkalake"
    is_forked = "PYTEST_VERSION" in os.environ and not os.environ.get("LONG_RUNS")
    """Benchmarks and the soak start brokers as users do."""

    def __init__(
        self,
        lake: Path | None = None,
        *,
        directory: Path | None = None,
        broker_id: int = 0,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, environment=environment, start_timeout_s=start_timeout_s)
        self.lake = lake or self.directory / "lake"
        self.broker_id = broker_id
        # As Apache Kafka's above: tests do not wait for more members, and look through few partitions.
        self._settings = {
            **QUICK_GROUPS,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            # Tests write records of 1970, which retention would take away; as Apache Kafka's below.
            "log.initial.task.delay.ms": str(24 * 60 * 60 * 1000),
            **(settings or {}),
        }

    def start(self) -> Kafkalake:
        super().start()
        return self

    def _command(self) -> Sequence[str]:
        command = [*COMMAND_LINE, "broker", "start", "--lake", str(self.lake)]
        command += ["--broker-id", str(self.broker_id)]
        if "listeners" not in self._settings:
            command += ["--listen", self.bootstrap_servers]
        for name, value in self._settings.items():
            command += ["--config", f"{name}={value}"]
        return command

    def _launch(self) -> subprocess.Popen[bytes] | ForkedProcess:
        command = self._command()
        if not self.is_forked or tuple(command[: len(COMMAND_LINE)]) != COMMAND_LINE:
            return super()._launch()
        environment = as_users_have_it({**os.environ, **self._environment})
        server = process_server(environment["PYTHONPATH"])
        with self.stderr_path.open("ab") as stderr:
            return server.start(command[len(COMMAND_LINE) :], environment, stderr)

    def _wait_until_ready(self, deadline: float) -> None:
        """Ready is when it has printed `listening on HOST:PORT`."""
        assert self._process is not None and self._process.stdout is not None
        stdout = self._process.stdout
        ready = threading.Event()

        def read() -> None:
            for line in stdout:
                if line.startswith(b"listening on "):
                    ready.set()

        threading.Thread(target=read, daemon=True).start()
        while not ready.wait(0.02):
            self._fail_if_ended("before it printed `listening on`")
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"{self.name} printed no `listening on` in {self._start_timeout_s:.0f} s{self.stderr_tail()}"
                )


AnyBroker = TypeVar("AnyBroker", ApacheKafka, Kafkalake)


class Cluster(Generic[AnyBroker]):
    """Three brokers of one kind, which are started together; use as a context manager. They have ids 0, 1 and 2."""

    def __init__(self, brokers: Sequence[AnyBroker]) -> None:
        self.brokers = brokers

    @property
    def name(self) -> str:
        return self.brokers[0].name

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(each.bootstrap_servers for each in self.brokers)

    def __enter__(self) -> Cluster[AnyBroker]:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def start(self) -> None:
        """Start all brokers, and wait until each knows the others."""
        for each in self.brokers:
            each.launch()
        for each in self.brokers:
            each.wait_until_ready()
        self._wait_for_each_other(time.monotonic() + START_TIMEOUT_S)

    def is_running(self) -> bool:
        """Return whether a broker runs."""
        return any(each.is_running() for each in self.brokers)

    def kill(self) -> None:
        for each in self.brokers:
            each.kill()

    def _wait_for_each_other(self, deadline: float) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        for each in self.brokers:
            client = AdminClient({"bootstrap.servers": each.bootstrap_servers, "log_level": 0})
            known = 0
            while known < len(self.brokers):
                if time.monotonic() > deadline:
                    raise BrokerFailed(f"{each.name} {each.broker_id} knows {known} brokers{each.stderr_tail()}")
                with contextlib.suppress(KafkaException):
                    known = len(client.list_topics(timeout=2).brokers)
                time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for each in self.brokers:
            each.close()


BROKERS = 3


def rack_of(broker_id: int) -> str:
    """The rack of a broker of three: each has its own."""
    return f"rack-{broker_id}"


def _rack(broker_id: int) -> dict[str, str]:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    return {"broker.rack": rack_of(broker_id), "replica.selector.class": selector}


QUICK_SESSIONS = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "2000"}


def kafka_cluster(directory: Path, settings: Mapping[str, str] | None = None) -> Cluster[ApacheKafka]:
    """Three nodes of Apache Kafka, each broker and controller."""
    quorum = KafkaQuorum(BROKERS)
    return Cluster(
        [
            ApacheKafka(
                directory / f"kafka-{each}",
                broker_id=each,
                quorum=quorum,
                settings={**_rack(each), **(settings or {})},
                heap="256m",
            )
            for each in range(BROKERS)
        ]
    )


def kafkalake_cluster(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    environments: Sequence[Mapping[str, str]] = ({},) * BROKERS,
) -> Cluster[Kafkalake]:
    """Three brokers of kafkalake on the lake `directory / "lake"`, each with an environment of its own."""
    return Cluster(
        [
            Kafkalake(
                directory / "lake",
                directory=directory / f"kafkalake-{each}",
                broker_id=each,
                settings={**QUICK_SESSIONS, **_rack(each), **(settings or {})},
                environment=environment,
            )
            for each, environment in enumerate(environments)
        ]
    )


class Clusters(NamedTuple):
    """Three brokers of each kind."""

    apache_kafka: Cluster[ApacheKafka]
    kafkalake: Cluster[Kafkalake]


def _drain(stream: IO[bytes]) -> None:
    with contextlib.suppress(ValueError):
        for _ in stream:
            pass


def _accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def topic_name(prefix: str = "topic") -> str:
    """A topic name that no other test uses: tests share brokers."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def create_topic(
    broker: Broker,
    topic: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, str] | None = None,
    timeout_s: float = 20,
) -> None:
    """Create a topic and return when each of its partitions has a leader that answers, and all replicas in the ISR.

    A broker of Apache Kafka shows a leader in its metadata before it answers as the leader. Raises `KafkaException`.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    client.create_topics([wanted], operation_timeout=timeout_s, request_timeout=timeout_s)[topic].result(timeout_s)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        known = client.list_topics(topic, timeout=timeout_s).topics[topic].partitions.values()
        is_known = len(known) == partitions and all(each.leader >= 0 and len(each.isrs) >= replicas for each in known)
        if is_known and _leaders_answer(client, topic, partitions):
            return
        time.sleep(0.02)
    raise BrokerFailed(
        f"{topic} had no leader and {replicas} replicas in the ISR for each of its {partitions} partitions after {timeout_s:.0f} s"
    )


def _leaders_answer(client: AdminClient, topic: str, partitions: int) -> bool:
    """Return whether the leader of each partition answers as its leader."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(topic, index): OffsetSpec.earliest() for index in range(partitions)}
    try:
        for found in client.list_offsets(asked, request_timeout=START_TIMEOUT_S).values():
            found.result(START_TIMEOUT_S)
    except KafkaException:
        return False
    return True
