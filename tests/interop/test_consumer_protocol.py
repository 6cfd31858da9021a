"""Real clients with `group.protocol=consumer` (KIP-848), librdkafka's and Kafka's own in Java, each in a process of its own."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from contract.wire_client import WireClient
from group_processes import PARTITIONS, TIMEOUT_S, Start, wait_until_shared
from interop.test_group_clients import write
from kafka_clients import create_topic
from kafka_reference import Kafkalake
from long_runs import first_of
from waiting import wait_until

PROTOCOL = {"protocol": "consumer"}


def epochs(servers: str, group: str) -> tuple[int, dict[str, int]]:
    """The group's epoch and each member's."""
    with WireClient(servers) as client:
        (found,) = client.call("ConsumerGroupDescribe", 1, group_ids=[group]).groups
    return found.group_epoch, {member.member_id: member.member_epoch for member in found.members}


def wait_for_values(members: list[Any], count: int) -> Counter[int]:
    """Until the members have read so many records; what they have read."""
    wait_until(
        lambda: sum(len(each.values) for each in members) >= count, lambda: [each.events[-5:] for each in members]
    )
    return Counter(int(value) for each in members for value in each.values)


def test_members_share_the_partitions_as_they_come_leave_and_die_and_as_the_topic_grows(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, 3)
    first = member("confluent-kafka", servers, group, topic, **PROTOCOL)
    wait_until_shared([first], 3)
    second = member("confluent-kafka", servers, group, topic, **PROTOCOL)
    third = member("confluent-kafka", servers, group, topic, **PROTOCOL)
    wait_until_shared([first, second, third], 3)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(TIMEOUT_S)
    wait_until_shared([first, second, third])
    second.leave()
    wait_until_shared([first, third])
    third.kill()
    wait_until_shared([first])
    write(servers, topic, range(30))
    assert wait_for_values([first], 30) == Counter(range(30))


def test_java_and_librdkafka_share_a_group(any_broker: Any, member: Start, group: str, topic: str) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    first = member("java", servers, group, topic, assignors=["range"], **PROTOCOL)
    second = member("confluent-kafka", servers, group, topic, assignors=["range"], **PROTOCOL)
    wait_until_shared([first, second])
    assert sorted([first.assigned, second.assigned]) == [[0, 1, 2], [3, 4, 5]], "in ranges"
    write(servers, topic, range(60))
    assert wait_for_values([first, second], 60) == Counter(range(60))
    first.kill()
    wait_until_shared([second])
    write(servers, topic, range(60, 90))
    # By value, not by number: it may read again what the other one had read and not committed when it was killed.
    new = set(map(str, range(60, 90)))
    wait_until(lambda: new <= set(second.values), lambda: [second.assigned, second.values, *second.events[-5:]])


def test_a_static_member_that_comes_back_finds_its_partitions_and_the_others_notice_nothing(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    first = member("confluent-kafka", servers, group, topic, instance="one", **PROTOCOL)
    second = member("confluent-kafka", servers, group, topic, instance="two", **PROTOCOL)
    wait_until_shared([first, second])
    before, changes = second.assigned, len(first.events)
    second.leave()
    again = member("confluent-kafka", servers, group, topic, instance="two", **PROTOCOL)
    wait_until(lambda: again.assigned == before, lambda: again.events)
    assert first.events[changes:] == []


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_regular_expression_reads_topics_that_come_later(
    _shared_kafkalake: Any, member: Start, group: str, topic: str, protocol: str
) -> None:
    """Apache Kafka's broker looks only every ten seconds; the contract tests compare the two."""
    servers = _shared_kafkalake.bootstrap_servers
    create_topic(servers, f"{topic}-a", 2)
    create_topic(servers, f"{topic}-xa", 1)
    reader = member("confluent-kafka", servers, group, f"^{topic}-[ab]", protocol=protocol)
    wait_until(lambda: reader.assigned == [0, 1], lambda: reader.events)
    create_topic(servers, f"{topic}-b", 3)
    wait_until(lambda: reader.assigned == [0, 0, 1, 1, 2], lambda: reader.events)


def test_a_group_goes_on_with_the_other_protocol_after_its_members_have_left(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    readers = []
    for number, protocol in enumerate(["classic", "consumer", "classic"]):
        write(servers, topic, range(30 * number, 30 * number + 30))
        reader = member("confluent-kafka", servers, group, topic, protocol=protocol)
        readers.append(reader)
        assert wait_for_values(readers, 30 * number + 30) == Counter(range(30 * number + 30)), "each once"
        reader.leave()


@pytest.mark.parametrize("client", ["confluent-kafka", "java"])
def test_members_keep_their_epochs_and_go_on_where_they_were_when_the_broker_was_killed(
    kafkalake_broker: Any, member: Start, group: str, topic: str, client: str
) -> None:
    broker: Kafkalake = kafkalake_broker()
    servers = broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    write(servers, topic, range(60))
    members = [member(client, servers, group, topic, assignors=["uniform"], **PROTOCOL) for _ in range(2)]
    wait_until_shared(members)
    wait_for_values(members, 60)
    before = epochs(servers, group)
    broker.kill()
    # Java's consumers poll in a loop while there is no broker: two of them leave its start no processor on two cores.
    stopped = [each.process for each in members] if client == "java" else []
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    broker.start()
    for process in stopped:
        process.send_signal(signal.SIGCONT)
    write(servers, topic, range(60, 120))
    read = wait_for_values(members, 120)
    assert epochs(servers, group) == before
    assert read.keys() == set(range(120))
    twice = {value for value, times in read.items() if times > 1}
    assert not twice & set(range(54)), "what was committed is not read again"


@pytest.mark.parametrize("assignor", first_of(["range", "roundrobin"], 1))
def test_a_rolling_deploy_changes_the_protocol_of_a_live_group_and_back(
    any_broker: Any, member: Start, group: str, topic: str, assignor: str
) -> None:
    """One process after the other is stopped and started with the other protocol, while records are written."""
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    live = [member("confluent-kafka", servers, group, topic, assignors=[assignor]) for _ in range(3)]
    readers = list(live)
    wait_until_shared(live)
    written = 0

    def read_all() -> None:
        nonlocal written
        write(servers, topic, range(written, written + 30))
        written += 30
        assert wait_for_values(readers, written).keys() == set(range(written))

    read_all()
    for protocol in ("consumer", "classic"):
        for _ in range(3):
            live.pop(0).leave()
            assignors = [assignor] if protocol == "classic" else []
            live.append(member("confluent-kafka", servers, group, topic, protocol=protocol, assignors=assignors))
            readers.append(live[-1])
            wait_until_shared(live)
            read_all()
        assert group_type(servers, group) == protocol


def group_type(servers: str, group: str) -> str:
    with WireClient(servers) as client:
        listed = client.call("ListGroups", 5, states_filter=[], types_filter=[]).groups
    return next(str(each.group_type) for each in listed if each.group_id == group)
