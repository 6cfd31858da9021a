"""Producer ids: none is given twice, whatever happens to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalake.broker.admin.producer_ids import ProducerIds
from kafkalake.cluster.producer_ids import BLOCK
from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.storage.files import REAL_FILES, RealFiles


def test_ids_grow_and_start_behind_what_was_reserved(tmp_path: Path) -> None:
    path = str(tmp_path / "ids")
    first = ProducerIds(path, 0, REAL_FILES)
    given = [first.next_id() for _ in range(BLOCK + 5)]
    assert given == list(range(BLOCK + 5))
    assert ProducerIds(path, 0, REAL_FILES).next_id() == 2 * BLOCK


def test_brokers_have_ids_of_their_own(tmp_path: Path) -> None:
    ids = [ProducerIds(str(tmp_path / str(broker)), broker, REAL_FILES).next_id() for broker in (0, 1, 4_000_000)]
    assert len(set(ids)) == 3
    assert all(0 <= each < 2**63 for each in ids)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    for content in ("", "{}", '{"reserved": "x"}', '{"reserved": -1}', "[1]"):
        path.write_text(content)
        with pytest.raises(LakeError):
            ProducerIds(str(path), 0, REAL_FILES)


class FullDisk(RealFiles):
    """Takes no more bytes."""

    def write(self, descriptor: int, data: object, position: int) -> int:
        raise OSError(28, "No space left on device")


def test_without_room_on_the_disk_no_id_is_given(tmp_path: Path) -> None:
    path = str(tmp_path / "ids")
    full = ProducerIds(path, 0, FullDisk())
    with pytest.raises(KafkaStorageError):
        full.next_id()
    assert ProducerIds(path, 0, REAL_FILES).next_id() == 0
