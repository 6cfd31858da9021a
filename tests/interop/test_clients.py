"""Real clients write and read, each what it wrote and what the others wrote, on kafkalake and on Apache Kafka alike."""

from __future__ import annotations

import os
from typing import Any

import pytest
from kafka_clients import CLIENTS, CODECS, Client, Record, create_topic

START_MS = 1_700_000_000_000
ODD_RECORDS = [
    Record(b"key", b"value", (("a", b"1"), ("b", None), ("a", b"again"), ("ü", b"")), START_MS),
    Record(None, b"no key", (), START_MS + 10),
    Record(b"tombstone", None, (), START_MS + 20),
    Record(None, None, (), START_MS + 30),
    Record(b"", b"", (), START_MS + 30),
    Record(b"one byte", b"x", (), START_MS + 40),
    Record(b"large", os.urandom(900 * 1024), (("after", b"large"),), START_MS + 50),
    Record(b"last", bytes(range(256)), (), START_MS + 60),
]


def numbered(records: list[Record], offsets: list[int]) -> list[Record]:
    return [
        Record(record.key, record.value, record.headers, record.timestamp_ms, offset)
        for record, offset in zip(records, offsets, strict=True)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
def test_what_one_client_writes_every_client_reads(any_broker: Any, topic: str, writer: Client, codec: str) -> None:
    create_topic(any_broker.bootstrap_servers, topic, config={"max.message.bytes": "2000000"})
    servers = any_broker.bootstrap_servers
    records = [record for record in ODD_RECORDS if writer.can_write(record)]
    offsets = writer.write(servers, topic, 0, records, codec)
    assert offsets == list(range(len(records)))
    for reader in CLIENTS:
        read = reader.read(servers, topic, 0, 0, len(records))
        assert read == numbered(records, offsets), reader.name


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_seeks_by_offset_land_inside_batches(any_broker: Any, topic: str, client: Client) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    records = [Record(b"%d" % i, b"v" * 50, (), START_MS + i) for i in range(2_000)]
    client.write(servers, topic, 1, records, "none")
    for offset in (0, 1, 777, 1_999):
        read = client.read(servers, topic, 1, offset, 1)
        assert [(record.key, record.offset) for record in read] == [(b"%d" % offset, offset)]
    assert client.bounds(servers, topic, 1) == (0, 2_000)
    assert client.bounds(servers, topic, 0) == (0, 0)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_seeks_by_time_find_the_first_record_not_older(any_broker: Any, topic: str, client: Client) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic)
    for start in range(0, 1_000, 100):
        records = [Record(None, b"v" * 500, (), START_MS + 10 * (start + i)) for i in range(100)]
        client.write(servers, topic, 0, records, "lz4")
    assert client.offset_at(servers, topic, 0, START_MS) == 0
    assert client.offset_at(servers, topic, 0, 0) == 0
    assert client.offset_at(servers, topic, 0, START_MS + 10 * 555) == 555
    assert client.offset_at(servers, topic, 0, START_MS + 10 * 555 - 9) == 555
    assert client.offset_at(servers, topic, 0, START_MS + 10 * 999) == 999
    assert client.offset_at(servers, topic, 0, START_MS + 10 * 999 + 1) is None


@pytest.mark.parametrize("codec", CODECS)
def test_compression_type_of_the_topic_rules(any_broker: Any, topic: str, codec: str) -> None:
    servers = any_broker.bootstrap_servers
    setting = "uncompressed" if codec == "none" else codec
    create_topic(servers, topic, config={"compression.type": setting})
    records = [Record(b"%d" % i, b"squeeze " * 20, (), START_MS + i) for i in range(200)]
    for writer in CLIENTS:
        writer.write(servers, topic, 0, records, "gzip")
    read = CLIENTS[0].read(servers, topic, 0, 0, 600)
    assert [record.value for record in read] == [record.value for record in records] * 3


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_log_append_time_replaces_the_producers_time(any_broker: Any, topic: str, client: Client) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, config={"message.timestamp.type": "LogAppendTime"})
    client.write(servers, topic, 0, [Record(None, b"a", (), 1_000), Record(None, b"b", (), 2_000)], "none")
    for reader in CLIENTS:
        read = reader.read(servers, topic, 0, 0, 2)
        assert all(record.timestamp_ms > START_MS for record in read), reader.name
        assert reader.offset_at(servers, topic, 0, START_MS) == 0
