"""`kafkalake log`: look into segments, check a lake. No broker is needed; one that runs is not disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafkalake.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Check a lake's files, print a segment.")


@app.command(epilog="Example:  [cyan]kafkalake log verify ./lake || echo damaged[/cyan]")
def verify(
    lake: Annotated[Path, typer.Argument(metavar="LAKE", help="The lake's directory.", show_default=False)],
    json: Json = False,
) -> None:
    """Check checksums, offsets, indexes, state and metadata of a lake. Problems go to stderr; exit code 1 if there are any."""
    raise NotImplementedError


@app.command(epilog="Example:  [cyan]kafkalake log dump ./lake/logs/0/clicks-0/00000000000000000000.arrow[/cyan]")
def dump(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A segment, NAME.arrow.", show_default=False)],
    json: Json = False,
) -> None:
    """Print a segment: its messages, producer batches and records."""
    raise NotImplementedError
