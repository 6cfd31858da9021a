"""The prompt of `kafkalake sql` on a terminal, with statements ended by semicolons and a persistent history."""

from __future__ import annotations

import contextlib
import os
import readline
from collections.abc import Callable
from pathlib import Path

from kafkalake.cli.output import Failure, note, show_error
from kafkalake.errors import KafkaLakeError

HISTORY_LINES = 1_000
_QUIT = {"exit", "quit", ".exit", ".quit", "\\q"}


def history_file() -> Path:
    """Return the history file, below `XDG_STATE_HOME`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kafkalake" / "sql-history"


def run_prompt(run: Callable[[str], None], explain: Callable[[Exception, str], Exception]) -> None:
    """Read and run statements until `exit` or the end of the input. Errors are shown, and the prompt continues."""
    import duckdb

    history = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_LINES)
    note("A statement ends with a semicolon; exit or Ctrl-D ends. SHOW ALL TABLES shows what there is.")
    try:
        while (statement := _read_statement()) is not None:
            try:
                run(statement)
            except duckdb.Error as error:
                _show(explain(error, statement))
            except (Failure, KafkaLakeError) as error:
                _show(error)
            except KeyboardInterrupt:
                note("interrupted")
    finally:
        with contextlib.suppress(OSError):
            history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            readline.write_history_file(history)
            history.chmod(0o600)


def _read_statement() -> str | None:
    """Return the lines up to a semicolon, or None at the end of the input."""
    lines: list[str] = []
    while True:
        try:
            line = input("... " if lines else "sql> ")
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:  # discard the typed lines
            print()
            lines = []
            continue
        if not lines and line.strip().rstrip(";").lower() in _QUIT:
            return None
        lines.append(line)
        text = "\n".join(lines).strip()
        if not text:
            lines = []
        elif text.endswith(";"):
            return text


def _show(error: Exception) -> None:
    show_error(str(error), getattr(error, "hint", None))
