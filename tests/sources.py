"""The sources of the package, for tests that hold a rule by reading them: each file is read and parsed once."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "kafkalake"


@cache
def sources() -> Mapping[str, str]:
    """Return the source of each file by its path below `kafkalake`, such as `storage/log.py`."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def modules() -> Mapping[str, str]:
    """Return the source of each module by its name below `kafkalake`; of a package's own by the package's, `__init__` of all."""
    names = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in sources()}
    return {names[path]: source for path, source in sources().items()}


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)
