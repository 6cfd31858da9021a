"""The frame of jobs, with a job that does next to nothing: arguments, dry run, rows in `job_runs`, failures, the lock."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from kafka_reference import PROJECT
from manual_clock import ManualClock
from written_lake import WrittenLake

from kafkalake.errors import ConfigurationError, KafkaStorageError, LakeError
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.jobs.frame import Done, Job, Run, Step, main, run_steps
from kafkalake.jobs.lock import parallel_job_lock
from kafkalake.jobs.record import FLUSH_INTERVAL_MS, JobRecord
from kafkalake.metadata import paths
from kafkalake.metadata.tables.job_tables import LAG_SCHEMA, JobTable, exists
from kafkalake.metadata.tables.schemas import TIMESTAMP


class Touch(Job):
    """Touches each topic; fails for those of `--break`."""

    name = "touch"
    summary = "Touch topics."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--break", dest="broken", default="")

    def plan(self, run: Run) -> Sequence[Step]:
        return [Step("touch", topic.topic, 0, "it was asked for", {"touched": False}) for topic in run.topics]

    def perform(self, run: Run, step: Step) -> Done:
        if step.topic == run.arguments.broken:
            raise KafkaStorageError("the disk said no")
        return Done({"touched": True}, "topics", 3)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    for topic in ("clicks", "orders", "views"):
        lake.create(topic)
    yield lake
    lake.close()


def rows(lake: WrittenLake) -> list[dict[str, object]]:
    return sorted(
        JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist(),
        key=lambda row: (row["action"] == "run", row["ended_at"]),
    )


@pytest.mark.exhaustive
def test_a_dry_run_shows_what_and_why_and_leaves_nothing(lake: WrittenLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Touch(), ["--lake", str(lake.path), "--pattern", "c.*|o.*", "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["subject", "would", "do", "why", "now"]
    assert [line.split()[0] for line in shown[1:3]] == ["clicks-0", "orders-0"]
    assert "it was asked for" in shown[1]
    assert not exists(lake.path, paths.JOB_RUNS)


@pytest.mark.exhaustive
def test_every_step_and_the_run_become_rows(lake: WrittenLake) -> None:
    assert main(Touch(), ["--lake", str(lake.path), "--topic", "orders,clicks"]) == 0
    *steps, run = rows(lake)
    assert [(row["topic"], row["outcome"], row["why"]) for row in steps] == [
        ("orders", "done", "it was asked for"),
        ("clicks", "done", "it was asked for"),
    ]
    assert steps[0]["before"] == [("touched", "False")]
    assert steps[0]["after"] == [("touched", "True")]
    assert (steps[0]["changed_table"], steps[0]["changed_version"]) == ("topics", 3)
    assert (run["action"], run["outcome"], dict(run["after"])["steps"]) == ("run", "done", "2")  # type: ignore[arg-type]
    assert {row["run_id"] for row in steps} == {run["run_id"]}


@pytest.mark.exhaustive
def test_a_step_that_fails_does_not_keep_the_others_from_being_done(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(Touch(), ["--lake", str(lake.path), "--break", "clicks"]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1] == "touch: 1 of 3 steps failed, the first: clicks-0: the disk said no"
    outcomes = {row["topic"]: row["outcome"] for row in rows(lake)}
    assert outcomes == {"clicks": "failed", "orders": "done", "views": "done", None: "failed"}


@pytest.mark.exhaustive
def test_a_step_whose_topic_was_deleted_meanwhile_is_no_failure(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    class Late(Touch):
        def perform(self, run: Run, step: Step) -> Done:
            if step.topic == run.arguments.broken:
                lake.delete_topic(step.topic)
            return super().perform(run, step)

    assert main(Late(), ["--lake", str(lake.path), "--break", "orders"]) == 0
    assert "touch: orders-0: the topic was deleted meanwhile" in capsys.readouterr().err
    assert [row["outcome"] for row in rows(lake)] == ["done", "deleted", "done", "done"]


@pytest.mark.exhaustive
def test_wrong_arguments_are_one_sentence(
    lake: WrittenLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        (
            ["--lake", str(lake.path), "--topic", "clikcs"],
            "touch: topic 'clikcs' is not in the lake; did you mean 'clicks'?",
        ),
        (["--lake", str(lake.path), "--pattern", "x+"], "touch: no topic of the lake matches --pattern 'x+'"),
        (
            ["--lake", str(lake.path), "--topic", " ,"],
            "touch: topic is ' ,', which names none: leave it out for all topics",
        ),
        (["--lake", str(lake.path), "--pattern", "(x"], "touch: --pattern '(x' is no regular expression"),
        (["--lake", str(tmp_path / "nowhere")], "touch: no lake at "),
        ([], "touch: no lake: name it with --lake"),
    ]
    for arguments, message in cases:
        assert main(Touch(), arguments) == 1
        assert capsys.readouterr().err.strip().splitlines()[-1].startswith(message)


@pytest.mark.process
def test_a_second_run_is_told_who_runs_and_one_after_a_kill_says_so_in_job_runs(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    holding = "import sys; from pathlib import Path; from kafkalake.jobs.lock import exclusive_job_lock\n"
    holding += "with exclusive_job_lock(Path(sys.argv[1]), 'touch', 'the killed run', 1_000):\n"
    holding += " print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(lake.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert main(Touch(), ["--lake", str(lake.path)]) == 1
        assert f"already running on {lake.path}: process {holder.pid} of " in capsys.readouterr().err
        assert not exists(lake.path, paths.JOB_RUNS)
        holder.kill()
        holder.wait()
    for _ in range(2):
        assert main(Touch(), ["--lake", str(lake.path), "--topic", "views"]) == 0
    *_, killed, first, second = sorted(rows(lake), key=lambda row: (row["action"] == "run", row["outcome"] != "killed"))
    assert (killed["run_id"], killed["outcome"]) == ("the killed run", "killed")
    assert f"process {holder.pid} of " in str(killed["why"])
    assert killed["started_at"] == datetime.fromtimestamp(1, UTC)
    assert dict(killed["after"])["found_by"] in (first["run_id"], second["run_id"])  # type: ignore[call-overload]
    assert first["outcome"] == second["outcome"] == "done"  # said once


@pytest.mark.process
def test_runs_side_by_side_are_found_once_they_were_killed(lake: WrittenLake) -> None:
    holding = "import sys; from pathlib import Path; from kafkalake.jobs.lock import parallel_job_lock\n"
    holding += "with parallel_job_lock(Path(sys.argv[1]), 'touch', 'run 1', 1_000):\n"
    holding += " print('held', flush=True); sys.stdin.read()"

    def unrecorded(run_id: str, *, is_recorded: bool) -> list[str]:
        with parallel_job_lock(lake.path, "touch", run_id, 2_000) as lock:
            found = [holder.run_id for holder in lock.unrecorded]
            with parallel_job_lock(lake.path, "touch", "beside it", 3_000) as other:
                assert not other.unrecorded, "what one records is not recorded by another"
                other.is_recorded()
            if is_recorded:
                lock.earlier_are_recorded()
            lock.is_recorded()
        return found

    with subprocess.Popen(
        [sys.executable, "-c", holding, str(lake.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert unrecorded("run 2", is_recorded=True) == []
        holder.kill()
        holder.wait()
    assert unrecorded("run 3", is_recorded=False) == ["run 1"]
    assert unrecorded("run 4", is_recorded=True) == ["run 1"]
    assert unrecorded("run 5", is_recorded=True) == []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        with pytest.raises(LakeError, match=r"cannot be written: File too large"):
            unrecorded("run 6", is_recorded=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(paths.job_lock_path(lake.path, "touch").parent.glob("*"))


SIGNALLED = """
import os, signal, sys, threading
from kafkalake.jobs import record as job_record
from kafkalake.metadata.tables.job_tables import JobTable
from test_job_frame import Touch, main

to_send, point, lake = [int(each) for each in sys.argv[1].split(",")], sys.argv[2], sys.argv[3]

def send():
    if to_send:
        os.kill(os.getpid(), to_send.pop(0))

def send_at_once():
    numbers, to_send[:] = list(to_send), []
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for each in numbers:
        signal.pthread_kill(threading.get_ident(), each)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

class Signalled(Touch):
    def perform(self, run, step):
        if step.topic == "views" and point == "perform":
            send()
        if step.topic == "views" and point == "perform, at once":
            send_at_once()
        return super().perform(run, step)

def append(self, rows, append=JobTable.append):
    ends = any(row["action"] == "run" and row["outcome"] != "killed" for row in rows.to_pylist())
    while ends and point == "perform" and to_send:
        send()
    version = append(self, rows)
    if ends and point == "after its end is recorded":
        send()
    return version

JobTable.append = append
job_record.FLUSH_INTERVAL_MS = 0
sys.exit(main(Signalled(), ["--lake", lake]))
"""


def signalled(lake: WrittenLake, *numbers: int, at: str = "perform") -> subprocess.CompletedProcess[str]:
    """A run that sends itself a signal in its last step, and others while its end is recorded, or one once it is."""
    return subprocess.run(
        [sys.executable, "-c", SIGNALLED, ",".join(str(int(each)) for each in numbers), at, str(lake.path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


@pytest.mark.process
def test_a_run_that_is_killed_has_left_the_rows_of_its_steps(lake: WrittenLake) -> None:
    """Those of the last seconds may be missing; here none are, for each is written at once."""
    dead = signalled(lake, signal.SIGKILL)
    assert dead.returncode == -9, dead.stderr
    left = rows(lake)
    assert [(row["topic"], row["outcome"], row["changed_version"]) for row in left] == [
        ("clicks", "done", 3),
        ("orders", "done", 3),
    ]
    assert main(Touch(), ["--lake", str(lake.path)]) == 0
    (killed,) = [row for row in rows(lake) if row["outcome"] == "killed"]
    assert killed["run_id"] == left[0]["run_id"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("first", "second", "at", "status", "why"),
    [
        (
            signal.SIGINT,
            signal.SIGTERM,
            "perform, at once",
            130,
            "ended by SIGINT",
        ),  # Ctrl-C, and the schedule then ends its jobs
        (signal.SIGTERM, signal.SIGTERM, "perform", -signal.SIGTERM, "ended by SIGTERM"),  # systemd, and the schedule
    ],
)
def test_a_run_that_a_signal_ends_records_that_and_has_its_exit_status(
    lake: WrittenLake, first: int, second: int, at: str, status: int, why: str
) -> None:
    ended = signalled(lake, first, second, at=at)
    assert (ended.returncode, ended.stderr.splitlines()) == (status, [f"touch: {why}"])
    *steps, run = rows(lake)
    assert [row["topic"] for row in steps] == ["clicks", "orders"]
    assert (run["outcome"], run["why"]) == ("stopped", why)
    assert main(Touch(), ["--lake", str(lake.path)]) == 0
    assert [row["outcome"] for row in rows(lake) if row["action"] == "run"] == ["stopped", "done"]


@pytest.mark.process
def test_ctrl_c_while_a_script_imports_its_modules_shows_no_traceback() -> None:
    interrupted = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, *others):
        if name == "py4j":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
runpy.run_path("jobs/consume.py", run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-c", interrupted], cwd=PROJECT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.process
def test_a_run_whose_end_could_not_be_recorded_is_found_by_the_next(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ended by a third signal; by a full disk, of the lock file or, twice, of the table; killed behind its record."""
    ended = signalled(lake, signal.SIGTERM, signal.SIGINT, signal.SIGTERM)
    assert ended.returncode == -signal.SIGTERM
    lock = paths.job_lock_path(lake.path, "touch")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (lock.stat().st_size, limits[1]))
    try:
        assert main(Touch(), ["--lake", str(lake.path)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err == f"touch: the lock file {lock} cannot be written: File too large\n"
    with pytest.MonkeyPatch.context() as patched:

        def full(self: JobTable, rows: pa.Table) -> int:
            raise KafkaStorageError("No space left on device")

        patched.setattr(JobTable, "append", full)
        for _ in range(2):
            assert main(Touch(), ["--lake", str(lake.path)]) == 1
    assert not [row for row in rows(lake) if row["action"] == "run"]
    dead = signalled(lake, signal.SIGKILL, at="after its end is recorded")
    assert dead.returncode == -9, dead.stderr
    for _ in range(2):
        assert main(Touch(), ["--lake", str(lake.path)]) == 0
        outcomes = [row["outcome"] for row in rows(lake) if row["action"] == "run"]
        assert outcomes.count("killed") == 3
        assert len(outcomes) == len({row["run_id"] for row in rows(lake)})


@pytest.mark.exhaustive
def test_a_run_that_waits_writes_what_it_has_done(lake: WrittenLake) -> None:
    clock = ManualClock()
    with JobRecord(lake.path, "touch", "the run", clock) as record:
        record.step(Step("touch", "clicks", 0, "it was asked for"), Done(), clock.now_ms())
        record.flush_if_due()
        assert rows(lake) == []
        clock.advance(FLUSH_INTERVAL_MS)
        record.flush_if_due()
        assert [row["action"] for row in rows(lake)] == ["touch"]


@pytest.mark.exhaustive
def test_many_runs_leave_few_files(lake: WrittenLake) -> None:
    for _ in range(40):
        assert main(Touch(), ["--lake", str(lake.path), "--topic", "views"]) == 0
    table = JobTable(lake.path, paths.JOB_RUNS)
    assert table.rows().num_rows == 80
    assert len(table._table.files()) <= 32
    assert table.forget_before(2**41) == 80
    assert table.rows().num_rows == 0


@pytest.mark.exhaustive
def test_rows_are_forgotten_without_reading_all_others(lake: WrittenLake) -> None:
    table, count = JobTable(lake.path, paths.LAG), 50_000
    nulls = {field.name: pa.nulls(count, field.type) for field in LAG_SCHEMA}
    text = pa.repeat("a group with a long name", count)
    for day in range(8):
        times = pa.array([(day * 86_400 + second) * 1_000_000 for second in range(count)], TIMESTAMP)
        table.append(pa.table({**nulls, "group": text, "measured_at": times}, schema=LAG_SCHEMA))
    earlier, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        assert table.forget_before(3 * 86_400_000 + 10_000_000) == 3 * count + 10_000
    finally:
        pa.set_memory_pool(earlier)
    of_a_day = nulls["lag"].nbytes * len(LAG_SCHEMA) + text.nbytes
    assert pool.max_memory() < 3 * of_a_day, "the rows of the one file that has older and newer ones"
    assert table.rows().num_rows == 5 * count - 10_000
    assert table.forget_before(3 * 86_400_000 + 10_000_000) == 0


@pytest.mark.exhaustive
def test_a_caller_gets_the_steps_of_a_run_and_nothing_is_printed(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = run_steps(Touch(), [f"--lake={lake.path}", "--topic=clicks,orders", "--dry-run"])
    assert [(step.subject, done) for step, done in planned] == [("clicks-0", None), ("orders-0", None)]
    assert not exists(lake.path, paths.JOB_RUNS)
    done = run_steps(Touch(), [f"--lake={lake.path}", "--topic=clicks"])
    assert [(step.subject, done and done.after) for step, done in done] == [("clicks-0", {"touched": True})]
    assert capsys.readouterr().out == ""
    with pytest.raises(LakeError, match="1 of 3 steps failed, the first: orders-0: the disk said no"):
        run_steps(Touch(), [f"--lake={lake.path}", "--break=orders"])
    with pytest.raises(ConfigurationError, match=r"unknown argument '--brake'; did you mean --break\?"):
        run_steps(Touch(), [f"--lake={lake.path}", "--brake=orders"])


@pytest.mark.exhaustive
def test_a_run_that_is_cancelled_ends_before_its_next_step(lake: WrittenLake) -> None:
    steps = iter([False, True])
    with pytest.raises(LakeError, match="cancelled after 1 of 3 steps, which stay done"):
        run_steps(Touch(), [f"--lake={lake.path}"], is_cancelled=lambda: next(steps))
    *found, run = rows(lake)
    assert [row["topic"] for row in found] == ["clicks"]
    assert (run["outcome"], dict(run["after"])["error"]) == (  # type: ignore[arg-type]
        "failed",
        "cancelled after 1 of 3 steps, which stay done",
    )


@pytest.mark.exhaustive
def test_a_lake_of_somebody_else_is_refused_in_one_sentence(lake: WrittenLake) -> None:
    lock = paths.job_lock_path(lake.path, "touch")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.mkdir()  # what cannot be opened for writing, by root either
    with pytest.raises(LakeError, match=r"^cannot open the lock file .*touch\.lock: Is a directory$"):
        run_steps(Touch(), [f"--lake={lake.path}"])


def test_an_error_of_a_file_is_a_sentence_without_a_number() -> None:
    error = PermissionError(13, "Permission denied", "/lake/metadata/jobs/retention.lock")
    assert one_line_message(error) == "/lake/metadata/jobs/retention.lock: Permission denied"


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        ("java.io.IOException: No space left on device\n\tat java.base/java.io", "No space left on device"),
        (
            "org.apache.spark.SparkException: Job aborted.\n\tat org.apache\nCaused by: java.io.IOException: No space left\n\tat x",
            "Job aborted: No space left",
        ),
        (
            "org.apache.spark.SparkException: Job aborted: No space left\n\tat x\nCaused by: a.B$C: No space left\n\tat y",
            "Job aborted: No space left",
        ),
    ],
)
def test_an_error_of_java_is_its_message_and_not_the_call(trace: str, sentence: str) -> None:
    assert one_line_message(RuntimeError(f"An error occurred while calling o66.parquet.\n: {trace}")) == sentence


def test_an_error_that_ended_a_stream_is_its_own_sentence() -> None:
    error = RuntimeError(
        "[STREAM_FAILED] Query [id = 1f, runId = 2e] terminated with exception: topic 'clikcs' is not in /lake SQLSTATE: XXKST\n"
        "=== Streaming Query ==="
    )
    assert one_line_message(error) == "topic 'clikcs' is not in /lake"
