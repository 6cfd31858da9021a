"""`kafkalake jobs`: runs a job of the lake without spark-submit, lists the jobs, runs them by cron rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafkalake.cli.options import Lake
from kafkalake.cli.output import UsageProblem, note, on_terminal, table, write_line
from kafkalake.close_names import did_you_mean

app = typer.Typer(
    no_args_is_help=True, help="Jobs on a lake: retention, compaction, lag, maintenance; once or by cron rules."
)


@app.command("list")
def list_jobs() -> None:
    """List the jobs, one a line."""
    from kafkalake.jobs.registry import JOBS

    rows = [(entry.name, entry.summary) for entry in JOBS.values()]
    if on_terminal():
        table(None, ["Job", "What it does"], rows)
        return
    for row in rows:
        write_line("\t".join(row))


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
    epilog="""Examples

  [cyan]kafkalake jobs run retention --lake ./lake --dry-run[/cyan]
  [cyan]kafkalake jobs run lag --lake ./lake --html lag.html --max-lag-seconds 600[/cyan]
  [cyan]kafkalake jobs run lag --help[/cyan]""",
)
def run(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The job.", show_default=False)] = None,
) -> None:
    """Run a job in this process; what follows its name are its arguments. The exit status is the job's."""
    from kafkalake.jobs.registry import JOBS
    from kafkalake.process.parent import end_with_parent

    if name in (None, "-h", "--help"):
        typer.echo(context.get_help())
        raise typer.Exit(0 if name else 2)
    assert name is not None
    if name.startswith("-"):
        raise UsageProblem(f"the job is named before its arguments: kafkalake jobs run NAME {name} ...")
    if name not in JOBS:
        raise UsageProblem(f"no job '{name}'; {did_you_mean(name, JOBS) or 'there are ' + ', '.join(sorted(JOBS))}")
    end_with_parent()
    raise typer.Exit(JOBS[name].main()(context.args))


@app.command(
    epilog="""Examples

  [cyan]kafkalake jobs schedule --lake ./lake[/cyan]
  [cyan]kafkalake jobs schedule --lake ./lake --rule "*/5 * * * * lag --max-lag 100000" --rule "@hourly retention"[/cyan]
  [cyan]kafkalake jobs schedule --lake ./lake --file jobs.cron[/cyan]"""
)
def schedule(
    lake: Lake,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", "-r", metavar="RULE", help="Cron fields, a job, its arguments.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="A rule a line.", show_default=False)
    ] = None,
) -> None:
    """Run jobs by cron rules in one process, until SIGTERM or Ctrl-C. Without rules: lag, retention, compaction, maintenance."""
    from kafkalake.cli.job_schedule import DEFAULT_RULES, check_rules, parse_file, parse_rule, run_schedule
    from kafkalake.jobs.registry import JOBS
    from kafkalake.metadata.paths import require_lake
    from kafkalake.process import logs

    require_lake(lake)
    rules = [parse_rule(text, JOBS) for text in rule or ()]
    if file is not None:
        rules += parse_file(file.read_text(), JOBS)
    check_rules(rules, lake.absolute())
    if not rules:
        rules = [parse_rule(text, JOBS) for text in DEFAULT_RULES if text.split()[5] in JOBS]
    for each in rules:
        note(str(each))
    logs.write_to_stderr("info")
    raise typer.Exit(run_schedule(lake.absolute(), rules))
