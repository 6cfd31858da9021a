"""Numbers of things in sentences."""

from __future__ import annotations

import pytest

from kafkalake.counted import counted, counted_as_subject


@pytest.mark.parametrize(
    ("count", "noun", "plural", "expected"),
    [
        (0, "record", "", "0 records"),
        (1, "record", "", "1 record"),
        (2_000, "record", "", "2,000 records"),
        (1, "batch", "batches", "1 batch"),
        (2, "batch", "batches", "2 batches"),
    ],
)
def test_a_number_has_its_noun(count: int, noun: str, plural: str, expected: str) -> None:
    assert counted(count, noun, plural) == expected


def test_a_subject_has_its_verb() -> None:
    assert [counted_as_subject(count, "line") for count in (1, 3)] == ["1 line was", "3 lines were"]
