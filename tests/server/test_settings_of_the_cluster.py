"""Settings and producer ids that releases before 0.2 kept in files of a broker: the cluster has them from the first start on."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.test_configs_contract import BROKER, DELETE, SET, incremental, settings
from contract.wire_client import WireClient
from node_in_thread import NodeInThread

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import BROKER_SETTINGS_FILE, GROUP_SETTINGS_FILE, broker_log_path
from kafkalake.reader.topic_settings import broker_settings

pytestmark = pytest.mark.process

GROUP = 32


def producer_id(client: WireClient) -> int:
    answer = client.call(
        "InitProducerId", 4, transactional_id=None, transaction_timeout=1000, producer_id=-1, producer_epoch=-1
    )
    return int(answer.producer_id)


def test_what_was_in_files_is_the_clusters(tmp_path: Path) -> None:
    directory, elsewhere = broker_log_path(tmp_path, 0), broker_log_path(tmp_path, 1)
    for each in (directory, elsewhere):
        each.mkdir(parents=True)
    (directory / BROKER_SETTINGS_FILE).write_text(
        '{"default": {"log.retention.ms": "5000"}, "broker": {"max.partitions": "70"}}'
    )
    (directory / GROUP_SETTINGS_FILE).write_text('{"g": {"consumer.session.timeout.ms": "46000"}}')
    (directory / "producer-ids.json").write_text('{"reserved": 3000}')
    (elsewhere / "producer-ids.json").write_text('{"reserved": 7000}')
    given = []
    for retention, limit in (("5000", "70"), ("6000", "50000")):
        with NodeInThread(tmp_path) as node, WireClient(node.servers) as client:
            assert settings(client, BROKER, "0")["log.retention.ms"] == (retention, 3)
            assert settings(client, BROKER, "0")["max.partitions"][0] == limit
            assert settings(client, GROUP, "g")["consumer.session.timeout.ms"] == ("46000", 8)
            given.append(producer_id(client))
            assert incremental(client, BROKER, "", ("log.retention.ms", SET, "6000")) == 0
            assert incremental(client, BROKER, "0", ("max.partitions", DELETE, None)) == 0
        assert not (directory / BROKER_SETTINGS_FILE).exists()
        assert not (directory / GROUP_SETTINGS_FILE).exists()
    assert given == [2**40 + 7000, 2**40 + 8000]
    config = DeltaMetadataStore(tmp_path, create=False).control_store.load().config
    assert broker_settings(tmp_path, config).topic({}).retention_ms == 6000
