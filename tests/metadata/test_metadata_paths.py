"""What is a lake, what is not, and what a user is told."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from metadata_rows import topic_row

from kafkalake.dataset import topic_dataset
from kafkalake.errors import LakeError
from kafkalake.metadata import lake_format, paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.identity import cluster_id, known_cluster_id


def test_the_layout_is_that_of_the_design(tmp_path: Path) -> None:
    assert paths.table_path(tmp_path, "topics") == tmp_path / "metadata" / "topics"
    assert paths.partition_path(tmp_path, 3, "clicks", 7) == tmp_path / "logs" / "3" / "clicks-7"
    assert paths.lock_path(tmp_path, 3) == tmp_path / "logs" / "3" / ".lock"
    assert paths.relative_path(tmp_path, paths.partition_path(tmp_path, 0, "a", 1) / "x.arrow") == "logs/0/a-1/x.arrow"


@pytest.mark.exhaustive
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


def test_a_lake_that_may_not_be_read_is_no_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(LakeError, match=rf"^the lake at {tmp_path} cannot be read: {tmp_path}/.*: Permission denied$"):
        paths.require_lake(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["with space", "ümläut", "a#b?c", "50%", "[a]*"])
def test_a_lake_may_have_almost_any_name(tmp_path: Path, name: str) -> None:
    store = DeltaMetadataStore(tmp_path / name)
    store.create_topics([topic_row()])
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


def test_a_new_volume_holds_nothing_of_anybody(tmp_path: Path) -> None:
    """ext4 makes `lost+found`; orchestrators, desktops and version control leave dot files."""
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".snapshot").mkdir()
    (tmp_path / ".DS_Store").write_bytes(b"")
    DeltaMetadataStore(tmp_path).close()
    assert paths.is_lake(tmp_path)


# The version of the layout.


def say_format(lake: Path, **said: object) -> Path:
    file = lake / "metadata" / "format.json"
    file.write_text(json.dumps({"format": 9, "min_reader": 1, "min_writer": 1, "written_by": "kafkalake 7", **said}))
    return file


def test_a_lake_says_who_wrote_it_once_a_broker_has(tmp_path: Path) -> None:
    DeltaMetadataStore(tmp_path).close()
    assert lake_format.read_format(tmp_path) == lake_format.LakeFormat(1, 1, 1, "kafkalake 0.1")
    lake_format.write_format(tmp_path, "5.0")
    assert lake_format.read_format(tmp_path).written_by == "kafkalake 5.0"
    said = json.loads((tmp_path / "metadata" / "format.json").read_text())
    assert set(said) == {"format", "min_reader", "min_writer", "written_by"}


def test_a_newer_lake_is_refused_by_who_would_read_it_wrongly(tmp_path: Path) -> None:
    DeltaMetadataStore(tmp_path).close()
    say_format(tmp_path, min_reader=2, min_writer=2)
    sentence = r"written by kafkalake 7: to {} it takes a version of kafkalake that knows format 2, this one knows 1"
    with pytest.raises(LakeError, match=sentence.format("read")):
        DeltaMetadataStore(tmp_path, create=False)
    with pytest.raises(LakeError, match=sentence.format("read")):
        topic_dataset(tmp_path, "clicks").count_rows()
    with pytest.raises(LakeError, match=sentence.format("change")):
        DeltaMetadataStore(tmp_path)


def test_a_lake_that_only_newer_versions_may_change_is_read(tmp_path: Path) -> None:
    DeltaMetadataStore(tmp_path).close()
    file = say_format(tmp_path, min_writer=2)
    DeltaMetadataStore(tmp_path, create=False).load_topics()
    with pytest.raises(LakeError, match="to change it takes"):
        DeltaMetadataStore(tmp_path)
    say_format(tmp_path)  # newer, and open to this version: it stays what it is
    lake_format.write_format(tmp_path, "5.0")
    assert json.loads(file.read_text())["written_by"] == "kafkalake 7"


@pytest.mark.exhaustive
@pytest.mark.parametrize("content", [b"", b"\0\0", b"{", b"[]", b'{"format": 1}'])
def test_a_damaged_format_is_written_anew_by_the_next_broker(tmp_path: Path, content: bytes) -> None:
    DeltaMetadataStore(tmp_path).close()
    (tmp_path / "metadata" / "format.json").write_bytes(content)
    DeltaMetadataStore(tmp_path).close()
    lake_format.write_format(tmp_path, "5.0")
    assert lake_format.read_format(tmp_path).written_by == "kafkalake 5.0"


# The cluster's id.


def test_the_cluster_id_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    assert known_cluster_id(tmp_path) is None
    made = cluster_id(tmp_path)
    assert len(made) == 22
    assert cluster_id(tmp_path) == known_cluster_id(tmp_path) == made


@pytest.mark.parametrize("content", [b"", b"\0" * 22, b"cut"])
def test_a_cluster_id_that_a_loss_of_power_has_emptied_is_made_anew_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metadata").mkdir()
    for _ in range(2):
        (tmp_path / "metadata" / "cluster-id").write_bytes(content)
        assert known_cluster_id(tmp_path) is None
        made = cluster_id(tmp_path)
        assert cluster_id(tmp_path) == known_cluster_id(tmp_path) == made
