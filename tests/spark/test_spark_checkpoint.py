"""Where a stream began, kept in its checkpoint, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalake.errors import LakeError
from kafkalake.spark.checkpoint import initial_offsets


def first(offset: int) -> dict[str, dict[str, int]]:
    return {"clicks": {"0": offset}}


def test_the_first_offsets_are_those_of_the_first_time(tmp_path: Path) -> None:
    location = (tmp_path / "checkpoint" / "sources" / "0").as_uri()
    assert initial_offsets(location, lambda: first(7)) == first(7)
    assert initial_offsets(location, lambda: first(9)) == first(7)
    assert [file.name for file in (tmp_path / "checkpoint" / "sources" / "0").iterdir()] == ["0"]
    for nowhere in ("", "s3a://bucket/checkpoint"):
        assert initial_offsets(nowhere, lambda: first(9)) == first(9)


def test_a_checkpoint_of_sparks_kafka_source_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b'\0v1\n{"clicks":{"0":23}}')
    assert initial_offsets(tmp_path.as_uri(), lambda: first(9)) == first(23)


@pytest.mark.parametrize("content", [b"", b"\0v2\n{}", b'\0v1\n{"clicks":'])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0").write_bytes(content)
    with pytest.raises(LakeError, match="holds no first offsets of a stream"):
        initial_offsets(tmp_path.as_uri(), lambda: first(9))
