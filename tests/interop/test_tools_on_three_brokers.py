"""Kafka's own tools print on three brokers of kafkalake what they print on three of Apache Kafka.

All tools run in one JVM for each kind of broker (`ToolCalls.java`). Ids, addresses, times and sizes are replaced by words.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from interop.tool_calls import TOOLS, VERIFY, call, of_both
from kafka_reference import Cluster, Clusters
from waiting import wait_until

TOPICS, FEATURES, QUORUM = TOOLS + "TopicCommand", TOOLS + "FeatureCommand", TOOLS + "MetadataQuorumCommand"
REASSIGN, ELECT = TOOLS + "reassign.ReassignPartitionsCommand", TOOLS + "LeaderElectionCommand"
DIRS = TOOLS + "LogDirsCommand"
GROUPS, TRANSACTIONS = TOOLS + "consumer.group.ConsumerGroupCommand", TOOLS + "TransactionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOPIC, SPREAD, HEAVY = "tooled", "spread", "heavy"
RECORDS = 30
HEAVY_BYTES, HEAVY_RECORDS = 900_000, 5
"""Several answers of a leader, so that a throttled replica does not catch up."""

pytestmark = [pytest.mark.peer, pytest.mark.exhaustive]

CREATE = [
    ("create", TOPICS, "--create --topic tooled --replica-assignment 0,1,2 --config retention.ms=7200000"),
    ("create again", TOPICS, "--create --topic tooled"),
    ("create with 3 replicas", TOPICS, "--create --topic spread --replica-assignment 0:1:2,1:2:0"),
    ("create heavy", TOPICS, "--create --topic heavy --replica-assignment 0"),
    ("create with 4 replicas", TOPICS, "--create --topic r4 --partitions 2 --replication-factor 4"),
]
COMMANDS = [
    ("topics", TOPICS, "--list --topic tooled|spread"),
    ("topic", TOPICS, "--describe --topic tooled"),
    ("topic with 3 replicas", TOPICS, "--describe --topic spread"),
    ("set min isr", CONFIGS, "--alter --entity-type topics --entity-name spread --add-config min.insync.replicas=3"),
    ("at min isr", TOPICS, "--describe --topic spread --at-min-isr-partitions"),
    ("under min isr", TOPICS, "--describe --topic spread --under-min-isr-partitions"),
    (
        "delete min isr",
        CONFIGS,
        "--alter --entity-type topics --entity-name spread --delete-config min.insync.replicas",
    ),
    ("unknown topic", TOPICS, "--describe --topic nosuch"),
    ("under-replicated", TOPICS, "--describe --under-replicated-partitions"),
    ("unavailable", TOPICS, "--describe --unavailable-partitions"),
    ("fewer partitions", TOPICS, "--alter --topic tooled --partitions 2"),
    ("topic settings", CONFIGS, "--describe --entity-type topics --entity-name tooled"),
    ("set default", CONFIGS, "--alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2"),
    ("default", CONFIGS, "--describe --entity-type brokers --entity-default"),
    ("set broker", CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=3"),
    ("broker", CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    ("brokers", CONFIGS, "--describe --entity-type brokers"),
    ("set read-only", CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config num.partitions=3"),
    ("delete broker", CONFIGS, "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.threads"),
    ("delete default", CONFIGS, "--alter --entity-type brokers --entity-default --delete-config log.cleaner.threads"),
    ("set logger", CONFIGS, "--alter --entity-type broker-loggers --entity-name 2 --add-config root=INFO"),
    (
        "set group",
        CONFIGS,
        "--alter --entity-type groups --entity-name g2 --add-config consumer.session.timeout.ms=50000",
    ),
    ("group settings", CONFIGS, "--describe --entity-type groups --entity-name g2"),
    ("settings of groups", CONFIGS, "--describe --entity-type groups"),
    (
        "set metrics",
        CONFIGS,
        "--alter --entity-type client-metrics --entity-name m "
        "--add-config interval.ms=60000,metrics=[a.b,c],match=[client_id=x.*]",
    ),
    ("metrics interval", CONFIGS, "--alter --entity-type client-metrics --entity-name m --add-config interval.ms=6"),
    ("metrics match", CONFIGS, "--alter --entity-type client-metrics --entity-name m --add-config match=[nosuch=x.*]"),
    ("metrics name", CONFIGS, "--alter --entity-type client-metrics --entity-name m --add-config nosuch=1"),
    ("metrics", CONFIGS, "--describe --entity-type client-metrics --entity-name m"),
    ("all metrics", CONFIGS, "--describe --entity-type client-metrics"),
    (
        "set quota",
        CONFIGS,
        "--alter --entity-type users --entity-name u --entity-type clients --entity-default "
        "--add-config producer_byte_rate=1000000,consumer_byte_rate=2000000,request_percentage=150",
    ),
    ("bad quota", CONFIGS, "--alter --entity-type users --entity-name u --add-config producer_byte_rate=-1"),
    ("quotas", CONFIGS, "--describe --entity-type users --entity-type clients"),
    (
        "delete quota",
        CONFIGS,
        "--alter --entity-type users --entity-name u --entity-type clients --entity-default "
        "--delete-config producer_byte_rate,consumer_byte_rate,request_percentage",
    ),
    (
        "credential",
        CONFIGS,
        "--alter --entity-type users --entity-name al --add-config SCRAM-SHA-256=[password=secret]",
    ),
    (
        "two credentials",
        CONFIGS,
        "--alter --entity-type users --entity-name al "
        "--add-config SCRAM-SHA-256=[iterations=8192,password=x],SCRAM-SHA-512=[password=x]",
    ),
    ("credentials", CONFIGS, "--describe --entity-type users --entity-name al"),
    ("delete no credential", CONFIGS, "--alter --entity-type users --entity-name al --delete-config SCRAM-SHA-512"),
    ("delete credential", CONFIGS, "--alter --entity-type users --entity-name al --delete-config SCRAM-SHA-256"),
    ("users", CONFIGS, "--describe --entity-type users"),
    ("features", FEATURES, "describe"),
    ("voter", QUORUM, "remove-controller --controller-id 2 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ"),
    ("release", FEATURES, "upgrade --release-version 4.1"),
    ("feature too high", FEATURES, "upgrade --feature group.version=9"),
    ("feature down", FEATURES, "downgrade --feature transaction.version=1"),
    ("quorum", QUORUM, "describe --status"),
    ("quorum replication", QUORUM, "describe --replication"),
    ("generate", REASSIGN, "--topics-to-move-json-file {topics} --broker-list 0,1,2 --generate"),
    ("reassignments", REASSIGN, "--list"),
    ("verify the same", REASSIGN, "--verify --reassignment-json-file {same}"),
    ("verify another", REASSIGN, "--verify --reassignment-json-file {moves}"),
    ("cancel", REASSIGN, "--cancel --reassignment-json-file {moves}"),
    ("elect", ELECT, "--election-type preferred --topic tooled --partition 0"),
    ("elect unclean", ELECT, "--election-type unclean --topic spread --partition 1"),
    ("elect unknown", ELECT, "--election-type preferred --topic nosuch --partition 0"),
    ("reorder", REASSIGN, "--execute --reassignment-json-file {reorder}"),
    ("reordered", REASSIGN, "--verify --reassignment-json-file {reorder}"),
    ("elect the first", ELECT, "--election-type preferred --topic spread --partition 0"),
    ("elect those of a file", ELECT, "--election-type preferred --path-to-json-file {partitions}"),
    ("fewer replicas", REASSIGN, "--execute --reassignment-json-file {fewer}"),
    ("has fewer replicas", REASSIGN, "--verify --reassignment-json-file {fewer}"),
    ("topic with fewer replicas", TOPICS, "--describe --topic spread"),
    ("more replicas", REASSIGN, "--execute --reassignment-json-file {reorder}"),
    ("has more replicas", REASSIGN, "--verify --reassignment-json-file {reorder}"),
    ("topic with more replicas", TOPICS, "--describe --topic spread"),
    ("throttle", REASSIGN, "--execute --reassignment-json-file {heavy} --throttle 1"),
    ("throttled", REASSIGN, "--list"),
    ("throttled topic", CONFIGS, "--describe --entity-type topics --entity-name heavy"),
    ("throttled broker", CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    ("verify while throttled", REASSIGN, "--verify --reassignment-json-file {heavy}"),
    ("topic that moves", TOPICS, "--describe --topic heavy"),
    ("under-replicated that moves", TOPICS, "--describe --topic heavy --under-replicated-partitions"),
    ("move while another moves", REASSIGN, "--execute --reassignment-json-file {moves}"),
    ("other throttle", REASSIGN, "--execute --additional --reassignment-json-file {heavy} --throttle 2"),
    ("other limit", CONFIGS, "--describe --entity-type brokers --entity-name 0"),
    ("cancel while throttled", REASSIGN, "--cancel --reassignment-json-file {heavy}"),
    ("topic without throttle", CONFIGS, "--describe --entity-type topics --entity-name heavy"),
    ("broker without throttle", CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    (
        "bad throttle",
        CONFIGS,
        "--alter --entity-type topics --entity-name heavy --add-config leader.replication.throttled.replicas=[0:x]",
    ),
    (
        "bad rate",
        CONFIGS,
        "--alter --entity-type brokers --entity-name 1 --add-config leader.replication.throttled.rate=-1",
    ),
    ("directories of replicas", DIRS, "--describe --topic-list spread --broker-list 0,1,2"),
    ("directories", DIRS, "--describe --topic-list tooled --broker-list 0,1,2"),
    ("directories of no broker", DIRS, "--describe --broker-list 0,7"),
    ("groups", GROUPS, "--list"),
    ("states of groups", GROUPS, "--list --state"),
    ("group", GROUPS, "--describe --group g"),
    ("state of group", GROUPS, "--describe --group g --state"),
    ("members", GROUPS, "--describe --group g --members"),
    ("unknown group", GROUPS, "--describe --group nosuch"),
    ("reset", GROUPS, "--reset-offsets --group g --topic tooled --to-earliest --execute"),
    ("delete offsets", GROUPS, "--delete-offsets --group g --topic tooled:1"),
    ("delete group", GROUPS, "--delete --group g"),
    ("transactions", TRANSACTIONS, "list"),
    ("transaction", TRANSACTIONS, "describe --transactional-id t"),
    ("producers", TRANSACTIONS, "describe-producers --topic tooled --partition 0"),
    ("hanging", TRANSACTIONS, "find-hanging --broker-id 0 --topic tooled"),
    ("execute", REASSIGN, "--execute --reassignment-json-file {moves}"),
    ("moved", REASSIGN, "--verify --reassignment-json-file {moves}"),
    ("topic after", TOPICS, "--describe --topic tooled"),
    ("delete", TOPICS, "--delete --topic tooled"),
    (
        "verification",
        VERIFY,
        "--topics-include spread --report-interval-ms 500",
    ),  # it does not end, and prints to the end
]
DIFFERENT = {
    "features": "share.version",  # there are no share groups
}
"""Outputs of which lines differ, and what the lines have that kafkalake does not print."""

UNTIL = {
    "default": "threads=2",
    "broker": "threads=3 sensitive",
    "brokers": "threads=3 sensitive.*threads=2 sensitive",
    "group settings": "50000",
    "settings of groups": "g2",
    "metrics": "60000",
    "all metrics": "60000",
    "quotas": "producer_byte_rate",
    "credentials": "4096",
    "users": "^(?!.*SCRAM)",
    "reassignments": "No partition",
    "moved": "is completed",
    "at min isr": "Partition: 1",
    "reordered": "is completed",
    "has fewer replicas": "is completed",
    "topic with fewer replicas": "Isr: [12],[12]\\b(?!,)",
    "has more replicas": "is completed",
    "topic with more replicas": "(Isr: \\d,\\d,\\d.*){2}",
    "throttled": "adding",
    "throttled topic": "0:1",
    "throttled broker": "(rate=1 sens.*){2}",
    "topic that moves": "Replicas: 1,0",
    "other limit": "(rate=2 sens.*){2}",  # Apache Kafka shows the value before with the new synonym for a moment
    "topic without throttle": "^(?!.*throttled)",
    "broker without throttle": "^(?!.*throttled)",
    "verification": "is started",  # a topic that was deleted is listed for a moment
}
"""What an output has once the broker that is asked has heard of the change before: brokers of both kinds follow a moment later."""


def use(cluster: Cluster) -> None:
    """Leave records, a group with offsets and a transaction behind."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer(servers)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%020d" % number, partition=number % 3)
        producer.produce(SPREAD, b"%020d" % number, partition=number % 2)
    for _ in range(HEAVY_RECORDS):
        producer.produce(HEAVY, bytes(HEAVY_BYTES), partition=0)
        assert producer.flush(30) == 0  # records that come together are one message, which is copied whole
    assert producer.flush(30) == 0
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    found: list[bytes] = []

    def have_all() -> bool:
        found.extend(each.value() for each in consumer.consume(RECORDS, 0.5) if each.error() is None)
        return len(found) == RECORDS

    wait_until(have_all, timeout_s=40)
    consumer.commit(asynchronous=False)
    consumer.close()
    producer = Producer({**servers, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"x", partition=0)
    producer.commit_transaction(30)


def outputs(cluster: Cluster, directory: Path) -> dict[str, str]:
    files = {
        "topics": {"version": 1, "topics": [{"topic": TOPIC}]},
        "same": {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [0]}]},
        "moves": {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [1]}]},
        "reorder": {"version": 1, "partitions": [{"topic": SPREAD, "partition": 0, "replicas": [1, 2, 0]}]},
        "fewer": {"version": 1, "partitions": [{"topic": SPREAD, "partition": 0, "replicas": [1, 2]}]},
        "partitions": {"partitions": [{"topic": SPREAD, "partition": each} for each in (0, 1)]},
        "heavy": {"version": 1, "partitions": [{"topic": HEAVY, "partition": 0, "replicas": [1]}]},
    }
    paths = {name: directory / f"{name}.json" for name in files}
    for name, content in files.items():
        paths[name].write_text(json.dumps(content))
    found = call(cluster.bootstrap_servers, CREATE, paths, UNTIL)
    use(cluster)
    return found | call(cluster.bootstrap_servers, COMMANDS, paths, UNTIL)


@pytest.fixture(scope="module")
def printed(three_brokers: Clusters, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, str]]:
    return of_both(outputs, three_brokers.apache_kafka, three_brokers.kafkalake, tmp_path_factory.mktemp("tools"))


UNORDERED = {
    "generate": r'"replicas":\[\d\]',
    "quorum replication": r"^\d .*",
    "group": "$^",
    "reset": "$^",
    "settings of groups": "$^",  # groups come as their coordinators answer
}
"""Outputs whose lines are in no order, and what differs in them."""
NAMES = [name for name, _, _ in (*CREATE, *COMMANDS)]


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_prints_the_same(printed: tuple[dict[str, str], dict[str, str]], name: str) -> None:
    expected, found = (each[name].splitlines() for each in printed)
    if name in DIFFERENT:
        expected = [line for line in expected if DIFFERENT[name] not in line]
    if name in UNORDERED:
        expected, found = (sorted(re.sub(UNORDERED[name], "", line) for line in lines) for lines in (expected, found))
    assert found == expected
