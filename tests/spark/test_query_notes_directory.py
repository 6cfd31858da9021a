"""Where queries write down what they have seen: a directory of this user alone, and never another one through a link."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from kafkalake.reader.read import Read
from kafkalake.reader.read_options import parse_options
from kafkalake.spark.source import query_snapshot


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"kafkalake-queries-{os.getuid()}"


def look() -> None:
    query_snapshot.as_first_seen(Read(parse_options({"lake": "/nowhere", "subscribe": "t"}), []), "query")


def test_it_is_made_for_this_user_alone(directory: Path) -> None:
    look()
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "old").write_text("mine")
    os.utime(precious / "old", (time.time() - 100_000,) * 2)
    directory.symlink_to(precious)
    with pytest.raises(PermissionError, match="no directory of this user alone"):
        look()
    assert [file.name for file in precious.iterdir()] == ["old"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_one_that_others_can_look_into_is_refused(directory: Path, mode: int) -> None:
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(PermissionError):
        look()


def test_the_users_own_runtime_directory_comes_first(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    look()
    assert (tmp_path / "run" / directory.name).is_dir()
    assert not directory.exists()
