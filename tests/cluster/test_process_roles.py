"""Controllers that are no brokers, and brokers that are no controllers (`process.roles`): real processes on one lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from benchmarks.kafka_tools import run_tool
from cluster.test_brokers_on_one_lake import consume, leaders, metadata, numbers, produce
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from contract.wire_client import WireClient
from kafka_reference import QUICK_SESSIONS, Kafkalake, topic_name
from long_runs import first_of
from waiting import wait_until

from kafkalake.cluster.image import ClusterImage
from kafkalake.metadata.delta import DeltaMetadataStore

pytestmark = pytest.mark.process

CONTROLLER, STANDBY = 10, 11
SETTINGS = {**QUICK_SESSIONS, "metadata.publish.interval.ms": "200", "request.timeout.ms": "3000"}


class ControllerOnly(Kafkalake):
    """A node with `process.roles=controller`."""

    def _command(self) -> Sequence[str]:
        command = [*super()._command()]
        listen = command.index("--listen")
        roles = ["process.roles=controller", "controller.listener.names=CONTROLLER"]
        roles.append(f"listeners=CONTROLLER://{self.bootstrap_servers}")
        return command[:listen] + command[listen + 2 :] + [each for role in roles for each in ("--config", role)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Kafkalake]]:
    """A function that starts the node of an id: of two controllers and two brokers, 1 and 2."""
    directory = tmp_path_factory.mktemp("roles")
    started: list[Kafkalake] = []

    def start(node_id: int) -> Kafkalake:
        kind = ControllerOnly if node_id >= CONTROLLER else Kafkalake
        settings = SETTINGS if node_id >= CONTROLLER else {**SETTINGS, "process.roles": "broker"}
        own = directory / f"node-{node_id}"
        started.append(kind(directory / "lake", directory=own, broker_id=node_id, settings=settings))
        return started[-1].start()

    yield start
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def controller(start: Callable[[int], Kafkalake]) -> Kafkalake:
    return start(CONTROLLER)


@pytest.fixture(scope="module")
def brokers(start: Callable[[int], Kafkalake], controller: Kafkalake) -> list[Kafkalake]:
    started = [start(1), start(2)]
    for each in started:
        wait_until(lambda each=each: len(metadata(each).brokers) == 2)
    return started


def image_of(lake: Path) -> ClusterImage:
    return DeltaMetadataStore(lake, create=False).control_store.load()


def create(broker: Kafkalake, topic: str) -> int:
    """Create a topic of four partitions, and return the code of the error, 0 if there is none."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    try:
        client.create_topics([NewTopic(topic, 4, 1)], request_timeout=10)[topic].result(20)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def check_service(brokers: list[Kafkalake], topic: str) -> None:
    """Produce through each broker, and consume in a new group through the other."""
    for broker, other in (brokers, brokers[::-1]):
        produce(broker, topic, numbers(20))
        assert consume(other, topic, 20, topic_name()).total() >= 20


def test_the_brokers_lead_and_the_controller_is_no_broker(controller: Kafkalake, brokers: list[Kafkalake]) -> None:
    topic = topic_name()
    assert create(brokers[0], topic) == 0
    for each in brokers:
        wait_until(lambda each=each: sorted(leaders(each, topic)) == [1, 1, 2, 2])
        assert sorted(metadata(each).brokers) == [1, 2]
    check_service(brokers, topic)
    image = image_of(controller.lake)
    assert (image.controller_id, sorted(image.brokers), sorted(image.controllers)) == (CONTROLLER, [1, 2], [CONTROLLER])
    assert [image.brokers[each].is_voter for each in (1, 2)] == [False, False]


def test_a_controllers_listener_answers_what_a_controller_of_kafka_does(
    controller: Kafkalake, brokers: list[Kafkalake]
) -> None:
    with WireClient(controller.bootstrap_servers) as client:
        answer = client.call("ApiVersions", 3, client_software_name="a", client_software_version="1")
        listed = {each.api_key for each in answer.api_keys}
        assert listed >= {19, 20, 32, 44, 55, 56, 58, 60, 62, 63, 64, 67, 70}
        assert listed.isdisjoint({0, 1, 2, 3, 8, 9, 10, 11, 22, 27, 35, 61, 65, 66, 68, 74, 75})
        described = client.call("DescribeCluster", 1, endpoint_type=2)
        port = int(controller.bootstrap_servers.rsplit(":", 1)[1])
        assert [(each.broker_id, each.port) for each in described.brokers] == [(CONTROLLER, port)]
        assert described.controller_id == CONTROLLER
        client.send("Metadata", 9, topics=[], allow_auto_topic_creation=False)
        assert client.is_closed()
    for servers in (controller.bootstrap_servers, brokers[0].bootstrap_servers):
        with WireClient(servers) as client:
            topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
            answer = client.call("DescribeQuorum", 2, topics=topics)
            quorum = answer.topics[0].partitions[0]
            assert quorum.leader_id == CONTROLLER
            assert [each.replica_id for each in quorum.current_voters] == [CONTROLLER]
            assert [each.replica_id for each in quorum.observers] == [1, 2]
            assert [each.node_id for each in answer.nodes] == [CONTROLLER]


def test_kafkas_tool_asks_the_controller(controller: Kafkalake, brokers: list[Kafkalake]) -> None:
    asked = ["--bootstrap-controller", controller.bootstrap_servers, "describe", "--replication"]
    printed = run_tool("org.apache.kafka.tools.MetadataQuorumCommand", asked, timeout_s=60)
    roles = {line.split()[0]: line.split()[-1] for line in printed.splitlines() if line[:1].isdigit()}
    assert roles == {str(CONTROLLER): "Leader", "1": "Observer", "2": "Observer"}


@pytest.mark.parametrize("time", first_of(["first", "second"], 1))
def test_the_brokers_go_on_without_a_controller_and_claim_nothing(
    controller: Kafkalake, brokers: list[Kafkalake], time: str
) -> None:
    topic, later = topic_name(), topic_name()
    assert create(brokers[1], topic) == 0
    for each in brokers:
        wait_until(lambda each=each: sorted(leaders(each, topic)) == [1, 1, 2, 2])
    before = image_of(controller.lake)
    controller.kill()
    check_service(brokers, topic)
    assert create(brokers[0], later) == KafkaError.REQUEST_TIMED_OUT
    check_service(brokers, topic)  # by now each has missed several heartbeats, longer than a session
    assert image_of(controller.lake) == before
    controller.start()
    wait_until(lambda: create(brokers[0], later) in (0, KafkaError.TOPIC_ALREADY_EXISTS))
    for each in brokers:
        wait_until(lambda each=each: sorted(leaders(each, later)) == [1, 1, 2, 2])
    check_service(brokers, later)
    after = image_of(controller.lake)
    assert (after.controller_id, after.controller_epoch) == (CONTROLLER, before.controller_epoch + 1)


def test_another_controller_takes_over(
    controller: Kafkalake, brokers: list[Kafkalake], start: Callable[[int], Kafkalake]
) -> None:
    standby = start(STANDBY)
    assert sorted(image_of(controller.lake).controllers) == [CONTROLLER, STANDBY]
    assert image_of(controller.lake).controller_id == CONTROLLER
    controller.kill()
    topic = topic_name()
    wait_until(lambda: create(brokers[0], topic) in (0, KafkaError.TOPIC_ALREADY_EXISTS))
    assert image_of(controller.lake).controller_id == STANDBY
    controller.start()
    with WireClient(controller.bootstrap_servers) as client:  # it is none now, and sends what is asked of it on
        answer = client.call(
            "CreateTopics", 7, topics=[{"name": topic_name(), "num_partitions": 1, "replication_factor": 1}]
        )
        assert answer.topics[0].error_code == 0
    standby.stop()
    wait_until(lambda: image_of(controller.lake).controller_id == CONTROLLER)
