"""`kafkalake sql`: DuckDB over the segments."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalake.cli.options import Json, Lake

EXAMPLES = """Example

  [cyan]kafkalake sql "SELECT count(*) FROM clicks" --lake ./lake[/cyan]"""


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="SQL; each topic is a table by its name.", show_default=False)
    ],
    lake: Lake,
    json: Json = False,
) -> None:
    """Query topics with SQL. No broker and no JVM is needed."""
    raise NotImplementedError
