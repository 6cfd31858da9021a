"""The output of commands: results to stdout, everything else to stderr; plain text for programs, tables for people.

A table is drawn only on a terminal. Piped output has no colours and no frames; `NO_COLOR` is respected by rich. Writing to a
closed pipe ends the command quietly.

Names and values come from clients. On a terminal their control characters (C0, C1 and those that change the direction of
writing) are shown as escapes (`printable`), so that no group id moves the cursor. A pipe gets the bytes unchanged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkalake.closed_streams import silence
from kafkalake.errors import file_sentence
from kafkalake.printable import printable, printable_on

if TYPE_CHECKING:
    from rich.console import Console


PIPED_WIDTH = 10_000
NARROWEST = 8
GAP = 3


class UsageProblem(Exception):
    """A command line that makes no sense: one sentence, exit code 2."""


class Failure(Exception):
    """A command that failed: one sentence and perhaps a hint, exit code 1."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class OutputClosed(Exception):
    """Stdout was closed by its reader (`kafkalake consume ... | head`)."""


def on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def write(data: bytes, *, raw: bool = False) -> None:
    """Write to stdout and flush, with visible control characters on a terminal unless `raw`.

    Raise `OutputClosed` if it is closed, `Failure` if it takes nothing for another reason.
    """
    if not raw and on_terminal():
        data = printable(data.decode("utf-8", "backslashreplace")).encode()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        raise OutputClosed from None
    except OSError as error:
        silence(sys.stdout)
        raise Failure(f"standard output: {file_sentence(error)}") from None


def write_line(text: str = "") -> None:
    """Write a line of text to stdout. Raise the errors of `write`."""
    write((text + "\n").encode("utf-8", "surrogateescape"))


def write_json(document: object) -> None:
    """Write one JSON document: indented on a terminal, else on one line."""
    write_line(json.dumps(document, ensure_ascii=False, indent=2 if on_terminal() else None, default=str))


def console() -> Console:
    """Return a console on stdout. In a pipe its width is practically unlimited."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if on_terminal() else PIPED_WIDTH)


def error_console() -> Console:
    """Return a console on stderr for notes, progress and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> None:
    """Draw a table with one line per row. If it is too wide for the terminal, columns without a value are omitted, and long
    cells are cut. `right`: numeric columns. Raise the errors of `write`.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [
        ["" if value is None else printable_on(sys.stdout, str(value)).replace("\n", "\\n") for value in row]
        for row in rows
    ]
    printer = console()
    natural = _natural_widths(columns, cells)
    if sum(natural) + GAP * len(columns) + 1 > printer.width:
        kept = [
            index for index, _ in enumerate(columns) if not cells or any(row[index] not in ("", "-") for row in cells)
        ]
        columns = [columns[index] for index in kept]
        cells = [[row[index] for index in kept] for row in cells]
        natural = _natural_widths(columns, cells)
    widths = fit(natural, printer.width - GAP * len(columns) - 1)
    drawn = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="bold cyan",
        pad_edge=False,
    )
    numbers = set(right)
    for column, width in zip(columns, widths, strict=True):
        justify: Any = "right" if column in numbers else "left"
        drawn.add_column(Text(column), justify=justify, no_wrap=True, overflow="ellipsis", width=width)
    for row in cells:
        drawn.add_row(*map(Text, row))
    with printer.capture() as shown:  # rich itself has no sentence for a full disk, and the status 1 for a closed pipe
        printer.print(drawn, crop=False, overflow="ignore", no_wrap=True)
    write(shown.get().encode("utf-8", "backslashreplace"), raw=True)


def _natural_widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [max([cell_len(name), *(cell_len(row[index]) for row in cells)]) for index, name in enumerate(columns)]


def show_columns(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Draw a table on a terminal, else print columns padded with blanks like Kafka's tools."""
    if on_terminal():
        table(None, columns, rows, right=right)
        return
    cells = [list(columns), *([str(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(columns))]
    for row in cells:
        write_line(" ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def fit(widths: Sequence[int], available: int) -> list[int]:
    """Return column widths that fit: the widest are reduced, down to `NARROWEST`, and narrower ones keep their width.

    `[3, 100, 40]` in 80: the wide ones share the space left by the narrow one, `[3, 38, 38]`.
    """
    fitted = list(widths)
    while (excess := sum(fitted) - available) > 0:
        widest = max(fitted)
        if widest <= NARROWEST:
            break
        second = max((width for width in fitted if width < widest), default=0)
        wide = [index for index, width in enumerate(fitted) if width == widest]
        cut = max(1, min(widest - max(second, NARROWEST), -(-excess // len(wide))))
        for index in wide:
            fitted[index] -= cut
    return fitted


def note(text: str) -> None:
    """Print a remark to stderr."""
    from rich.text import Text

    error_console().print(Text(printable_on(sys.stderr, text), style="dim"))


def show_error(message: str, hint: str | None = None) -> None:
    """Print `error: ...` to stderr, in red on a terminal, and a hint on a separate line."""
    from rich.text import Text

    printer = error_console()
    printer.print(Text.assemble(("error: ", "bold red"), printable_on(sys.stderr, message)))
    if hint:
        printer.print(Text(printable_on(sys.stderr, hint), style="dim"))


def size(count: int) -> str:
    """Return a number of bytes for people: `999 B`, `1.2 kB`, `3.4 MB`."""
    if count < 1_000:
        return f"{count} B"
    amount, unit = float(count), "B"
    for unit in ("kB", "MB", "GB", "TB"):  # noqa: B007
        amount /= 1_000
        if amount < 999.95:
            break
    return f"{amount:,.1f} {unit}"
