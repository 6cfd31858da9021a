"""Reports of other brokers, whatever their bytes are: their rows, or an error that concerns that broker alone."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from kafkalake.broker.publishing.report_rows import decode_journal, decode_partitions, encode_journal, encode_partitions
from kafkalake.broker.publishing.reports import JournalReport, Kind, PartitionReport
from kafkalake.errors import BrokerUnavailableError
from kafkalake.metadata.tables.schemas import PARTITIONS_SCHEMA, PartitionRow, SegmentKey, TransactionRow
from kafkalake.server.report_messages import journal_report
from kafkalake.wire.messages.reports import ReportChangesResponse

ROWS = [PartitionRow("clicks", "id", each, 0, 1, (0, 1), (0,), 0, 5, 5, 6) for each in range(3)]
TRANSACTIONS = [
    TransactionRow(f"t{each}", 7, 0, "Ongoing", (("clicks", 0),), 60_000, 1, 2, -1, -1, 0, 0, 9) for each in range(3)
]
DAMAGES = 400


def damaged(data: bytes, random: Random) -> bytes:
    found = bytearray(data)
    if random.random() < 0.3:
        return bytes(found[: random.randrange(len(found))])
    for _ in range(random.choice((1, 2, 8))):
        found[random.randrange(len(found))] = random.randrange(256)
    return bytes(found)


@pytest.mark.exhaustive
def test_a_damaged_report_fails_as_that_of_a_broker_that_does_not_answer() -> None:
    report = PartitionReport(1, 5, ROWS, removed=(SegmentKey("id", 0, 0, 0),))
    (tables,) = encode_partitions(report)
    assert decode_partitions(PartitionReport(1, 5), [tables]).rows == ROWS
    random, refused = Random(3), 0
    for number in range(DAMAGES):
        part = list(tables)
        part[number % len(part)] = damaged(bytes(part[number % len(part)]), random)
        try:
            decode_partitions(PartitionReport(1, 5), [part])
        except BrokerUnavailableError:
            refused += 1
    assert refused > DAMAGES // 2
    journal = encode_journal(JournalReport(5, TRANSACTIONS, {}), Kind.TRANSACTIONS)
    for _ in range(DAMAGES):
        try:
            decode_journal(JournalReport(5), Kind.TRANSACTIONS, [[damaged(bytes(journal[0][0]), random)]])
        except BrokerUnavailableError:
            refused += 1
    assert refused > DAMAGES


def test_a_report_lacks_no_value_and_no_position() -> None:
    nothing = pa.table([pa.nulls(1, field.type) for field in PARTITIONS_SCHEMA], schema=PARTITIONS_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PARTITIONS_SCHEMA) as stream:
        stream.write_table(nothing)
    (tables,) = encode_partitions(PartitionReport(1, 5, ROWS))
    with pytest.raises(BrokerUnavailableError):
        decode_partitions(PartitionReport(1, 5), [[bytes(sink.getvalue()), *tables[1:]]])
    with pytest.raises(BrokerUnavailableError):
        journal_report(Kind.TRANSACTIONS, [ReportChangesResponse(journal_partitions=[1, 2], journal_positions=[5])])
