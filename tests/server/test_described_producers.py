"""DescribeProducers of a partition with very many producers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from steps import count_steps
from written_lake import WrittenLake

from kafkalake.server.handlers import describe_producers
from kafkalake.wire.messages.offsets import TopicIndexes
from kafkalake.wire.messages.transactions import DescribeProducersRequest

PRODUCERS = 50


def test_the_producers_of_a_partition_are_described_in_steps(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path)
    lake.create("clicks")
    for producer_id in range(PRODUCERS):
        lake.append("clicks", 0, [(1_000, None, b"x", [])], producer_id=producer_id, epoch=0, sequence=0)
    broker = SimpleNamespace(
        topics=SimpleNamespace(topic=lambda name: name),
        replicas=SimpleNamespace(find_log=lambda topic, index: lake.logs[topic, index]),
    )
    asked: Any = SimpleNamespace(
        body=DescribeProducersRequest(topics=[TopicIndexes(name="clicks", partition_indexes=[0])]),
        context=SimpleNamespace(broker=broker),
        allows=lambda *_: True,
    )
    steps, answer = count_steps(describe_producers.handle(asked))
    assert steps >= PRODUCERS
    found = answer.topics[0].partitions[0].active_producers
    assert [(each.producer_id, each.last_sequence) for each in found] == [(each, 0) for each in range(PRODUCERS)]
