"""The broker after a loss of power that has damaged Delta's files: one start mends all tables, again, and with kills between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from contract.wire_client import WireClient, create_topic
from deltalake import DeltaTable
from kafka_clients import Confluent, Record
from test_group_offsets_durable import commit, committed, coordinator
from waiting import wait_until

from kafkalake.dataset import topic_dataset
from kafkalake.metadata.paths import TABLES, table_path

RECORDS = [Record(None, b"%d" % number) for number in range(20)]


def damage(lake: Path) -> None:
    """Of every table: three torn entries, as of commits that nobody has acknowledged, a torn checkpoint and a hint at it."""
    for name in TABLES:
        log = table_path(lake, name) / "_delta_log"
        newest = max(int(entry.name[:20]) for entry in log.glob("*.json"))
        for version, content in enumerate((b'{"commitInfo":', b"", bytes(300)), newest + 1):
            (log / f"{version:020}.json").write_bytes(content)
        (log / f"{newest:020}.checkpoint.parquet").write_bytes(b"PAR1")
        (log / "_last_checkpoint").write_text(f'{{"version":{newest},"size":3}}')


def cut_partitions(lake: Path) -> None:
    """Publishes are not forced to the disk: the last ones are gone, and of those before the data files are empty."""
    log = table_path(lake, "partitions") / "_delta_log"
    for entry in sorted(log.glob("*.json"))[-2:]:
        entry.unlink()
    for file in (table_path(lake, "partitions") / "leader=0").glob("*.parquet"):
        os.truncate(file, 0)


def test_one_start_mends_every_table_again_and_again(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings={"offsets.topic.num.partitions": "1", "metadata.publish.interval.ms": "100"})
    with coordinator(broker, "etl") as client:
        create_topic(client, "clicks", 2)
        commit(client, "etl", {0: 7})
    Confluent().write(broker.bootstrap_servers, "clicks", 0, RECORDS, "none")
    for round_number in range(2):
        wait_until(lambda: committed_in_delta(broker.lake) == 7)
        if round_number == 1:
            broker.stop()
        else:
            broker.kill()
        damage(broker.lake)
        if round_number != 1:
            cut_partitions(broker.lake)
        broker.start()
        broker.kill()  # at once: what was mended stays mended
        broker.start()
        with coordinator(broker, "etl") as client:
            assert committed(client, "etl") == {0: 7}
        found = Confluent().read(broker.bootstrap_servers, "clicks", 0, 0, len(RECORDS))
        assert [record.value for record in found] == [record.value for record in RECORDS]
        with WireClient(broker.bootstrap_servers) as client:
            create_topic(client, f"after-{round_number}", 1)
        wait_until(lambda: published_end(broker.lake) == len(RECORDS))
        for name in TABLES:
            DeltaTable(table_path(broker.lake, name)).to_pyarrow_table()
        assert topic_dataset(broker.lake, "clicks").count_rows() == len(RECORDS)


def published_end(lake: Path) -> int:
    rows = DeltaTable(table_path(lake, "partitions")).to_pyarrow_table()
    ends = [row["high_watermark"] for row in rows.to_pylist() if (row["topic"], row["partition"]) == ("clicks", 0)]
    return max(ends, default=-1)


def committed_in_delta(lake: Path) -> int:
    rows = DeltaTable(table_path(lake, "group_offsets")).to_pyarrow_table()
    return pc.max(rows.column("offset")).as_py() if rows.num_rows else -1
