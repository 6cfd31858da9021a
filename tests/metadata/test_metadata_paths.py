"""What is a lake, what is not, and what a user is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from metadata_rows import topic_row

from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore


def test_the_layout_is_that_of_the_design(tmp_path: Path) -> None:
    assert paths.table_path(tmp_path, "topics") == tmp_path / "metadata" / "topics"
    assert paths.partition_path(tmp_path, 3, "clicks", 7) == tmp_path / "logs" / "3" / "clicks-7"
    assert paths.lock_path(tmp_path, 3) == tmp_path / "logs" / "3" / ".lock"
    assert paths.relative_path(tmp_path, paths.partition_path(tmp_path, 0, "a", 1) / "x.arrow") == "logs/0/a-1/x.arrow"


@pytest.mark.parametrize("existing", [None, [], ["metadata"], ["metadata", "logs"]])
def test_a_lake_is_made_in_a_new_an_empty_or_a_half_made_directory(tmp_path: Path, existing: list[str] | None) -> None:
    lake = tmp_path / "deep" / "lake"
    for name in existing or []:
        (lake / name).mkdir(parents=True)
    if existing == []:
        lake.mkdir(parents=True)
    assert not paths.is_lake(lake)
    DeltaMetadataStore(lake).close()
    assert paths.is_lake(lake)
    assert paths.require_lake(lake) == lake
    DeltaMetadataStore(lake).close()


@pytest.mark.parametrize("name", ["with space", "ümläut", "a#b?c", "50%", "[a]*"])
def test_a_lake_may_have_almost_any_name(tmp_path: Path, name: str) -> None:
    store = DeltaMetadataStore(tmp_path / name)
    store.create_topic(topic_row())
    assert DeltaMetadataStore(tmp_path / name, create=False).load_topics() == [topic_row()]


def test_a_name_that_delta_would_unescape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="escaped character"):
        DeltaMetadataStore(tmp_path / "a%20b")
    assert list(tmp_path.iterdir()) == []


def test_a_lake_is_not_made_over_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(LakeError, match=r"already holds other files \(thesis.txt\)"):
        DeltaMetadataStore(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_lake_is_not_made_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match="that is a file"):
        DeltaMetadataStore(tmp_path / "file")
    with pytest.raises(LakeError, match="cannot make a lake"):
        DeltaMetadataStore(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("kind", "says"), [("missing", "no such directory"), ("file", "is a file"), ("empty", "topics")]
)
def test_a_reader_is_told_what_is_wrong_with_a_path(tmp_path: Path, kind: str, says: str) -> None:
    path = tmp_path / "lake"
    if kind == "file":
        path.write_text("")
    elif kind == "empty":
        path.mkdir()
    with pytest.raises(LakeError, match=says):
        DeltaMetadataStore(path, create=False)
    assert path.exists() == (kind != "missing")


def test_a_reader_opens_a_lake_that_is_there(tmp_path: Path) -> None:
    DeltaMetadataStore(tmp_path / "lake").close()
    assert DeltaMetadataStore(tmp_path / "lake", create=False).load_topics() == []
