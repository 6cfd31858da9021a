"""The command `kafkalake`: its groups of commands, and its exit codes.

Importing this module is fast (only typer): heavy modules are imported inside the commands. Expected errors become one
sentence on stderr and an exit code: 0 success, 1 failure, 2 usage error, 130 interrupted. `KAFKALAKE_DEBUG=1` shows the traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from kafkalake import __version__
from kafkalake.cli import (
    broker,
    brokers,
    cluster,
    consume,
    delayed,
    groups,
    jobs,
    log,
    produce,
    sql,
    topics,
    transactions,
)
from kafkalake.cli.output import Failure, OutputClosed, UsageProblem, show_error, write_line
from kafkalake.cli.plain_values import keep_plain_values
from kafkalake.close_names import did_you_mean
from kafkalake.closed_streams import silence
from kafkalake.extras import import_arrow_without_pandas, missing_extra

START_A_BROKER = "Is a broker running there? Start one with:  kafkalake broker start --lake ./lake"

app = typer.Typer(
    name="kafkalake",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Kafka topics that already are lakehouse tables.\n\n"
    "Any Kafka client writes and reads them; Spark, DuckDB and Polars query the very same files.",
    epilog="""[bold]A first round[/bold]

  [cyan]kafkalake broker start --lake ./lake[/cyan]
  [cyan]kafkalake topics create clicks --partitions 4[/cyan]
  [cyan]kafkalake produce clicks events.jsonl --key-field user[/cyan]
  [cyan]kafkalake consume clicks --from-beginning --max-records 3[/cyan]
  [cyan]kafkalake sql "SELECT count(*) FROM clicks" --lake ./lake[/cyan]

[dim]KAFKALAKE_BOOTSTRAP_SERVERS and KAFKALAKE_LAKE spare the options of that name.
Completion for your shell: kafkalake --install-completion[/dim]""",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        write_line(f"kafkalake {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


ORDER = (
    "broker",
    "cluster",
    "brokers",
    "topics",
    "groups",
    "transactions",
    "delayed",
    "produce",
    "consume",
    "sql",
    "log",
    "jobs",
)
RUN, DATA, INSPECT = "Run", "Records", "The lake"
app.add_typer(broker.app, name="broker", rich_help_panel=RUN)
app.add_typer(cluster.app, name="cluster", rich_help_panel=RUN)
app.add_typer(brokers.app, name="brokers", rich_help_panel=RUN)
app.add_typer(topics.app, name="topics", rich_help_panel=RUN)
app.add_typer(groups.app, name="groups", rich_help_panel=RUN)
app.add_typer(transactions.app, name="transactions", rich_help_panel=RUN)
app.add_typer(delayed.app, name="delayed", rich_help_panel=RUN)
app.command("produce", rich_help_panel=DATA, epilog=produce.EXAMPLES)(produce.produce)
app.command("consume", rich_help_panel=DATA, epilog=consume.EXAMPLES)(consume.consume)
app.command("sql", rich_help_panel=INSPECT, epilog=sql.EXAMPLES)(sql.sql)
app.add_typer(log.app, name="log", rich_help_panel=INSPECT)
app.add_typer(jobs.app, name="jobs", rich_help_panel=INSPECT)


def main() -> None:
    """Run the command with `sys.argv` and exit."""
    if sys.argv[1:2] in (["produce"], ["consume"], ["sql"]):
        import_arrow_without_pandas()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code, after showing expected errors on stderr."""
    try:
        result = _command()(args=list(arguments), prog_name="kafkalake", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except OutputClosed:
        return 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich's, from help: the same end as `OutputClosed`
            return 0
        return error.code if isinstance(error.code, int) else 1
    except Exception as error:
        if os.environ.get("KAFKALAKE_DEBUG"):
            raise
        return _explain(error)


@cache
def _command() -> Any:
    """Return the Click command, created once because that takes a tenth of a second."""
    command = typer.main.get_command(app)
    _tidy(command)
    return command


def _tidy(command: Any) -> None:
    """Simplify the help: no type beside a flag or a named value, and hidden completion options."""
    for parameter in command.params:
        keep_plain_values(parameter)
        _simplify_type(parameter)
        if parameter.name in ("install_completion", "show_completion"):
            parameter.hidden = True
    help_option = command.get_help_option

    def without_type(context: Any) -> Any:
        option = help_option(context)
        if option is not None:
            option.metavar = ""
            keep_plain_values(option)
        return option

    command.get_help_option = without_type
    inner = getattr(command, "commands", {})
    if set(ORDER) <= set(inner):
        command.commands = {name: inner[name] for name in (*ORDER, *inner)}
    for subcommand in inner.values():
        _tidy(subcommand)


def _simplify_type(parameter: Any) -> None:
    """Show `N` for a number, and nothing beside a flag or an argument, whose names say it."""
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: ""
    elif parameter.metavar is None:
        wanted = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        parameter.metavar = "" if parameter.is_flag else "N" if wanted in (int, list[int]) else None


def _explain(error: Exception) -> int:
    """Show an error and return the exit code for it."""
    from kafkalake.errors import BrokerUnavailableError, KafkaLakeError, file_sentence

    if hasattr(error, "format_message"):  # a usage error of typer's
        return _explain_usage(error)
    if isinstance(error, UsageProblem):
        show_error(str(error))
        return 2
    if isinstance(error, Failure):
        show_error(str(error), error.hint)
    elif isinstance(error, BrokerUnavailableError):
        show_error(str(error), START_A_BROKER)
    elif isinstance(error, KafkaLakeError):
        show_error(str(error))
    elif isinstance(error, BrokenPipeError):
        silence(sys.stdout)
        return 0
    elif isinstance(error, OSError) and error.filename is not None:
        show_error(file_sentence(error))
    elif missing := missing_extra(error):
        show_error(missing)
    else:
        show_error(
            f"kafkalake met a problem that it did not expect: {type(error).__name__}: {error}",
            "KAFKALAKE_DEBUG=1 shows where; please report it.",
        )
    return 1


def _explain_usage(error: Any) -> int:
    """Show the usage error with a suggestion and a pointer to the help, and return the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return 2  # the help was shown already
    message = str(error.format_message()).strip().rstrip(".")
    message = message.split(" (Possible options")[0].replace("No such option: ", "No such option ")
    wrong = getattr(error, "option_name", None)
    if wrong and context is not None and "No such option" in message:
        known = [
            name
            for parameter in context.command.get_params(context)
            for name in parameter.opts
            if name.startswith("--")
        ]
        suggestion = did_you_mean(str(wrong), known)
        message = f"{message}; {suggestion}" if suggestion else message
    if wrong in ("--topic", "--group") and context is not None:  # as Kafka's tools have it
        message += f"; the {wrong[2:]} is named without an option: {context.command_path} {wrong[2:].upper()}"
    message = message.replace(". Did you mean", "; did you mean").replace(": Value error, ", ": ")  # pydantic's
    message = message.replace(": Input should", ": it should")
    message = message[:1].lower() + message[1:]
    show_error(message, f"See: {context.command_path} --help" if context is not None else None)
    return int(getattr(error, "exit_code", 2))


if __name__ == "__main__":
    main()
