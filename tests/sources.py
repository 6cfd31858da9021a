"""The sources of the package, for tests that hold a rule by reading them: each file is read, parsed and walked through once."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kafkalake"
ON_ONE_WORKER = pytest.mark.xdist_group("sources")


@cache
def sources() -> Mapping[str, str]:
    """Return the source of each file by its path below `kafkalake`, such as `storage/log.py`."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def modules() -> Mapping[str, str]:
    """Return the source of each module by its name below `kafkalake`; of a package's own by the package's, `__init__` of all."""
    names = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in sources()}
    return {names[path]: source for path, source in sources().items()}


@contextmanager
def _without_collection() -> Iterator[None]:
    """Have the garbage collector pass over what is made here: trees of all files, which stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@cache
@_without_collection()
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
@_without_collection()
def _by_kind(source: str) -> Mapping[type[ast.AST], Sequence[Any]]:
    """As `ast.walk` finds them, in a third of its time: without the `Load` or `Store` of each name."""
    found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    walked: list[ast.AST] = [parsed(source)]
    for node in walked:  # grows
        found[type(node)].append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                walked += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                walked.append(value)
    return found


def nodes(source: str, *kinds: type[ast.AST]) -> list[Any]:
    """Return the nodes of these kinds, those of the first kind first."""
    return [node for kind in kinds for node in _by_kind(source).get(kind, ())]
