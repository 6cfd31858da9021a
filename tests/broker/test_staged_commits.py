"""The notes of what writing applications have committed, and coordinators that follow each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from faulty_files import FaultyFiles

from kafkalake.broker.staged.commits import CommitFiles, Committed, UnderWay
from kafkalake.errors import KafkaStorageError, NotCoordinatorError

UNDER_WAY = Committed("job", 3, 10, UnderWay(4, 7, 0, 20))
WITH_TOPICS = Committed("job", 3, 10, UnderWay(4, 7, 0, 20, ("b", "c")), ("a", "b"))


@pytest.fixture
def files(tmp_path: Path) -> CommitFiles:
    return CommitFiles(tmp_path / "commits", FaultyFiles())


def names(directory: Path) -> list[str]:
    return sorted(path.name.partition(".")[2] for path in (directory / "commits").iterdir())


def test_a_write_of_a_former_coordinator_hides_nothing(files: CommitFiles, tmp_path: Path) -> None:
    """It was paused while another one settled its version and committed the next one."""
    files.save(UNDER_WAY, 2)
    assert files.load("job") == UNDER_WAY
    files.save(Committed("job", 5, 30), 4)
    assert names(tmp_path) == ["4.json"]
    for _ in range(2):
        with pytest.raises(NotCoordinatorError):
            files.save(Committed("job", 4, 20), 2)
        assert files.load("job") == Committed("job", 5, 30)
        assert files.unfinished() == []
    files.save(Committed("job", 6, 1), 4)
    assert (files.load("job"), names(tmp_path)) == (Committed("job", 6, 1), ["4.json"])


def test_the_topics_of_a_version_are_noted(files: CommitFiles) -> None:
    files.save(WITH_TOPICS, 0)
    assert files.load("job") == WITH_TOPICS
    assert [WITH_TOPICS.is_of_others(each) for each in (("c",), ("b", "c"), (), ("a", "b"))] == [True] + 3 * [False]
    assert not UNDER_WAY.is_of_others(("c",)), "it does not say which it had"


def test_the_newest_epoch_counts_as_a_number(files: CommitFiles) -> None:
    files.save(Committed("job", 1), 9)
    files.save(UNDER_WAY, 10)
    files.save(Committed("other", 1), 9)
    assert files.load("job") == UNDER_WAY
    assert files.unfinished() == ["job"]


def test_a_note_of_a_lake_of_0_1_counts_until_there_is_a_newer_one(files: CommitFiles, tmp_path: Path) -> None:
    files.save(UNDER_WAY, 0)
    (path,) = (tmp_path / "commits").iterdir()
    path.rename(path.with_name(path.name.replace(".0.json", ".json")))
    path = path.with_name(path.name.replace(".0.json", ".json"))
    values = json.loads(path.read_bytes())
    del values["topic_ids"], values["under_way"]["topic_ids"]
    path.write_text(json.dumps(values))
    assert (files.load("job"), files.unfinished(), names(tmp_path)) == (UNDER_WAY, ["job"], ["json"])
    files.save(Committed("job", 4, 20), 0)
    assert (files.load("job"), files.unfinished(), names(tmp_path)) == (Committed("job", 4, 20), [], ["0.json"])


def test_a_note_that_cannot_be_written_removed_or_read(tmp_path: Path) -> None:
    disk = FaultyFiles()
    files = CommitFiles(tmp_path / "commits", disk)
    files.save(UNDER_WAY, 0)
    calls = disk.calls
    files.save(UNDER_WAY, 1)
    for late in range(1, disk.calls - calls + 1):
        disk.fail_at_call = disk.calls + late
        newer = Committed("job", 4, late)
        try:
            files.save(newer, 1 + late)
        except KafkaStorageError:
            assert files.load("job") in (UNDER_WAY, newer)
        disk.fail_at_call = None
        files.save(UNDER_WAY, 1 + late)
        assert files.load("job") == UNDER_WAY
    (path,) = (tmp_path / "commits").iterdir()
    path.write_text(json.dumps({"version": 1}))
    with pytest.raises(KafkaStorageError, match="could write records twice"):
        files.load("job")
    assert files.unfinished() == []
    assert files.load("other") == Committed("other")
