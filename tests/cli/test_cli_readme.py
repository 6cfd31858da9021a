"""The commands in the README are commands with these options."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from kafkalake.cli.main import _command

README = Path(__file__).parents[2] / "README.md"
COMMANDS = [line[2:] for line in README.read_text().splitlines() if line.startswith("$ kafkalake ")]


def parse(arguments: list[str]) -> None:
    """Parse a command line as `kafkalake` does, without running it."""
    command: Any = _command()
    context = None
    while True:
        context = command.make_context(command.name, arguments, parent=context)
        if not hasattr(command, "resolve_command"):
            return
        _, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme_is_one(line: str) -> None:
    parse([word for word in shlex.split(line, comments=True)[1:] if word != "&"])


def test_what_is_no_option_is_found() -> None:
    with pytest.raises(Exception, match="--broker"):
        parse(["cluster", "start", "--broker", "3"])
    assert len(COMMANDS) > 15
