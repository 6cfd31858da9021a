"""A lake of release 0.1, with neither the table `cluster` nor ids of topics beside its logs, is opened by a broker of today."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from contract import test_groups_contract as groups
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce, values_of
from node_in_thread import NodeInThread

from kafkalake.cluster.image import NO_LEADER
from kafkalake.metadata.lake_format import read_format
from kafkalake.storage.partition_metadata import PARTITION_METADATA_FILE

pytestmark = pytest.mark.process


def make_older(lake: Path) -> None:
    """Remove what came after 0.1."""
    shutil.rmtree(lake / "metadata" / "cluster")
    (lake / "metadata" / "format.json").unlink()
    for each in (lake / "logs" / "0").glob(f"*/{PARTITION_METADATA_FILE}"):
        each.unlink()
    assert read_format(lake).written_by == "kafkalake 0.1"


def commit(client: WireClient, offset: int) -> int:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": "clicks", "partitions": [partition]}]
    values = {"group_id": "group", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    return code(client.call("OffsetCommit", 8, **values).topics[0].partitions[0].error_code)


def committed(client: WireClient) -> int:
    topics = [{"name": "clicks", "partition_indexes": [0]}]
    answer = client.call("OffsetFetch", 7, group_id="group", topics=topics, require_stable=True)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_its_topics_are_led_with_their_records_and_groups(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with NodeInThread(lake) as node, WireClient(node.servers) as client:
        create_topic(client, "clicks", 2)
        for number in range(3):
            assert produce(client, "clicks", batch([(None, b"%d" % number)])).base_offset == number
        groups.await_coordinator(client, "group")
        assert commit(client, 2) == 0
        topic_id = node.broker.topics.topic("clicks").topic_id
    make_older(lake)
    for count in (4, 5):
        with NodeInThread(lake) as node, WireClient(node.servers) as client:
            topic = node.on_loop(lambda node=node: node.broker.topics.topic("clicks"))
            assert topic.topic_id == topic_id
            assert [(each.leader, each.replicas, each.isr) for each in topic.registrations] == [(0, (0,), (0,))] * 2
            assert produce(client, "clicks", batch([(None, b"%d" % (count - 1))])).base_offset == count - 1
            found = [values_of(fetch(client, "clicks", offset).records)[0] for offset in range(count)]
            assert found == [(offset, b"%d" % offset) for offset in range(count)]
            groups.await_coordinator(client, "group")
            assert committed(client) == 2
            assert read_format(lake).written_by != "kafkalake 0.1"
            leaders = [each.leader for parts in node.broker.cluster.partitions.values() for each in parts]
            assert NO_LEADER not in leaders
