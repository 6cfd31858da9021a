"""Decodes the files of a log for `kafkalake log dump`. Read-only. Damage is reported as an entry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from kafkalake.codecs import NAMES
from kafkalake.errors import LakeError
from kafkalake.record import layout as at
from kafkalake.record.message_set import MessageSet, to_arrow
from kafkalake.storage.files import REAL_FILES, read_file
from kafkalake.storage.index import ENTRY_BYTES, decode_entries
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE, decode_leader_epochs
from kafkalake.storage.partition_metadata import PARTITION_METADATA_FILE, decode_partition_metadata
from kafkalake.storage.scanner import Resumption, good_message_after
from kafkalake.storage.segment import FIRST_MESSAGE
from kafkalake.storage.segment_names import DATA_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kafkalake.storage.segment_reader import SEGMENTS, MessageRun, SegmentReader, Stop
from kafkalake.storage.snapshot import SNAPSHOT_SUFFIX, decode_snapshot
from kafkalake.storage.state import SLOT_BYTES, STATE_FILE, decode_slot
from kafkalake.storage.txn_index import decode_aborted
from kafkalake.uuid_text import encode_uuid

CONTROL_TYPES = {-1: "", 0: "abort", 1: "commit", at.LOST_RECORDS: "lost"}


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """A record. Timestamp in ms. Key, value and header values are bytes or None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One producer batch of the message at byte `position`. Offsets inclusive. codec: the producer's."""

    position: int
    base_offset: int
    last_offset: int
    records: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    max_timestamp: int
    codec: str
    transactional: bool
    log_append_time: bool
    control: str
    rows: tuple[DumpedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class DumpedEntry:
    """Any other item of a file: an index entry, a state slot, a producer, damage, the footer."""

    position: int
    kind: str
    fields: dict[str, object]


def dump_file(path: str | os.PathLike[str], *, records: bool = True) -> Iterator[DumpedBatch | DumpedEntry]:
    """Return the items of the file at `path`, decoded by its name: a segment, an index, `state`, a snapshot, `leader-epochs`,
    `partition.metadata`.

    `records`: with the rows of each batch. Raise `LakeError` if the name is not a log file's, `OSError` if I/O fails.
    """
    path = os.fspath(path)
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1]
    if suffix == DATA_SUFFIX and name[:20].isdigit():
        return _dump_segment(path, records=records)
    data = read_file(REAL_FILES, path)
    if suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        return _dump_index(data, ("offset", "position") if suffix == INDEX_SUFFIX else ("timestamp", "relative_offset"))
    if suffix == TXN_INDEX_SUFFIX:
        entries = decode_aborted(data, path, sealed=False)
        return (DumpedEntry(40 * n, "aborted transaction", entry._asdict()) for n, entry in enumerate(entries))
    if name == STATE_FILE:
        return _dump_state(data)
    if suffix == SNAPSHOT_SUFFIX:
        return _dump_snapshot(data)
    if name == LEADER_EPOCHS_FILE:
        epochs = decode_leader_epochs(data)
        if epochs is None:
            return iter([DumpedEntry(0, "damage", {"reason": "the checksum does not match"})])
        return (
            DumpedEntry(8 + 12 * number, "leader epoch", {"epoch": epoch, "start_offset": start})
            for number, (epoch, start) in enumerate(epochs.entries())
        )
    if name == PARTITION_METADATA_FILE:
        topic_id = decode_partition_metadata(data)
        if topic_id is None:
            return iter([DumpedEntry(0, "damage", {"reason": "not the two lines of this file"})])
        return iter([DumpedEntry(0, "partition", {"topic_id": encode_uuid(topic_id)})])
    raise LakeError(f"{path}: not a file of a log")


def _dump_segment(path: str, *, records: bool) -> Iterator[DumpedBatch | DumpedEntry]:
    """Yield the batches in chunks, to bound memory. After damage, continue with the next whole message."""
    segment = SEGMENTS.segment(path)
    end = segment.end()
    reader = SegmentReader(segment, end)
    follows: Resumption | None = Resumption(FIRST_MESSAGE, segment.base_offset)
    while follows is not None:
        position, next_offset = follows
        follows = None
        for found in reader.runs(position):
            if isinstance(found, MessageRun):
                yield from _batches(*found, records=records)
                next_offset = found.messages.next_offset
            elif found.stop is not Stop.END_OF_FILE:
                yield DumpedEntry(found.position, "damage", {"reason": found.reason})
                follows = good_message_after(segment, found.position, end, next_offset)
    if segment.whole:
        yield DumpedEntry(end, "footer", {"bytes": segment.size_bytes() - end})


def _batches(messages: MessageSet, origin: int, *, records: bool) -> Iterator[DumpedBatch]:
    for number in range(len(messages)):
        message = messages.slice(number, number + 1)
        rows = _records(message) if records else []
        first = 0
        for header in message.headers.tolist():
            count = header[at.RECORDS]
            attributes = header[at.ATTRIBUTES]
            codec = attributes & at.ATTRIBUTE_COMPRESSION_MASK
            yield DumpedBatch(
                origin + int(message.positions[0]),
                header[at.BASE_OFFSET],
                header[at.BASE_OFFSET] + header[at.LAST_OFFSET_DELTA],
                count,
                header[at.LEADER_EPOCH],
                header[at.PRODUCER_ID],
                header[at.PRODUCER_EPOCH],
                header[at.BASE_SEQUENCE],
                header[at.MAX_TIMESTAMP],
                NAMES[codec] if codec < len(NAMES) else str(codec),
                bool(attributes & at.ATTRIBUTE_TRANSACTIONAL),
                bool(attributes & at.ATTRIBUTE_LOG_APPEND_TIME),
                CONTROL_TYPES.get(header[at.CONTROL_TYPE], ""),
                tuple(rows[first : first + count]),
            )
            first += count


def _records(message: MessageSet) -> list[DumpedRecord]:
    table = to_arrow(message)
    columns = [table.column(name).to_pylist() for name in ("offset", "key", "value", "headers")]
    timestamps = table.column("timestamp").cast("int64").to_pylist()
    return [
        DumpedRecord(offset, timestamp, key, value, tuple((pair["key"], pair["value"]) for pair in headers))
        for timestamp, offset, key, value, headers in zip(timestamps, *columns, strict=True)
    ]


def _dump_index(data: bytes, names: tuple[str, str]) -> Iterator[DumpedEntry]:
    for number, entry in enumerate(decode_entries(data)):
        position = number * ENTRY_BYTES
        if entry is None:
            yield DumpedEntry(position, "damage", {"reason": "the checksum does not match"})
        else:
            yield DumpedEntry(position, "index entry", dict(zip(names, entry, strict=True)))


def _dump_state(data: bytes) -> Iterator[DumpedEntry]:
    for position in (0, SLOT_BYTES):
        slot = data[position : position + SLOT_BYTES]
        found = decode_slot(slot)
        if found is not None:
            fields = {**found[1]._asdict(), "boot_id": found[1].boot_id.hex()}
            yield DumpedEntry(position, "state", {"sequence": found[0], **fields})
        elif any(slot):
            yield DumpedEntry(position, "damage", {"reason": "the checksum of a slot does not match"})


def _dump_snapshot(data: bytes) -> Iterator[DumpedEntry]:
    snapshot = decode_snapshot(data)
    if snapshot is None:
        yield DumpedEntry(0, "damage", {"reason": "the checksum does not match"})
        return
    yield DumpedEntry(0, "snapshot", {"offset": snapshot.offset, "max_timestamp": snapshot.max_timestamp})
    for producer_id, producer in snapshot.producers.items():
        fields = producer._asdict()
        fields["batches"] = [batch._asdict() for batch in producer.batches]
        yield DumpedEntry(0, "producer", {"producer_id": producer_id, **fields})
