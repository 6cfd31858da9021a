"""A fact of a lake is worked out in one place, held by reading the sources: everybody else asks that place.

Each rule is a function of sources, so that each is also seen to find what breaks it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kafkalake"

_TAKES_APART = {"split", "rsplit", "partition", "rpartition", "startswith", "removeprefix"}


def paths_taken_apart(of: Mapping[str, str]) -> list[str]:
    """Return where the path of a segment is taken apart: the broker that has it is a column of its row."""
    return [
        f"{module}:{node.lineno}"
        for module, source in of.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in _TAKES_APART
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "path"
        and ast.unparse(node.value) != "os.path"
    ]


def sources() -> dict[str, str]:
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def test_no_path_of_a_segment_is_taken_apart() -> None:
    assert paths_taken_apart(sources()) == []


@pytest.mark.parametrize(
    "source", ['int(row.path.split("/")[1])', "found = [row for row in rows if row.path.startswith(prefix)]"]
)
def test_a_path_taken_apart_is_found(source: str) -> None:
    assert len(paths_taken_apart({"metadata/cleaning.py": source})) == 1
