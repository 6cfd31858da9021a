"""The procedures of a lake, `CALL lake.system.retention(topic => 'clicks', dry_run => true)`: jobs, run in this process.

A procedure is the function that the command line runs. Its rows are the steps of the job's own plan: what is or would be done to
which subject, why, and what was there. A procedure that was withdrawn ends before its next step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kafkalake.client.administration.offset_reset import PartitionOffsets, require_no_members
from kafkalake.errors import ConfigurationError, LakeError
from kafkalake.jobs.compaction.command import CompactionJob
from kafkalake.jobs.frame import Done, Job, Step, run_steps
from kafkalake.jobs.lag.command import LagJob
from kafkalake.jobs.maintenance import KEEP_DAYS, STAGED_HOURS, Maintenance
from kafkalake.jobs.retention import Retention
from kafkalake.jobs.topics import select_topics
from kafkalake.reader.lake_broker import connect
from kafkalake.reader.session_time import parse_time
from kafkalake.reader.verification import verify
from kafkalake.spark.metadata_tables.definitions import TOPIC_COLUMN
from kafkalake.spark.metadata_tables.groups import LAG_COLUMNS, lag_row
from kafkalake.spark.planner.driver_session import driver_session
from kafkalake.spark.planner.lakes import lake_path, open_lake
from kafkalake.spark.planner.process import IS_WITHDRAWN
from kafkalake.spark.planner.question import Question

Rows = Iterable[tuple[Any, ...]]

STEP_COLUMNS = (
    "subject STRING, action STRING, why STRING, now MAP<STRING, STRING>, outcome STRING, after MAP<STRING, STRING>"
)
"""now: the state that was found. outcome, after: null in a dry run."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its type as DDL, and its default as SQL (None: it must be given)."""

    name: str
    type: str
    comment: str
    default: str | None = "NULL"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: its parameters, the columns of its rows as DDL, and the function that runs it.

    needs_session: it has Spark do work, for which the question has the way to the driver's session.
    """

    description: str
    parameters: tuple[Parameter, ...]
    columns: str
    run: Callable[[Question], Rows]
    needs_session: bool = False


def list_procedures(question: Question) -> dict[str, dict[str, Any]]:
    """Return the procedures by name."""
    return {
        name: {
            "name": name,
            "description": each.description,
            "parameters": [asdict(parameter) for parameter in each.parameters],
            "columns": each.columns,
            "needs_session": each.needs_session,
        }
        for name, each in PROCEDURES.items()
    }


def call(question: Question) -> list[tuple[Any, ...]]:
    """Run the procedure `procedure` with all its `arguments`, and return its rows. Raise the errors of its job."""
    return list(PROCEDURES[question["procedure"]].run(question))


def _retention(question: Question) -> Rows:
    return _steps(_run(Retention(), question, "guard"))


def _compact(question: Question) -> Rows:
    return _steps(_run(CompactionJob(), question))


def _maintenance(question: Question) -> Rows:
    return _steps(_run(Maintenance(), question, "keep_days", "staged_hours"))


def _lag(question: Question) -> Rows:
    job = LagJob()
    _run(job, question, "group", "window")
    return [lag_row(row) for row in job.measured]


def _run(job: Job, question: Question, *options: str) -> list[tuple[Step, Done | None]]:
    """Run a job with the arguments of its own options and those that all jobs have."""
    given = question["arguments"]
    arguments = [f"--lake={lake_path(question['lake'])}"]
    for name in ("topic", "pattern", *options):
        if given.get(name) is not None:
            arguments.append(f"--{name.replace('_', '-')}={given[name]}")
    if given.get("dry_run"):
        arguments.append("--dry-run")
    with driver_session(question.get("gateway"), question[IS_WITHDRAWN]) as spark:
        return run_steps(job, arguments, spark=spark, is_cancelled=question[IS_WITHDRAWN])


def _steps(steps: Iterable[tuple[Step, Done | None]]) -> Rows:
    for step, done in steps:
        yield (
            step.subject,
            step.action,
            step.why,
            _texts(step.before),
            None if done is None else done.outcome,
            None if done is None else _texts(done.after),
        )


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items()]


def _verify(question: Question) -> Rows:
    topic = question["arguments"]["topic"]
    store = open_lake(question["lake"])
    chosen = None if topic is None else {each.topic for each in select_topics(store.load_topics(), topic, None)}
    for problem in verify(store, chosen):
        if question[IS_WITHDRAWN]():
            raise LakeError("verify was cancelled")
        yield problem.file, None if problem.position < 0 else problem.position, problem.what


def _reset_offsets(question: Question) -> Rows:
    given = question["arguments"]
    group, topic, to = given["group"], given["topic"], given["to"]
    for name in ("group", "topic", "to"):
        if not given[name]:
            raise ConfigurationError(f"reset_offsets needs the parameter {name}")
    with connect(lake_path(question["lake"])) as admin:
        require_no_members(admin, group, may_be_new=True)
        numbers = [info.partition for info in admin.describe_topic(topic).partitions]
        if given["partition"] is not None:
            if given["partition"] not in numbers:
                raise ConfigurationError(
                    f"topic {topic} has no partition {given['partition']}, but 0 to {max(numbers)}"
                )
            numbers = [given["partition"]]
        partitions = [(topic, number) for number in numbers]
        committed = admin.committed_offsets(group)
        offsets = PartitionOffsets.of(admin, partitions)
        if to == "earliest":
            reset = offsets.begins
        elif to == "latest":
            reset = offsets.ends
        elif re.fullmatch(r"-?\d{1,1000}", to):
            reset = offsets.within(dict.fromkeys(partitions, int(to)))
        else:
            reset = offsets.at_time(admin, _time(to, question["time_zone"]))
        if not given["dry_run"] and not question[IS_WITHDRAWN]():
            admin.alter_offsets(group, reset)
    return [
        (group, *at, committed[at].offset if at in committed else None, offset) for at, offset in sorted(reset.items())
    ]


def _time(text: str, zone: str) -> int:
    try:
        return parse_time("to", text, zone)
    except ConfigurationError:
        raise ConfigurationError(
            f"to is {text!r}: give 'earliest', 'latest', an offset, or a time such as '2026-05-01 12:00:00'"
        ) from None


_TOPIC = Parameter("topic", "STRING", "the topic, or several: clicks,orders (NULL: all)")
_PATTERN = Parameter("pattern", "STRING", "all topics whose whole name matches this regular expression")
_DRY_RUN = Parameter("dry_run", "BOOLEAN", "say what would be done and why, and do nothing", "false")

PROCEDURES = {
    "retention": Procedure(
        Retention.summary,
        (
            _TOPIC,
            _DRY_RUN,
            Parameter(
                "guard", "STRING", "off, warn or block, for segments that a group has not read (NULL: the topic's)"
            ),
            _PATTERN,
        ),
        STEP_COLUMNS,
        _retention,
    ),
    "compact": Procedure(
        CompactionJob.summary, (_TOPIC, _DRY_RUN, _PATTERN), STEP_COLUMNS, _compact, needs_session=True
    ),
    "maintenance": Procedure(
        Maintenance.summary,
        (
            _DRY_RUN,
            Parameter("keep_days", "DOUBLE", "rows of lag and job_runs that are kept", f"{KEEP_DAYS:g}D"),
            Parameter("staged_hours", "DOUBLE", "how old staged files are left-overs", f"{STAGED_HOURS:g}D"),
        ),
        STEP_COLUMNS,
        _maintenance,
    ),
    "lag": Procedure(
        LagJob.summary,
        (
            _TOPIC,
            Parameter("group", "STRING", "groups whose whole name matches this regular expression (NULL: all)"),
            Parameter("window", "DOUBLE", "seconds over which rates are taken", "600D"),
            _PATTERN,
        ),
        f"{TOPIC_COLUMN}, {LAG_COLUMNS}",
        _lag,
    ),
    "verify": Procedure(
        "Check files: checksums, offsets, indexes, state, metadata. A row for each problem.",
        (_TOPIC,),
        "file STRING, position BIGINT, problem STRING",
        _verify,
    ),
    "reset_offsets": Procedure(
        "Move the committed offsets of a group without members; offsets stay within what the partitions hold.",
        (
            Parameter("group", "STRING", "the group", None),
            Parameter("topic", "STRING", "the topic", None),
            Parameter("to", "STRING", "earliest, latest, an offset, or a time: the first record at or after it", None),
            Parameter("partition", "INT", "only this partition"),
            _DRY_RUN,
        ),
        "`group` STRING, topic STRING, partition INT, committed_offset BIGINT, new_offset BIGINT",
        _reset_offsets,
    ),
}
"""The procedures by name."""
