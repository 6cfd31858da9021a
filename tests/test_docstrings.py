"""Docstrings of functions say what a call does: they begin with a verb, and name errors as "Raise `X` if ..."."""

from __future__ import annotations

import ast

import pytest
from sources import parsed, sources

NO_VERBS = {
    "A",
    "All",
    "An",
    "Any",
    "Each",
    "Every",
    "Here",
    "How",
    "The",
    "This",
    "What",
    "Where",
    "Whether",
    "Who",
    "Why",
}


def wrong(source: str) -> list[str]:
    """Return `name: docstring` of each function whose docstring begins with no verb, or has "Raises"; values are no functions."""
    found = []
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        is_value = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        if not is_value and (text.partition(" ")[0].strip("`*,.:") in NO_VERBS or "Raises " in text):
            found.append(f"{node.name}: {text.splitlines()[0]}")
    return found


def test_functions_begin_with_a_verb() -> None:
    assert {path: faults for path, source in sources().items() if (faults := wrong(source))} == {}


@pytest.mark.parametrize("text", ["Whether it is.", "The end of a log.", "Return it. Raises `ValueError`."])
def test_a_wrong_docstring_is_found(text: str) -> None:
    assert len(wrong(f'async def f():\n    """{text}"""')) == 1
    assert wrong(f'@property\ndef f(self):\n    """{text}"""') == []
