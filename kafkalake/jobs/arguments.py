"""Command lines of jobs: how they are parsed, and the types of their arguments, for argparse."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError, file_sentence
from kafkalake.jobs.progress import show

LARGEST = 1e9


class JobParser(argparse.ArgumentParser):
    """The parser of a job's command line. Help whose reader has enough of it ends with the status 0, as a job's results do."""

    def print_help(self, file: object = None) -> None:
        error = show(lambda: print(self.format_help(), end=""))
        if error is not None:
            self.exit(1, f"{self.prog}: its help could not be printed: {file_sentence(error)}\n")


class RaisingParser(argparse.ArgumentParser):
    """A parser that neither prints nor ends the process: it raises `ConfigurationError` with the message."""

    def print_help(self, file: object = None) -> None:
        self.error("--help runs no job")

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(message)


def parse_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a job, whose usage shows how `kafkalake` runs it.

    An unknown option is reported before a missing one, which is often the same one misspelled.
    """
    required: list[argparse.Action | argparse._MutuallyExclusiveGroup] = [
        *(each for each in parser._actions if each.required),
        *(each for each in parser._mutually_exclusive_groups if each.required),
    ]
    name, parser.prog = parser.prog, f"kafkalake jobs run {parser.prog}"
    parser.usage = parser.format_usage().removeprefix("usage: ").rstrip().replace("%", "%%")  # with what is required
    parser.prog = name
    for each in required:
        each.required = False
    parsed, unknown = parser.parse_known_args(list(arguments))
    for each in required:
        each.required = True
    if unknown:
        parser.error(_unknown(unknown, parser))
    return parser.parse_args(list(arguments)) if required else parsed


def number(text: str) -> float:
    """Return a number. Raise `ValueError` for what is none, `argparse.ArgumentTypeError` for NaN and what is beyond `LARGEST`."""
    found = float(text)
    if not abs(found) <= LARGEST:  # NaN is not
        raise argparse.ArgumentTypeError(f"{text!r} is no number up to {LARGEST:,.0f}")
    return found


def count(text: str) -> int:
    """Return a whole number of at least 1. Raise `argparse.ArgumentTypeError` for anything else."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def _unknown(words: Sequence[str], parser: argparse.ArgumentParser) -> str:
    known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    hint = did_you_mean(option, known, most=1, show=str) if option else None
    return f"unknown argument {option or words[0]!r}" + (f"; {hint}" if hint else "")
