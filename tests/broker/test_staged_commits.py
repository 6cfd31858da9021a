"""The notes of what writing applications have committed, and coordinators that follow each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_files import FaultyFiles

from kafkalake.broker.staged.commits import TOPICS_KEPT, CommitFiles, Committed, UnderWay
from kafkalake.errors import KafkaStorageError, NotCoordinatorError

UNDER_WAY = Committed("job", 3, 10, UnderWay(4, 7, 0, 20))
WITH_TOPICS = Committed("job", 4, 10, UnderWay(5, 7, 0, 20, ("b", "c")), {"a": 4, "b": 3})


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


def versions(committed: Committed, topics: str = "abcd") -> list[int]:
    return [committed.version_of(topic) for topic in topics]


def test_the_newest_version_of_each_topic_is_noted(files: CommitFiles) -> None:
    files.save(WITH_TOPICS, 0)
    found = files.load("job")
    assert (found, versions(found)) == (WITH_TOPICS, [4, 3, -1, -1])
    assert found.complete() == Committed("job", 5, 20, None, {"a": 4, "b": 5, "c": 5})
    late = replace(found, under_way=UnderWay(2, 7, 1, 30, ("d",))).complete()
    assert (late.version, late.records, versions(late)) == (4, 10, [4, 3, -1, 2])


@pytest.mark.parametrize(
    ("values", "under_way", "found", "completed"),
    [
        ({}, {}, [3, 3], [4, 4]),  # of 0.1
        ({"topic_ids": ["a"]}, {"topic_ids": ["b"]}, [3, 2], [3, 4]),
        ({"topic_ids": ["a", "b"]}, {"topic_ids": ["b"]}, [3, 3], [3, 4]),
    ],
)
def test_notes_of_earlier_versions_count_for_the_topics_that_they_name_or_all(
    files: CommitFiles,
    tmp_path: Path,
    values: dict[str, Any],
    under_way: dict[str, Any],
    found: list[int],
    completed: list[int],
) -> None:
    files.save(Committed("job"), 0)
    (path,) = (tmp_path / "commits").iterdir()
    begun = {"version": 4, "producer_id": 7, "epoch": 0, "records": 20, **under_way}
    path.write_text(json.dumps({"application": "job", "version": 3, "records": 10, "under_way": begun, **values}))
    for _ in range(2):
        loaded = files.load("job")
        assert (loaded.version, versions(loaded, "ab"), versions(loaded.complete(), "ab")) == (3, found, completed)
        assert loaded.under_way == UnderWay(4, 7, 0, 20, tuple(under_way.get("topic_ids", ())))
        files.save(loaded, 0)


def test_topics_that_are_gone_are_forgotten_once_there_are_many() -> None:
    few = Committed("job", topics={str(number): 1 for number in range(TOPICS_KEPT)})
    assert few.keep_topics(lambda topic: False) == few
    many = replace(few, topics={**few.topics, "there": 1})
    assert many.keep_topics(lambda topic: topic == "there").topics == {"there": 1}


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
    del values["topics"], values["others"], values["under_way"]["topic_ids"]
    path.write_text(json.dumps(values))
    of_all = replace(UNDER_WAY, others=3)
    assert (files.load("job"), files.unfinished(), names(tmp_path)) == (of_all, ["job"], ["json"])
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
