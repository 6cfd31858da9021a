"""Kafka's tools for access, metrics of clients, groups of each type, offsets and versions print the same on both brokers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from interop.tool_calls import TOOLS, call, of_both
from kafka_reference import ApacheKafka, BrokerProcess, Kafkalake

pytestmark = [pytest.mark.peer, pytest.mark.exhaustive]

TOPICS = TOOLS + "TopicCommand"
ACLS, TOKENS, METRICS = TOOLS + "AclCommand", TOOLS + "DelegationTokenCommand", TOOLS + "ClientMetricsCommand"
OFFSETS, RECORDS = TOOLS + "GetOffsetShell", TOOLS + "DeleteRecordsCommand"
APIS, CLUSTER = TOOLS + "BrokerApiVersionsCommand", TOOLS + "ClusterTool"
GROUPS, SHARES, STREAMS = (
    TOOLS + name for name in ("GroupsCommand", "consumer.group.ShareGroupCommand", "streams.StreamsGroupCommand")
)
SHARE_CONSUMER = TOOLS + "consumer.ConsoleShareConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
TOKEN = "--command-config {client} "

COMMANDS = [
    ("create", TOPICS, "--create --topic asked --partitions 3"),
    ("create other", TOPICS, "--create --topic other --partitions 2"),
    ("acls", ACLS, "--list"),
    ("acls of a topic", ACLS, "--list --topic asked --resource-pattern-type match"),
    ("add acl", ACLS, "--add --allow-principal User:a --operation Read --topic asked"),
    ("add acls of a producer", ACLS, "--add --allow-principal User:a --producer --topic asked --idempotent"),
    ("remove acl", ACLS, "--remove --force --allow-principal User:a --operation Read --group g"),
    ("create token", TOKENS, TOKEN + "--create --max-life-time-period -1 --renewer-principal User:a"),
    ("tokens", TOKENS, TOKEN + "--describe --owner-principal User:a"),
    ("all tokens", TOKENS, TOKEN + "--describe"),
    ("renew token", TOKENS, TOKEN + "--renew --renew-time-period -1 --hmac AAAA"),
    ("expire token", TOKENS, TOKEN + "--expire --expiry-time-period -1 --hmac AAAA"),
    ("alter metrics", METRICS, "--alter --name asked --interval 60000 --metrics a.b --match client_id=x"),
    ("alter metrics badly", METRICS, "--alter --name asked --interval 1"),
    ("metrics of clients", METRICS, "--describe --name asked"),
    ("names of metrics", METRICS, "--list"),
    ("no metrics", METRICS, "--describe --name nosuch"),
    ("delete metrics", METRICS, "--delete --name asked"),
    ("names after", METRICS, "--list"),
    ("delete no metrics", METRICS, "--delete --name nosuch"),
    ("all groups", GROUPS, "--list"),
    ("consumer groups", GROUPS, "--list --consumer"),
    ("share groups", GROUPS, "--list --share"),
    ("streams groups", GROUPS, "--list --group-type streams"),
    ("groups by protocol", GROUPS, "--list --protocol consumer"),
    ("list share groups", SHARES, "--list --state"),
    ("describe share group", SHARES, "--describe --group g3"),
    ("describe share group's offsets", SHARES, "--describe --group g3 --offsets"),
    ("describe share group's members", SHARES, "--describe --group g3 --members"),
    ("describe all share groups", SHARES, "--describe --all-groups"),
    ("reset share group", SHARES, "--reset-offsets --group g3 --topic asked --to-earliest --execute"),
    ("delete share group's offsets", SHARES, "--delete-offsets --group g3 --topic asked"),
    ("delete share group", SHARES, "--delete --group g3"),
    ("consume in a share group", SHARE_CONSUMER, "--group g3 --topic asked --timeout-ms 60000 --max-messages 1"),
    ("list streams groups", STREAMS, "--list"),
    ("describe streams group", STREAMS, "--describe --group g4"),
    ("delete streams group", STREAMS, "--delete --group g4"),
    ("offsets", OFFSETS, "--topic asked|other"),
    ("first offsets", OFFSETS, "--topic asked --time earliest"),
    ("offsets at the largest timestamp", OFFSETS, "--topic other --time max-timestamp"),
    ("offsets of a future time", OFFSETS, "--topic-partitions asked:0-2 --time 99999999999999"),
    ("offsets in remote storage", OFFSETS, "--topic asked --time latest-tiered"),
    ("local offsets", OFFSETS, "--topic asked --time earliest-local"),
    ("offsets of no topic", OFFSETS, "--topic nosuch --partitions 0"),
    ("delete records", RECORDS, "--offset-json-file {records}"),
    ("versions of APIs", APIS, ""),
    ("id of the cluster", CLUSTER, "cluster-id {servers}"),
    ("endpoints", CLUSTER, "list-endpoints {servers}"),
    ("endpoints with fenced brokers", CLUSTER, "list-endpoints {servers} --include-fenced-brokers"),
    ("unregister a broker that is not there", CLUSTER, "unregister {servers} --id 77"),
    ("quota of an address", CONFIGS, "--describe --entity-type ips --entity-name 10.77.0.1"),
    ("quota of a client", CONFIGS, "--describe --entity-type clients --entity-name nosuch"),
    ("levels of loggers of no broker", CONFIGS, "--describe --entity-type broker-loggers --entity-name 77"),
    (
        "unknown setting of a group",
        CONFIGS,
        "--alter --entity-type groups --entity-name g2 --add-config nosuch=1",
    ),
    (
        "setting of a group out of range",
        CONFIGS,
        "--alter --entity-type groups --entity-name g2 --add-config consumer.session.timeout.ms=1",
    ),
    (
        "setting of a share group",
        CONFIGS,
        "--alter --entity-type groups --entity-name g2 --add-config share.auto.offset.reset=earliest",
    ),
    (
        "unknown setting of a topic",
        CONFIGS,
        "--alter --entity-type topics --entity-name asked --add-config nosuch=1",
    ),
    ("settings of no topic", CONFIGS, "--describe --entity-type topics --entity-name nosuch"),
    ("delete what is not set", CONFIGS, "--alter --entity-type topics --entity-name asked --delete-config segment.ms"),
    ("delete", TOPICS, "--delete --topic asked|other"),
]

UNTIL = {"metrics of clients": "60000", "names of metrics": "asked", "names after": "^(?!.*asked)"}

DIFFERENT = {"setting of a share group": "Unknown group config name: share.auto.offset.reset"}
"""What kafkalake prints otherwise: there are no share groups, and a setting without an effect is refused."""

OWN = re.compile(r"\b(asked|other|g2|g3|g4)\b")
OTHER_TESTS = re.compile(r"-[0-9a-f]{10}\b")
"""Lines about topics and groups that other tests have left on the shared brokers."""
UNORDERED = {"delete records", "add acls of a producer"}
"""The tool prints partitions as they are answered, and ACLs in the order of Java's hashes of constants, which a JVM makes anew."""
LISTINGS = {
    *("all groups", "consumer groups", "share groups", "streams groups", "groups by protocol"),
    *("list share groups", "describe all share groups", "list streams groups", "names of metrics", "names after"),
}
"""Other tests leave groups and metrics on one of the brokers: of these outputs only the status and what these tests made count."""


def own_lines(name: str, text: str) -> str:
    status, *lines = text.splitlines()
    kept = [line for line in lines if OWN.search(line) or not (name in LISTINGS or OTHER_TESTS.search(line))]
    return "\n".join([status, *(sorted(kept) if name in UNORDERED else kept)])


def outputs(broker: BrokerProcess, directory: Path) -> dict[str, str]:
    paths = {name: directory / f"{name}.json" for name in ("client", "records")}
    paths["client"].write_text("")
    offsets = [{"topic": "asked", "partition": 2, "offset": 0}, {"topic": "asked", "partition": 1, "offset": 7}]
    paths["records"].write_text(json.dumps({"version": 1, "partitions": offsets}))
    found = call(broker.bootstrap_servers, COMMANDS, paths, UNTIL)
    return {name: own_lines(name, text) for name, text in found.items()}


@pytest.fixture(scope="module")
def printed(
    _shared_kafkalake: Kafkalake, kafka_reference: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], dict[str, str]]:
    return of_both(outputs, kafka_reference, _shared_kafkalake, tmp_path_factory.mktemp("tools"))


@pytest.mark.parametrize("name", [name for name, _, _ in COMMANDS])
def test_a_tool_prints_the_same(printed: tuple[dict[str, str], dict[str, str]], name: str) -> None:
    expected, found = printed
    if name in DIFFERENT:
        assert DIFFERENT[name] in found[name]
        assert DIFFERENT[name] not in expected[name]
        return
    assert found[name].splitlines() == expected[name].splitlines()
