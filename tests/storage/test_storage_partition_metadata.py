"""A partition's directory says which topic it belongs to, and is never taken for that of another topic of the same name."""

from __future__ import annotations

import contextlib
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from faulty_files import FaultyFiles
from manual_clock import ManualClock
from partition_logs import append, read_all
from record_batches import simple_batch

from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.errors import InconsistentTopicIdError, KafkaStorageError, LakeError
from kafkalake.storage.config import LogConfig
from kafkalake.storage.dump import DumpedEntry, dump_file
from kafkalake.storage.files import REAL_FILES, Files, make_durable_directory
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.partition_metadata import (
    PARTITION_METADATA_FILE,
    decode_partition_metadata,
    encode_partition_metadata,
    read_topic_id,
)
from kafkalake.storage.verify import verify_partition

KAFKAS = b"version: 0\ntopic_id: qLgPoSNLQmGwWbvXL1kcpQ"
"""As a broker of Apache Kafka 4 has written it."""


def logs_below(root: Path, files: Files = REAL_FILES) -> LogDirectory:
    return LogDirectory(root, ManualClock(), OpenFiles(files, 16))


def retired(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.endswith("-delete"))


def test_the_format_is_kafkas() -> None:
    topic_id = decode_partition_metadata(KAFKAS)
    assert topic_id is not None
    assert encode_partition_metadata(topic_id) == KAFKAS + b"\n"
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id


@pytest.mark.parametrize("data", [b"", b"version: 1\n" + KAFKAS[11:], KAFKAS[:-1], KAFKAS + b"x", b"\xff" * 40])
def test_other_bytes_are_no_id(data: bytes) -> None:
    assert decode_partition_metadata(data) is None


def test_a_new_directory_has_the_id_before_anything_else(tmp_path: Path) -> None:
    order: list[str] = []

    class Recording(FaultyFiles):
        def rename(self, source: str, target: str) -> None:
            order.append(Path(target).name)
            super().rename(source, target)

        def sync_directory(self, path: str) -> None:
            order.append(f"sync {Path(path).name}")
            super().sync_directory(path)

        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            if create:
                order.append(f"create {Path(path).name}")
            return super().open(path, write=write, create=create)

    topic_id = uuid4()
    (tmp_path / "logs").mkdir()
    logs_below(tmp_path / "logs", Recording()).open("t", 0, topic_id, LogConfig())
    name = PARTITION_METADATA_FILE
    assert [each for each in order if each != "sync logs"][:4] == [
        f"create {name}.tmp",
        name,
        "sync t-0",
        "create state",
    ]
    assert order[0] == "sync logs"
    assert read_topic_id(tmp_path / "logs" / "t-0") == topic_id


def test_a_directory_that_is_there_is_forced_too(tmp_path: Path) -> None:
    """It may have been made just before a kill; a loss of power then took all that came to be below it."""
    forced: list[str] = []

    class Recording(FaultyFiles):
        def sync_directory(self, path: str) -> None:
            forced.append(Path(path).name)
            super().sync_directory(path)

    for expected in (["lake", "logs"], ["logs"]):
        (tmp_path / "lake").mkdir(exist_ok=True)
        make_durable_directory(Recording(), str(tmp_path / "lake" / "logs" / "0"))
        assert forced == expected
        forced.clear()


def test_a_directory_of_an_earlier_topic_is_retired(tmp_path: Path) -> None:
    old, new = uuid4(), uuid4()
    logs = logs_below(tmp_path)
    log = logs.open("t", 0, old, LogConfig())
    append(log, simple_batch([b"old"]))
    log.close()
    log = logs.open("t", 0, new, LogConfig())
    assert log.log_end_offset == 0
    append(log, simple_batch([b"new"]))
    assert [row[2] for _, row in read_all(log)] == [b"new"]
    (directory,) = logs.take_predecessors()
    assert retired(tmp_path) == [directory.name]
    assert read_topic_id(directory) == old
    assert read_topic_id(tmp_path / "t-0") == new
    assert logs.take_predecessors() == []


def test_a_log_does_not_open_the_directory_of_another_topic(tmp_path: Path) -> None:
    Log.open(tmp_path / "t-0", LogConfig(), ManualClock(), topic_id=uuid4()).close()
    with pytest.raises(InconsistentTopicIdError):
        Log.open(tmp_path / "t-0", LogConfig(), ManualClock(), topic_id=uuid4())


def test_a_directory_of_the_first_version_gets_the_id(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "t-0", LogConfig(), ManualClock())
    append(log, simple_batch([b"kept"]))
    log.close()
    assert read_topic_id(tmp_path / "t-0") is None
    topic_id = uuid4()
    log = logs_below(tmp_path).open("t", 0, topic_id, LogConfig())
    assert [row[2] for _, row in read_all(log)] == [b"kept"]
    assert read_topic_id(tmp_path / "t-0") == topic_id
    assert retired(tmp_path) == []


def test_a_damaged_id_is_no_reason_to_guess(tmp_path: Path) -> None:
    topic_id = uuid4()
    logs = logs_below(tmp_path)
    logs.open("t", 0, topic_id, LogConfig()).close()
    path = tmp_path / "t-0" / PARTITION_METADATA_FILE
    path.write_bytes(b"version: 0\n")
    with pytest.raises(LakeError, match=PARTITION_METADATA_FILE):
        read_topic_id(tmp_path / "t-0")
    with pytest.raises(KafkaStorageError, match=PARTITION_METADATA_FILE):
        logs.open("t", 0, topic_id, LogConfig())
    assert [fault.file for fault in verify_partition(tmp_path / "t-0")] == [str(path)]
    path.write_bytes(encode_partition_metadata(topic_id))
    assert verify_partition(tmp_path / "t-0") == []
    logs.open("t", 0, topic_id, LogConfig()).close()


def test_the_file_can_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / PARTITION_METADATA_FILE
    path.write_bytes(KAFKAS)
    assert list(dump_file(path)) == [DumpedEntry(0, "partition", {"topic_id": "qLgPoSNLQmGwWbvXL1kcpQ"})]


@pytest.mark.parametrize("call", range(1, 8))
def test_a_directory_half_made_is_made_whole_by_the_next_try(tmp_path: Path, call: int) -> None:
    files, topic_id = FaultyFiles(), UUID(int=7)
    files.fail_at_call = call
    with contextlib.suppress(KafkaStorageError):
        logs_below(tmp_path, files).open("t", 0, topic_id, LogConfig())
    logs_below(tmp_path).open("t", 0, topic_id, LogConfig()).close()
    assert read_topic_id(tmp_path / "t-0") == topic_id
    assert verify_partition(tmp_path / "t-0") == []
