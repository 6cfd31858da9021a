"""Changes of the settings of many resources in one request: few versions of the cluster, and a result for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from contract.test_configs_contract import SET, describe
from contract.wire_client import WireClient, create_topic
from node_in_thread import NodeInThread

from kafkalake.broker.admin.config_admin import CHANGES_MAX
from kafkalake.errors import InvalidConfigError, InvalidRequestError, UnknownTopicOrPartitionError

pytestmark = pytest.mark.process

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
TIMEOUT = "consumer.session.timeout.ms"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("together") / "lake") as broker:
        yield broker


def asked(kind: int, name: str, setting: str, value: str) -> dict[str, Any]:
    configs = [{"name": setting, "config_operation": SET, "value": value}]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def alter(client: WireClient, *resources: dict[str, Any], validate_only: bool = False) -> list[int]:
    answer = client.call("IncrementalAlterConfigs", 1, resources=resources, validate_only=validate_only)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [
        (each["resource_type"], each["resource_name"]) for each in resources
    ]
    return [int(each.error_code) for each in answer.responses]


def test_many_groups_are_few_versions(broker: NodeInThread) -> None:
    count = CHANGES_MAX + 10
    with WireClient(broker.servers) as client:
        before = broker.broker.cluster.version
        groups = [asked(GROUP, f"g{number}", TIMEOUT, "50000") for number in range(count)]
        assert alter(client, *groups, validate_only=True) == [0] * count
        assert broker.broker.cluster.version == before
        assert alter(client, *groups) == [0] * count
        assert broker.broker.cluster.version == before + 2
        for number in (0, count - 1):
            values = {each.name: each.value for each in describe(client, GROUP, f"g{number}").configs}
            assert values[TIMEOUT] == "50000"


def test_each_resource_has_its_own_result(broker: NodeInThread) -> None:
    with WireClient(broker.servers) as client:
        create_topic(client, "t")
        before = broker.broker.cluster.version
        codes = alter(
            client,
            asked(GROUP, "good", TIMEOUT, "51000"),
            asked(GROUP, "bad", TIMEOUT, "no number"),
            asked(TOPIC, "unknown", "retention.ms", "1000"),
            asked(BROKER, "", "log.retention.ms", "70000"),
            asked(99, "x", "some", "1"),
            asked(CLIENT_METRICS, "", "metrics", "a"),
            asked(GROUP, "twice", TIMEOUT, "51000"),
            asked(GROUP, "twice", TIMEOUT, "52000"),
            asked(TOPIC, "t", "retention.ms", "80000"),
        )
        invalid, malformed = InvalidConfigError.code, InvalidRequestError.code
        unknown = UnknownTopicOrPartitionError.code
        assert codes == [0, invalid, unknown, 0, malformed, malformed, malformed, malformed, 0]
        assert broker.broker.cluster.version == before + 2  # one for the topic
        values = {each.name: each.value for each in describe(client, GROUP, "good").configs}
        assert values[TIMEOUT] == "51000"
        assert {each.name: each.value for each in describe(client, TOPIC, "t").configs}["retention.ms"] == "80000"
