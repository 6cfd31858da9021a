"""`kafkalake jobs`: what can be run, what was probably meant, exit codes, and cron rules."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from written_lake import WrittenLake

from kafkalake.cli.job_schedule import DEFAULT_RULES, Rule, Schedule, parse_file, parse_rule
from kafkalake.cli.main import run
from kafkalake.cli.output import UsageProblem
from kafkalake.jobs.registry import JOBS
from kafkalake.metadata import paths
from kafkalake.metadata.tables.job_tables import JobTable

NOW = datetime(2026, 11, 21, 10, 58, 30, tzinfo=UTC)
DEADLINE_S = 60


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"1"])
    lake.publish()
    lake.close()
    return lake.path


def test_every_job_that_is_listed_can_be_loaded(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "list"]) == 0
    listed = [line.split("\t")[0] for line in capfd.readouterr().out.splitlines()]
    assert listed == list(JOBS)
    assert {"retention", "lag", "consume"} <= set(listed)
    for entry in JOBS.values():
        assert callable(entry.main())


@pytest.mark.exhaustive
def test_the_exit_status_is_the_jobs(lake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "run", "retention", "--lake", str(lake), "--dry-run"]) == 0
    assert "0 steps would be done" in capfd.readouterr().out
    assert run(["jobs", "run", "retention", "--lake", str(tmp_path / "none")]) == 1
    assert capfd.readouterr().err.startswith("retention: no lake at ")
    for command in (["jobs", "run", "retention"], ["broker", "start"], ["sql", "SELECT 1"]):
        assert run([*command, "--lake", "s3a://bucket/lake"]) == 1
        assert "mounted on this machine, and s3a://bucket/lake is none" in capfd.readouterr().err
    assert run(["jobs", "run", "lag", "--lake", str(lake), "--max-lga", "5"]) == 2
    assert "unknown argument '--max-lga'; did you mean --max-lag?" in capfd.readouterr().err
    assert run(["jobs", "run", "retentoin", "--lake", str(lake)]) == 2
    assert "no job 'retentoin'; did you mean 'retention'?" in capfd.readouterr().err
    assert run(["jobs", "run", "lag", "--help"]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith("usage: kafkalake jobs run lag [") and "--max-lag-seconds" in shown
    assert run(["jobs", "run", "consume", "--help"]) == 0
    assert capfd.readouterr().out.startswith("usage: kafkalake jobs run consume [")


@pytest.mark.parametrize(
    ("text", "rule", "then"),
    [
        ("*/5 * * * * lag --max-lag 5", Rule("*/5 * * * *", "lag", ("--max-lag", "5")), "11:00:00"),
        ("@hourly retention", Rule("@hourly", "retention", ()), "11:00:00"),
        ("* * * * * */10 lag", Rule("* * * * * */10", "lag", ()), "10:58:40"),
        ("59 10 * * * consume --topic 'a b'", Rule("59 10 * * *", "consume", ("--topic", "a b")), "10:59:00"),
    ],
)
def test_a_rule_says_when_and_what(text: str, rule: Rule, then: str) -> None:
    assert parse_rule(text, JOBS) == rule
    assert rule.next_after(NOW).strftime("%H:%M:%S") == then


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("*/5 * * * lag", "is not five cron fields"),
        ("61 * * * * lag", "'61 \\* \\* \\* \\*' is no cron rule"),
        ("@hurly lag", "'@hurly' is no cron rule"),
        ("0 0 30 2 * lag", "'0 0 30 2 \\*' is no cron rule: failed to find next date"),
        ("* * * * * lga", "no job 'lga'; did you mean 'lag'"),
        ("@hourly", "is not five cron fields"),
        ("* * * * * lag 'x", "No closing quotation"),
        ("", "is not five cron fields"),
    ],
)
def test_a_rule_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        parse_rule(text, JOBS)


@pytest.mark.process
@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("@hourly lag --max-lga 5", "unknown argument '--max-lga'; did you mean --max-lag?"),
        ("@hourly lag --max-lag five", "argument --max-lag: invalid int value: 'five'"),
        ("@hourly lag --growing 0", "--growing 0: it takes at least one run"),
        ("@hourly maintenance --keep-days -1", "--keep-days -1: it cannot be negative"),
        ("@hourly retention --topic a --pattern b", "argument --pattern: not allowed with argument --topic"),
        ("@hourly compaction --help", "--help runs no job"),
        ("@hourly consume --topic clicks", "the following arguments are required: --output"),
        ("@hourly consume --topic clicks --output t --stream", "--stream goes with --group"),
        (
            "@hourly consume --topic clicks --output t --option maxOffsetsPerTriger=1",
            "did you mean maxOffsetsPerTrigger?",
        ),
    ],
)
def test_a_rule_whose_job_would_refuse_its_arguments_is_refused_at_once(
    lake: Path, tmp_path: Path, rule: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.cron"
    file.write_text(f"@daily retention\n{rule}\n")
    command = [sys.executable, "-m", "kafkalake", "jobs", "schedule", "--lake", str(lake), "--file", str(file)]
    assert subprocess.run(command, timeout=DEADLINE_S).returncode == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith(f"error: rule '{rule.replace('@hourly ', '@hourly  ')}': ")
    assert said.endswith(message)


def test_a_file_has_a_rule_a_line() -> None:
    rules = parse_file("# jobs\n\n@daily retention   # at night\n*/5 * * * * lag --group etl#1\n", JOBS)
    assert [(rule.job, rule.arguments) for rule in rules] == [("retention", ()), ("lag", ("--group", "etl#1"))]
    assert all(parse_rule(text, {"lag", "retention", "compaction", "maintenance"}) for text in DEFAULT_RULES)


@pytest.mark.process
def test_a_job_that_still_runs_is_not_started_again() -> None:
    schedule = Schedule(
        [Rule("* * * * * *", "lag", ())], lambda _: [sys.executable, "-c", "import sys; sys.stdin.read()"]
    )
    schedule._due = [NOW]
    try:
        schedule.tick(NOW)
        (first,) = schedule._running.values()
        schedule._due = [NOW]
        schedule.tick(NOW)
        assert [running.process.pid for running in schedule._running.values()] == [first.process.pid]
        first.process.kill()
        first.process.wait()
        schedule._due = [NOW]
        schedule.tick(NOW)
        (second,) = schedule._running.values()
        assert second.process.pid != first.process.pid
    finally:
        schedule._end()


@pytest.mark.process
def test_a_clock_that_is_set_back_by_years_stops_no_job(caplog: pytest.LogCaptureFixture) -> None:
    started: list[Rule] = []

    def command(rule: Rule) -> list[str]:
        started.append(rule)
        return [sys.executable, "-c", ""]

    rule = Rule("*/5 * * * *", "lag", ())
    schedule = Schedule([rule], command)
    ahead = NOW.replace(year=NOW.year + 8)
    schedule._due = [rule.next_after(ahead)]
    try:
        schedule.tick(ahead)
        schedule.tick(NOW)
        assert started == []
        schedule.tick(NOW + timedelta(minutes=5))
        assert started == [rule]
        assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [
            f"clock set back, next runs are reckoned anew from={ahead.isoformat()} to={NOW.isoformat()}"
        ]
    finally:
        schedule._end()


@pytest.mark.process
def test_a_clock_that_is_set_back_a_little_runs_no_job_twice() -> None:
    """As cron has it: a step of less than three hours, at once or in parts."""
    rule = Rule("*/5 * * * *", "lag", ())
    schedule = Schedule([rule], lambda _: [sys.executable, "-c", ""])
    schedule._due = [NOW]
    try:
        schedule.tick(NOW)
        (due,) = schedule._due
        for hours in (1, 2):
            schedule.tick(NOW - timedelta(hours=hours))
            assert schedule._due == [due]
        schedule.tick(NOW - timedelta(hours=4))
        assert schedule._due == [rule.next_after(NOW - timedelta(hours=4))]
    finally:
        schedule._end()


@pytest.mark.process
def test_a_job_that_cannot_be_started_is_tried_at_its_next_time_and_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "python"
    first, second = Rule("* * * * * *", "lag", ()), Rule("* * * * * *", "retention", ())
    schedule = Schedule(
        [first, second],
        lambda rule: [str(program) if rule is first else sys.executable, "-c", "import signal; signal.pause()"],
    )
    schedule._due = [NOW, NOW]
    try:
        schedule.tick(NOW)
        schedule.tick(NOW)
        assert list(schedule._running) == [1]
        assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [
            f"job not started, tried again at its next time job=lag error={program}: No such file or directory"
        ]
        program.symlink_to(sys.executable)
        schedule.tick(NOW + timedelta(seconds=1))
        assert 0 in schedule._running
    finally:
        schedule._end()


@pytest.mark.process
def test_one_process_runs_jobs_by_rules_until_it_is_told_to_stop(lake: Path) -> None:
    command = [sys.executable, "-m", "kafkalake", "jobs", "schedule", "--lake", str(lake)]
    rules = ["--rule", "* * * * * * retention", "--rule", "* * * * * */2 lag"]
    with subprocess.Popen([*command, *rules], stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + DEADLINE_S
        table = paths.table_path(lake, paths.JOB_RUNS)
        done: set[str] = set()
        while done != {"retention", "lag"}:
            assert time.monotonic() < end, "both jobs have run"
            assert process.poll() is None
            if (table / "_delta_log" / f"{1:020}.json").exists():
                rows = JobTable(lake, paths.JOB_RUNS).rows().to_pylist()
                done = {row["job"] for row in rows if row["action"] == "run" and row["outcome"] == "done"}
            time.sleep(0.1)
        assert process.stderr is not None
        assert any("job ended job=retention code=0" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
