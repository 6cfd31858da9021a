"""Runs jobs by cron rules, in one process.

    */5 * * * *  lag --max-lag-seconds 600
    @hourly      retention

A rule is five cron fields (a sixth: seconds) or a word such as `@hourly`, then a job and its arguments. Times are local.
Each run is a separate process, so that its leaks and failures end with it. A job that is still running at its next time
is not started a second time. One that cannot be started is tried again at its next time.
"""

from __future__ import annotations

import logging
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

from croniter import CroniterError, croniter

from kafkalake.cli.output import UsageProblem
from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError, file_sentence
from kafkalake.jobs.registry import JOBS
from kafkalake.process.parent import end_with_parent, environment_of_child

logger = logging.getLogger(__name__)

DEFAULT_RULES = (
    "*/5 * * * * lag",
    "7 * * * * retention",
    "*/30 * * * * compaction",
    "17 3 * * * maintenance",
)
_FIELD = re.compile(r"[\d*/,\-]+")
_STOP_TIMEOUT_S = 20
_WAKE_S = 0.2
_SET_BACK = timedelta(hours=3)
"""A clock that is set back by more is followed at once, as cron does. After less the next runs wait, so that none is repeated."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The times of a job, and its arguments (except the lake)."""

    when: str
    job: str
    arguments: tuple[str, ...]

    def next_after(self, moment: datetime) -> datetime:
        """Return the first time after `moment`, in its time zone."""
        found: datetime = croniter(self.when, moment).get_next(datetime)
        return found

    def __str__(self) -> str:
        return f"{self.when}  {shlex.join((self.job, *self.arguments))}"


def parse_rule(text: str, jobs: Collection[str]) -> Rule:
    """Parse a rule in one line. Raise `UsageProblem` for an invalid one, with a suggestion."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageProblem(f"rule '{text}': {error}") from None
    count = 1 if words[:1] and words[0].startswith("@") else 5
    if count == 5 and len(words) > 5 and words[5] not in jobs and _FIELD.fullmatch(words[5]):
        count = 6  # seconds
    when, rest = " ".join(words[:count]), words[count:]
    if len(words) < count or not rest:
        raise UsageProblem(f"rule '{text}' is not five cron fields (or @hourly) and a job: '*/5 * * * * lag'")
    try:
        croniter(when).get_next()  # no date is 30 February
    except (CroniterError, ValueError, KeyError) as error:
        raise UsageProblem(f"rule '{text}': '{when}' is no cron rule: {error}") from None
    if rest[0] not in jobs:
        hint = did_you_mean(rest[0], jobs) or f"there are {', '.join(sorted(jobs))}"
        raise UsageProblem(f"rule '{text}': no job '{rest[0]}'; {hint}")
    return Rule(when, rest[0], tuple(rest[1:]))


def parse_file(text: str, jobs: Collection[str]) -> list[Rule]:
    """Return the rules of a file: one per line, `#` begins a comment. Raise `UsageProblem` for an invalid rule."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [parse_rule(line, jobs) for line in lines if line]


def check_rules(rules: Sequence[Rule], lake: Path) -> None:
    """Raise `UsageProblem` for the first rule whose job would refuse its arguments.

    In a process of its own: the schedule's, which stays, would keep the libraries of each job in memory, 400 MB.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        for rule in rules:
            try:
                process.submit(JOBS[rule.job].check_arguments, _job_arguments(rule, lake)).result()
            except ConfigurationError as error:
                raise UsageProblem(f"rule '{rule}': {error}") from None


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    started: datetime


@dataclass(slots=True)
class Schedule:
    """Runs jobs by rules. `command` returns the command line of the process for a rule."""

    rules: Sequence[Rule]
    command: Callable[[Rule], Sequence[str]]
    stopped: threading.Event = field(default_factory=threading.Event)
    _due: list[datetime] = field(default_factory=list)
    _latest: datetime | None = None
    """The latest time that the clock has shown since it was last set back."""
    _running: dict[int, _Running] = field(default_factory=dict)

    def run(self) -> None:
        """Run until `stopped` is set, then terminate running jobs."""
        now = datetime.now().astimezone()
        self._due = [rule.next_after(now) for rule in self.rules]
        try:
            while not self.stopped.is_set():
                self.tick(datetime.now().astimezone())
                soonest = min(self._due, default=now + timedelta(days=1))
                left_s = (soonest - datetime.now().astimezone()).total_seconds()
                self.stopped.wait(min(max(left_s, 0.01), _WAKE_S if self._running else 1.0))
        finally:
            self._end()

    def tick(self, now: datetime) -> None:
        """Start due jobs, and collect finished ones."""
        self._follow_clock(now)
        for number, running in list(self._running.items()):
            if running.process.poll() is not None:
                del self._running[number]
                self._say_ended(self.rules[number], running, now)
        for number, rule in enumerate(self.rules):
            if self._due[number] > now:
                continue
            self._due[number] = rule.next_after(now)
            if number in self._running:
                logger.warning("job still runs, not started again job=%s", rule.job)
                continue
            try:
                process = subprocess.Popen(self.command(rule), env=environment_of_child())
            except OSError as error:  # no memory, no descriptor, no process
                said = file_sentence(error)
                logger.error("job not started, tried again at its next time job=%s error=%s", rule.job, said)
                continue
            self._running[number] = _Running(process, now)
            logger.info("job started job=%s pid=%d", rule.job, process.pid)

    def _follow_clock(self, now: datetime) -> None:
        if self._latest is not None and now < self._latest - _SET_BACK:
            logger.warning(
                "clock set back, next runs are reckoned anew from=%s to=%s", self._latest.isoformat(), now.isoformat()
            )
            self._due = [rule.next_after(now) for rule in self.rules]
            self._latest = None
        self._latest = now if self._latest is None else max(now, self._latest)

    def _say_ended(self, rule: Rule, running: _Running, now: datetime) -> None:
        code, seconds = running.process.returncode, (now - running.started).total_seconds()
        level = logging.INFO if code == 0 else logging.ERROR
        logger.log(level, "job ended job=%s code=%d seconds=%.1f", rule.job, code, seconds)

    def _end(self) -> None:
        for running in self._running.values():
            running.process.terminate()
        for number, running in self._running.items():
            try:
                running.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
            self._say_ended(self.rules[number], running, datetime.now().astimezone())


def _job_arguments(rule: Rule, lake: Path) -> list[str]:
    return ["--lake", str(lake), *rule.arguments]


def run_schedule(lake: Path, rules: Sequence[Rule]) -> int:
    """Run jobs by rules until SIGTERM or SIGINT. Return the exit code."""

    def command(rule: Rule) -> Sequence[str]:
        return [sys.executable, "-m", "kafkalake", "jobs", "run", rule.job, *_job_arguments(rule, lake)]

    schedule = Schedule(rules, command)

    def stop(number: int, frame: FrameType | None) -> None:
        schedule.stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    end_with_parent()
    schedule.run()
    return 0
