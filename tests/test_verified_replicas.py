"""`log verify` over replicas: equal ones are silent, and what one has otherwise than its leader is said of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from record_batches import record_batch
from replicated_lake import ReplicatedLake, replicated_clicks

from kafkalake.jobs.maintenance import orphans, replicas_of
from kafkalake.reader.verification import verify
from kafkalake.storage.verify import Problem

pytestmark = pytest.mark.exhaustive  # commits to Delta tables


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ReplicatedLake]:
    with replicated_clicks(tmp_path / "lake") as lake:
        yield lake


def problems(lake: ReplicatedLake) -> list[Problem]:
    return list(verify(lake.store))


def test_equal_replicas_have_no_problems(lake: ReplicatedLake) -> None:
    assert problems(lake) == []


def test_a_replica_that_has_sealed_a_segment_or_has_later_records_is_equal(lake: ReplicatedLake) -> None:
    log = lake.open_replica(1, "clicks")
    log.append([record_batch([(1_000, None, b"not acknowledged yet", [])])], 0)
    log.close()
    assert problems(lake) == []


def test_other_bytes_below_the_watermark_are_found_with_file_position_and_offset(lake: ReplicatedLake) -> None:
    """The other replica's records are valid in themselves: only the comparison finds them."""
    log = lake.open_replica(1, "clicks")
    log.append([record_batch([(1_000, None, b"one", [])])], 0)
    log.advance_high_watermark(log.log_end_offset)
    log.close()
    lake.append_values("clicks", 0, [b"two"])
    lake.elect("clicks", 0, isr=(0, 1))
    (problem,) = problems(lake)
    path = lake.directory_of(1, "clicks") / f"{20:020d}.arrow"
    assert problem.file == str(path)
    assert problem.what == f"differs from {lake.directory('clicks') / path.name}, where offset 30 is"
    lake.elect("clicks", 0, isr=(0,))
    assert problems(lake) != [], "whoever is not in the ISR differs as well"


def test_a_damaged_replica_is_told_from_the_others(lake: ReplicatedLake) -> None:
    path = lake.directory_of(2, "clicks") / f"{10:020d}.arrow"
    data = bytearray(path.read_bytes())
    data[-400] ^= 1
    path.write_bytes(data)
    found = problems(lake)
    assert {problem.file for problem in found} >= {str(path)}
    assert all(problem.file.startswith(str(lake.directory_of(2, "clicks"))) for problem in found)


def test_a_replica_in_the_isr_has_all_acknowledged_records(lake: ReplicatedLake) -> None:
    lake.append_values("clicks", 0, [b"30"])
    assert [(problem.file, problem.what) for problem in problems(lake)] == [
        (
            str(lake.directory_of(broker_id, "clicks") / "state"),
            f"it is in the ISR and ends at offset 30, and {lake.directory('clicks')} has acknowledged up to 31",
        )
        for broker_id in (1, 2)
    ]
    lake.elect("clicks", 0, isr=(0, 2))
    shutil.rmtree(lake.directory_of(2, "clicks"))
    assert [problem.what for problem in problems(lake)] == ["the directory of a replica in the ISR is missing"]
    lake.elect("clicks", 0, isr=(0,))
    assert problems(lake) == []


def test_a_segment_that_only_one_replica_has_is_found(lake: ReplicatedLake) -> None:
    directory = lake.directory_of(1, "clicks")
    for path in directory.glob(f"{10:020d}.*"):
        path.unlink()
    found = [problem.what for problem in problems(lake) if problem.file == str(directory)]
    assert f"{directory} has no segment at offset 10, as {lake.directory('clicks')} has" in found


def test_replicas_are_no_orphans(lake: ReplicatedLake) -> None:
    shutil.copytree(lake.directory("clicks"), lake.directory_of(7, "clicks"))
    replicas = replicas_of(lake.path, lake.store.load_partitions(), lake.store.newest_image())
    (found,) = orphans(lake.path, replicas, {}, lambda topic, partition: nullcontext())
    assert found == (lake.directory_of(7, "clicks"), "of a partition of which broker 7 is no replica")
