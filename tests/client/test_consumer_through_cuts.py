"""A consumer reads everything once and in order through connections that are slow, overtake each other and are cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cutting_proxy import CuttingProxy
from kafka_reference import Kafkalake, create_topic

import kafkalake

pytestmark = pytest.mark.process

RECORDS = 400
CUTS = 4
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def proxy() -> Iterator[CuttingProxy]:
    """In front of a broker that is only reached through it, with a topic for each protocol."""
    with (
        CuttingProxy() as proxy,
        Kafkalake(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as broker,
    ):
        proxy.lead_to(broker.port)
        for protocol in PROTOCOLS:
            create_topic(broker, protocol, partitions=2)
        yield proxy


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cuts_and_delays_lose_and_double_nothing_and_keep_the_order(proxy: CuttingProxy, protocol: str) -> None:
    servers = f"127.0.0.1:{proxy.port}"
    with kafkalake.Producer(bootstrap_servers=servers, linger_ms=0, batch_size=1_000) as producer:
        for number in range(RECORDS):
            for partition in (0, 1):
                producer.send(protocol, b"%0200d" % number, partition=partition)
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "max.partition.fetch.bytes": 4_096}
    with kafkalake.Consumer({**settings, "group.id": protocol, "group.protocol": protocol}) as reader:
        reader.subscribe([protocol])
        found: dict[int, list[int]] = {0: [], 1: []}
        cuts = 0
        while (count := sum(map(len, found.values()))) < 2 * RECORDS:
            if count > cuts * 2 * RECORDS // (CUTS + 1) and cuts < CUTS:
                proxy.cut()
                cuts += 1
            for record in reader.poll(1):
                found[record.partition].append(int(record.value))
            for batch in reader.poll_arrow(1):
                numbers = [int(value) for value in batch.column("value").to_pylist()]
                found[batch.column("partition")[0].as_py()] += numbers
        assert found == {partition: list(range(RECORDS)) for partition in (0, 1)}
        assert cuts > 1
