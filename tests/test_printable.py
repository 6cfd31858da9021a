"""Control characters of text from elsewhere on a terminal."""

from __future__ import annotations

import io

import pytest

from kafkalake.printable import printable, printable_on


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größer \U0001f600\n\ttab", "plain größer \U0001f600\n\ttab"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\u009b2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\rb\x00\x7f", "a\\x0db\\x00\\x7f"),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("\u2066\u200f\u061c", "\\u2066\\u200f\\u061c"),
    ],
)
def test_what_would_move_the_cursor_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_no_control_character_is_left() -> None:
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000)]))
    left = {each for each in printable(everything) if each < " " or "\x7f" <= each < "\xa0"}
    assert left == {"\n", "\t"}


def test_a_pipe_gets_the_text_as_it_is() -> None:
    assert printable_on(io.StringIO(), "\x1b[2J") == "\x1b[2J"
