"""The small checksummed files: whatever byte is changed or cut off, they are refused or read as they were before."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from kafkalake.errors import CorruptSegmentError, LakeError
from kafkalake.storage.files import REAL_FILES, replace_file
from kafkalake.storage.index import ENTRY_BYTES, Index, encode_entry
from kafkalake.storage.leader_epochs import LeaderEpochs, decode_leader_epochs, encode_leader_epochs
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import AbortedTransaction, Attempt, EndMarker, Producers, SequencedBatch
from kafkalake.storage.snapshot import Snapshot, Snapshots, decode_snapshot, encode_snapshot, snapshot_path
from kafkalake.storage.state import PartitionState, StateFile, decode_state, read_state
from kafkalake.storage.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from kafkalake.storage.txn_index import decode_aborted, encode_aborted, encode_seal, read_aborted


def flips(data: bytes) -> list[bytes]:
    """`data` with one bit changed, once for each byte."""
    return [data[:i] + bytes([data[i] ^ (1 << (i % 8))]) + data[i + 1 :] for i in range(len(data))]


def truncations(data: bytes) -> list[bytes]:
    """Every shorter beginning of `data`."""
    return [data[:length] for length in range(len(data))]


def written_state(directory: Path, *states: PartitionState) -> bytes:
    file = StateFile(str(directory / "state"), OpenFiles(limit=4))
    for state in states:
        file.write(state)
    return (directory / "state").read_bytes()


HIGH = 1 << 40
OLD = PartitionState(
    1, HIGH, HIGH - 1, HIGH + 1, 3, HIGH - 6, HIGH, False, True, True, 7, HIGH, HIGH - 2, HIGH, bytes(range(16))
)
NEW = OLD._replace(high_watermark=HIGH + 1, last_stable_offset=HIGH + 1, clean=True)


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    written_state(tmp_path, OLD)
    assert read_state(tmp_path) == OLD
    written_state(tmp_path, OLD, NEW)
    assert read_state(tmp_path) == NEW
    assert read_state(tmp_path / "state") == NEW


def test_any_damage_to_a_state_leaves_the_newest_whole_slot(tmp_path: Path) -> None:
    data = written_state(tmp_path, OLD, NEW)
    for damaged in flips(data) + truncations(data):
        found = decode_state(damaged)
        assert found is None or found[1] in (OLD, NEW)
    assert all(decode_state(damaged) is not None for damaged in flips(data))


def test_a_state_that_is_missing_or_destroyed_is_told(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no such file"):
        read_state(tmp_path)
    (tmp_path / "state").write_bytes(bytes(256))
    with pytest.raises(LakeError, match="checksum"):
        read_state(tmp_path)


def some_producers() -> Producers:
    producers = Producers()
    for n in range(7):
        producers.replay(Attempt(5, 2, 10 * n, 10, False, n % 2 == 1), 10 * n, 1_000 + n, 50 + n)
    producers.replay(Attempt(6, 0, 0, 3, True), 70, 2_000, 60)
    producers.replay(Attempt(4, 0, 0, 3, True), 73, 2_000, 60)
    producers.replay(Attempt(9, 0, 0, 3, True), 76, 2_000, 60)
    producers.end(EndMarker(9, 0, 1, 3), 79, 61)
    return producers


def test_a_snapshot_restores_producers_and_open_transactions() -> None:
    producers = some_producers()
    restored = decode_snapshot(encode_snapshot(Snapshot(80, producers, 2_000, 70)))
    assert restored is not None
    assert (restored.offset, restored.max_timestamp, restored.max_timestamp_offset) == (80, 2_000, 70)
    assert dict(restored.producers.items()) == dict(producers.items())
    assert restored.producers.ended_transactions() == producers.ended_transactions() == [(76, 79)]
    assert restored.producers.has_split and producers.has_split
    for end in (EndMarker(6, 0, 0, 1), EndMarker(4, 0, 0, 1)):
        assert restored.producers.stable_offset(80) == producers.stable_offset(80)
        assert restored.producers.end(end, 81, 0) == producers.end(end, 81, 0)


def test_a_snapshot_without_flags_is_read() -> None:
    """The form before records could be delivered later."""
    batch = struct.pack("<iiqqq", 3, 5, 40, 42, 1_000)
    body = struct.pack("<qqqII", 80, 2_000, 70, 1, 0) + struct.pack("<qhiqqB", 5, 2, 0, -1, 60, 1) + batch
    restored = decode_snapshot(b"KLPS" + struct.pack("<I", crc32c(body)) + body)
    assert restored is not None
    assert dict(restored.producers.items())[5].batches == (SequencedBatch(3, 5, 40, 42, 1_000, False),)
    assert not restored.producers.has_split


def test_a_damaged_snapshot_is_not_used() -> None:
    data = encode_snapshot(Snapshot(80, some_producers()))
    assert all(decode_snapshot(damaged) is None for damaged in flips(data) + truncations(data))


def test_the_last_two_snapshots_are_kept(tmp_path: Path) -> None:
    snapshots = Snapshots(str(tmp_path), REAL_FILES, [])
    for offset in (0, 10, 20, 30):
        snapshots.save(Snapshot(offset, Producers()))
    assert snapshots.offsets == [20, 30]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{offset:020d}.snapshot" for offset in (20, 30)]
    snapshots.remove_above(20)
    assert not Path(snapshot_path(str(tmp_path), 30)).exists()


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(0, (0, 0)), (2, (2, 10)), (3, (2, 10)), (4, (4, 25)), (5, (4, 25)), (7, (7, 40)), (8, (-1, -1)), (-1, (-1, -1))],
)
def test_the_end_of_a_leader_epoch_is_where_the_next_one_begins(asked: int, expected: tuple[int, int]) -> None:
    epochs = epochs_of((2, 0), (4, 10), (7, 25))
    assert epochs.end_offset(asked, 40) == expected


def test_leader_epochs_are_cut_at_both_ends() -> None:
    epochs = epochs_of((0, 0), (1, 10), (2, 20))
    assert epochs.truncate_end(20)
    assert epochs.entries() == [(0, 0), (1, 10)]
    assert epochs.truncate_start(15)
    assert epochs.entries() == [(1, 15)]
    assert not epochs.truncate_start(15)
    assert not epochs.assign(1, 30)


def test_an_epoch_without_records_is_replaced_by_the_next() -> None:
    assert epochs_of((0, 0), (1, 10), (2, 10)).entries() == [(0, 0), (2, 10)]


def test_damaged_leader_epochs_are_not_used() -> None:
    epochs = epochs_of((0, 0), (1, 10))
    data = encode_leader_epochs(epochs)
    assert decode_leader_epochs(data) == epochs
    assert all(decode_leader_epochs(damaged) is None for damaged in flips(data) + truncations(data))


ABORTED = [AbortedTransaction(5, 10, 20, 10), AbortedTransaction(6, 12, 25, 26)]


def read_from(data: bytes, offset: int, *, sealed: bool) -> list[AbortedTransaction]:
    def read(position: int, length: int) -> bytes:
        return data[position : position + length]

    return list(read_aborted(read, len(data), offset, "f", sealed=sealed))


@pytest.mark.parametrize("decode", [decode_aborted, lambda data, path, sealed: read_from(data, 0, sealed=sealed)])
def test_a_sealed_index_of_aborted_transactions_is_whole_or_refused(
    decode: Callable[..., list[AbortedTransaction]],
) -> None:
    entries = b"".join(encode_aborted(entry, number) for number, entry in enumerate(ABORTED))
    sealed = entries + encode_seal(2)
    assert decode(sealed, "f", sealed=True) == ABORTED
    for damaged in [*flips(sealed), *truncations(sealed), sealed + b"x", sealed + sealed[-TXN_ENTRY_BYTES:]]:
        with pytest.raises(CorruptSegmentError):
            decode(damaged, "f", sealed=True)


@pytest.mark.parametrize("decode", [decode_aborted, lambda data, path, sealed: read_from(data, 0, sealed=sealed)])
def test_an_active_index_of_aborted_transactions_may_end_in_a_part_of_an_entry(
    decode: Callable[..., list[AbortedTransaction]],
) -> None:
    entries = b"".join(encode_aborted(entry, number) for number, entry in enumerate(ABORTED))
    assert decode(entries, "f", sealed=False) == ABORTED
    assert decode(entries + encode_seal(2), "f", sealed=False) == ABORTED, "it is being sealed"
    assert decode(entries[:-1], "f", sealed=False) == ABORTED[:1]
    for damaged in flips(entries):
        with pytest.raises(CorruptSegmentError):
            decode(damaged, "f", sealed=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [0, 1, 2, 99, 100, 101, 250])
def test_an_index_of_aborted_transactions_is_read_from_an_offset_on(count: int) -> None:
    aborted = [AbortedTransaction(number % 7, 10 * number, 10 * number + 5, 10 * number) for number in range(count)]
    entries = b"".join(encode_aborted(entry, number) for number, entry in enumerate(aborted))
    for data, sealed in ((entries, False), (entries + encode_seal(count), False), (entries + encode_seal(count), True)):
        for offset in [*range(0, 10 * count + 10, 3), 1 << 62]:
            assert read_from(data, offset, sealed=sealed) == [each for each in aborted if each.last_offset >= offset]


@pytest.mark.exhaustive
def test_little_of_an_index_of_very_many_aborted_transactions_is_read() -> None:
    count, bytes_read = 100_000, 0
    aborted = [AbortedTransaction(1, number, number, number) for number in range(count)]
    data = b"".join(encode_aborted(entry, number) for number, entry in enumerate(aborted)) + encode_seal(count)

    def read(position: int, length: int) -> bytes:
        nonlocal bytes_read
        bytes_read += length
        return data[position : position + length]

    found = read_aborted(read, len(data), 70_000, "f", sealed=True)
    assert [next(found) for _ in range(50)] == aborted[70_000:70_050]
    assert bytes_read < 8_000


@pytest.mark.parametrize("count", [0, 1, 5, 300, 2000])
@pytest.mark.parametrize("flushed", [True, False])
def test_an_index_finds_the_last_entry_not_above_the_key(tmp_path: Path, count: int, flushed: bool) -> None:
    index = Index(str(tmp_path / "i"), OpenFiles(limit=4))
    for n in range(count):
        index.append(10 * n, n)
    if flushed:
        index.flush()
        index = Index(str(tmp_path / "i"), OpenFiles(limit=4))
    for key in (-1, 0, 5, 10, 10 * count // 2, 10 * count - 11, 10 * count, 10**15):
        number = min(key // 10, count - 1)
        assert index.lookup(key) == ((10 * number, number) if number >= 0 else None)
    assert index.first() == ((0, 0) if count else None)
    assert index.last() == ((10 * count - 10, count - 1) if count else None)
    assert index.size_bytes() == ENTRY_BYTES * count


def test_entries_at_the_start_can_be_left_out(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "i"), OpenFiles(limit=4))
    for key, value in ((100, 0), (10, 1), (20, 2)):
        index.append(key, value)
    assert index.lookup(5, skip=1) is None
    assert index.lookup(1000, skip=1) == (20, 2)
    index.flush()
    assert index.lookup(5, skip=1) is None
    assert index.lookup(15, skip=1) == (10, 1)


@pytest.mark.exhaustive
def test_a_damaged_index_gives_an_entry_that_was_written_or_none(tmp_path: Path) -> None:
    entries = {(10 * n, n) for n in range(20)}
    data = b"".join(encode_entry(*entry) for entry in sorted(entries))
    path = tmp_path / "i"
    for damaged in flips(data) + truncations(data):
        path.write_bytes(damaged)
        for key in (-1, 0, 55, 199, 10**15):
            found = Index(str(path), OpenFiles(limit=1)).lookup(key)
            assert found is None or (found in entries and found[0] <= key)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "f"
    replace_file(REAL_FILES, str(path), b"one", sync=True)
    replace_file(REAL_FILES, str(path), b"two", sync=False)
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_open_files_are_bounded_and_a_file_in_use_stays_open(tmp_path: Path) -> None:
    for n in range(10):
        (tmp_path / str(n)).write_bytes(bytes([n]))
    open_files = OpenFiles(limit=3)
    first = open_files.get(str(tmp_path / "0"))
    for n in range(10):
        assert REAL_FILES.read(open_files.get(str(tmp_path / str(n))).descriptor, 1, 0) == bytes([n])
        assert len(open_files) <= 3
    assert REAL_FILES.read(first.descriptor, 1, 0) == b"\0"
    again = open_files.get(str(tmp_path / "9"))
    assert open_files.get(str(tmp_path / "9")) is again
    assert open_files.get(str(tmp_path / "9"), write=True) is not again
