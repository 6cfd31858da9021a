"""What compaction does to transactions, looked at in the segments themselves, beside a broker whose clients read at each stage.

Kafka's rules: the records of an aborted transaction go at once. A marker stays while the job still finds records of its
transaction; the first run that finds none gives it a delete horizon, `delete.retention.ms` later, and the first run after that
removes it. From the first open transaction on nothing is touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import confluent_kafka
import local_compaction
import pytest
from compacted_lake import compact
from kafka_clients import CLIENTS, COMMITTED, TIMEOUT_S, Client, Confluent, create_topic
from kafka_reference import Kafkalake
from record_batches import rows_of
from transactional_clients import ConfluentTransactions
from waiting import wait_until
from written_lake import ABORT, COMMIT

from kafkalake.cli.log import problems_of
from kafkalake.dataset import topic_dataset
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.schemas import SegmentRow
from kafkalake.record import layout as at
from kafkalake.storage.rewrite import ATTRIBUTE_DELETE_HORIZON
from kafkalake.storage.segment_reader import SEGMENTS

HOUR_MS = 60 * 60 * 1000
TOPIC = "states"
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "internal.segment.bytes": "3000",
    "delete.retention.ms": str(HOUR_MS // 2),
}


class Marker(NamedTuple):
    """The end of a transaction as it stands in a segment. delete_horizon_ms: None where it has none yet."""

    kind: int
    delete_horizon_ms: int | None


class Topic:
    """`states` on a broker, with transactional producers, and what is in its sealed segments."""

    def __init__(self, broker: Kafkalake) -> None:
        self.lake, self.servers = broker.lake, broker.bootstrap_servers
        create_topic(self.servers, TOPIC, config=CONFIG)
        self.store = DeltaMetadataStore(self.lake)
        self.plain = confluent_kafka.Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        self.first, self.second, self.third = (ConfluentTransactions(self.servers, f"txn-{number}") for number in "123")

    def write(self, pairs: dict[str, str]) -> None:
        """Outside transactions."""
        for key, value in pairs.items():
            self.plain.produce(TOPIC, value, key)
        assert self.plain.flush(TIMEOUT_S) == 0

    def transact(self, producer: ConfluentTransactions, pairs: dict[str, str]) -> None:
        """Begin a transaction and write."""
        producer.begin()
        for key, value in pairs.items():
            producer.send(TOPIC, 0, value.encode(), key.encode())

    def seal(self) -> int:
        """Have the segment sealed that is written to, and Delta know; the offset at which it ends."""
        end = Confluent().bounds(self.servers, TOPIC, 0)[1]
        for _ in range(2):  # two of them have no room in one segment
            self.write({"padding": "." * 2_000})
        wait_until(lambda: any(row.next_offset >= end for row in self.rows()), lambda: self.rows()[-1:])
        return end

    def rows(self) -> list[SegmentRow]:
        return self.store.load_segments(TOPIC)

    def stored(self) -> tuple[list[str], list[Marker]]:
        """Values (without the padding) and markers in the sealed segments that Delta names."""
        values, markers = [], []
        for row in self.rows():
            reader = SEGMENTS.open(self.lake / row.path)
            for messages in reader.messages(row.base_offset, row.next_offset):
                values += [value.decode() for _, (_, key, value, _) in rows_of(messages) if key != b"padding"]
                headers = messages.headers
                for header in headers[(headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL) != 0].tolist():
                    has_horizon = header[at.ATTRIBUTES] & ATTRIBUTE_DELETE_HORIZON
                    horizon_ms = header[at.BASE_TIMESTAMP] if has_horizon else None
                    markers.append(Marker(header[at.CONTROL_TYPE], horizon_ms))
        return values, markers

    def check_read(self, values: list[str]) -> None:
        """What is committed, padding aside, and that every client and the files say the same of every offset."""
        table = topic_dataset(str(self.lake), TOPIC).to_table(columns=["offset", "key", "value"])
        there = sorted(zip(*(table.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True))
        assert [value.decode() for _, key, value in there if key != b"padding"] == values

        def read(client: Client) -> list[tuple[int, bytes | None, bytes | None]]:
            records = client.read(self.servers, TOPIC, 0, 0, len(there), COMMITTED)
            return [(record.offset, record.key, record.value) for record in records]

        wait_until(lambda: read(CLIENTS[0]) == there, lambda: "the broker goes on with the old segments")
        for client in CLIENTS[1:]:
            assert read(client) == there
        assert list(problems_of(self.lake)) == []


@pytest.mark.long
def test_markers_stay_as_long_as_something_needs_them(
    kafkalake_broker: Callable[..., Kafkalake], monkeypatch: pytest.MonkeyPatch
) -> None:
    local_compaction.install(monkeypatch)
    topic = Topic(kafkalake_broker(settings={"metadata.publish.interval.ms": "100"}))
    now_ms = time.time_ns() // 1_000_000
    then_ms = now_ms - HOUR_MS  # when the first runs are; the brokers' time is now

    topic.write({"a": "a old"})
    topic.transact(topic.first, {"a": "a committed", "b": "b committed"})
    topic.first.commit()
    topic.transact(topic.second, {"b": "b aborted", "x": "x aborted"})
    topic.second.abort()
    stable = topic.seal()
    topic.transact(topic.third, {"c": "c in time"})
    topic.write({"d": "d old"})
    topic.seal()
    untouched = [row for row in topic.rows() if row.next_offset > stable + 1]
    assert untouched
    topic.check_read(["a old", "a committed", "b committed"])

    compact(topic.lake, "here", then_ms)
    # The open transaction and all behind it are as they were; aborted records are gone, markers have seen records yet.
    assert [row for row in topic.rows() if row in untouched] == untouched
    assert topic.stored() == (
        ["a committed", "b committed", "c in time", "d old"],
        [Marker(COMMIT, None), Marker(ABORT, None)],
    )
    topic.check_read(["a committed", "b committed"])

    topic.third.commit()
    topic.write({"a": "a new", "b": "b new", "d": "d new"})
    topic.seal()
    compact(topic.lake, "here", then_ms + 1)
    # Nothing was left of the aborted transaction, so that its marker has its horizon; the others had records.
    left = ["c in time", "a new", "b new", "d new"]
    aborted = Marker(ABORT, then_ms + 1 + HOUR_MS // 2)
    assert topic.stored() == (left, [Marker(COMMIT, None), aborted, Marker(COMMIT, None)])
    topic.check_read(left)

    topic.seal()
    compact(topic.lake, "here", then_ms + 2)
    first = Marker(COMMIT, then_ms + 2 + HOUR_MS // 2)
    assert topic.stored() == (left, [first, aborted, Marker(COMMIT, None)])
    topic.check_read(left)

    topic.seal()
    compact(topic.lake, "here", now_ms)
    # delete.retention.ms has passed; the last marker stays as long as its record does.
    assert topic.stored() == (left, [Marker(COMMIT, None)])
    topic.check_read(left)
