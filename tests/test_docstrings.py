"""Docstrings of functions say what a call does: they begin with a verb, and name errors as "Raise `X` if ...".

Those of values and classes begin with a verb or a noun.
"""

from __future__ import annotations

import ast

import pytest
from sources import ON_ONE_WORKER, nodes, sources

pytestmark = ON_ONE_WORKER

CLAUSES = {"How", "What", "When", "Where", "Whether", "Who", "Why"}
NO_VERBS = {"A", "All", "An", "Any", "Each", "Every", "Here", "The", "This"} | CLAUSES


def wrong(source: str) -> list[str]:
    """Return `name: docstring` of each function or class whose docstring begins as none should, or has "Raises"."""
    found = []
    for node in nodes(source, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        text = ast.get_docstring(node) or ""
        first = text.partition(" ")[0].strip("`*,.:")
        is_value = isinstance(node, ast.ClassDef) or any(
            "property" in ast.unparse(decorator) for decorator in node.decorator_list
        )
        if first in CLAUSES or (not is_value and first in NO_VERBS) or "Raises " in text:
            found.append(f"{node.name}: {text.splitlines()[0]}")
    return found


def test_functions_begin_with_a_verb() -> None:
    assert {path: faults for path, source in sources().items() if (faults := wrong(source))} == {}


@pytest.mark.parametrize("text", ["Whether it is.", "The end of a log.", "Return it. Raises `ValueError`."])
def test_a_wrong_docstring_is_found(text: str) -> None:
    assert len(wrong(f'async def f():\n    """{text}"""')) == 1
    assert wrong(f'@property\ndef f(self):\n    """The text: {text.lower()}"""') == []
