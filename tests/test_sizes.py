"""Bounds of the source: values without a type, long functions, long modules."""

from __future__ import annotations

import ast
import re
from statistics import median

from sources import ON_ONE_WORKER, modules, nodes, parsed

pytestmark = ON_ONE_WORKER

ANY_MAX = 300
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 400
REASON = re.compile(r"more than 400(?: lines)?: ", re.IGNORECASE)


def function_lines() -> dict[str, int]:
    """Return the lines of each function by module and name, docstrings included."""
    return {
        f"{module}.{node.name}:{node.lineno}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module, source in modules().items()
        for node in nodes(source, ast.FunctionDef, ast.AsyncFunctionDef)
    }


def uses_of_any() -> int:
    return sum(node.id == "Any" for source in modules().values() for node in nodes(source, ast.Name))


def test_values_have_a_type() -> None:
    assert uses_of_any() <= ANY_MAX


def test_functions_are_short() -> None:
    lines = function_lines()
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES_MAX} == {}
    assert median(lines.values()) <= 7


def test_modules_are_short_or_say_why_not() -> None:
    long = {name: source for name, source in modules().items() if source.count("\n") > MODULE_LINES_MAX}
    docstrings = {name: ast.get_docstring(parsed(source)) or "" for name, source in long.items()}
    assert {name for name, text in docstrings.items() if not REASON.search(text)} == set()
