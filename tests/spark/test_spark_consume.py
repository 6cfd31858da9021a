"""Consumption as a group, and merging by offset: every record once, wherever a run dies and however often it is run."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from group_offsets import committed, described, produce
from kafka_reference import PROJECT, Kafkalake, create_topic
from long_runs import first_of
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from waiting import wait_until
from written_lake import WrittenLake

from kafkalake.errors import ConfigurationError, LakeError, OffsetOutOfRangeError
from kafkalake.jobs import frame
from kafkalake.jobs.consume import command as consume_command
from kafkalake.jobs.consume.command import main
from kafkalake.jobs.consume.consumption import Consumption
from kafkalake.jobs.consume.output import DeltaOutput, ParquetOutput
from kafkalake.jobs.lock import parallel_job_lock
from kafkalake.metadata import paths
from kafkalake.metadata.tables.job_tables import JobTable
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.read_options import ReadOptions
from kafkalake.spark.exactly_once import merge_into, merge_records

GROUP = "etl"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    """`clicks` with 2 partitions of 10 and 5 records."""
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", 2)
    append(lake, 0, 10)
    append(lake, 1, 5)
    yield lake
    lake.close()


def append(lake: WrittenLake, partition: int, count: int) -> None:
    lake.append_values("clicks", partition, [b'{"clicked": %d}' % number for number in range(count)])


class Died(Exception):
    """Instead of a SIGKILL, where the process has to live on."""


def consume(
    spark: SparkSession, lake: WrittenLake, output: Path, output_format: str = "delta", **more: int
) -> list[int]:
    """Records of each batch of a run."""
    options = {"lake": str(lake.path), "subscribe": "clicks", "group": GROUP, "valueSchema": "clicked int"}
    columns = ["partition", "offset", "clicked"]
    with Consumption(spark, str(output), options, output_format=output_format, columns=columns, **more) as consumption:
        return [batch.records for batch in consumption.batches()]


def written(spark: SparkSession, output: Path, output_format: str = "delta") -> list[tuple[int, int]]:
    rows = spark.read.format(output_format).load(str(output)).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def whole(first: int, second: int) -> list[tuple[int, int]]:
    return [*((0, offset) for offset in range(first)), *((1, offset) for offset in range(second))]


@pytest.mark.parametrize("output_format", ["delta", "parquet"])
def test_a_run_that_dies_anywhere_repeats_nothing(
    spark: SparkSession,
    lake: WrittenLake,
    tmp_path: Path,
    output_format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "out"

    def die_at(point: str) -> None:
        def at(name: str) -> None:
            if name == point:
                raise Died(point)

        monkeypatch.setattr(frame, "on_fault_point", at)

    for point, held in (("planned", None), ("written", whole(10, 5))):
        die_at(point)
        with pytest.raises(Died):
            consume(spark, lake, output, output_format)
        assert held is None or written(spark, output, output_format) == held
    die_at("nowhere")
    assert consume(spark, lake, output, output_format) == []
    append(lake, 1, 3)
    assert consume(spark, lake, output, output_format) == [3]
    assert written(spark, output, output_format) == whole(10, 8)
    table = spark.read.format(output_format).load(str(output))
    assert table.agg({"clicked": "sum"}).first()[0] == 45 + 10 + 3


def test_a_batch_has_at_most_so_many_offsets_and_a_new_partition_joins(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert sum(consume(spark, lake, output, "parquet", offsets_max=6)) == 15
    lake.add_partition("clicks")
    append(lake, 2, 2)
    assert consume(spark, lake, output, "parquet") == [2]
    assert written(spark, output, "parquet") == [*whole(10, 5), (2, 0), (2, 1)]


def test_a_run_moves_its_group_only_where_it_reads(
    spark: SparkSession, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    broker = kafkalake_broker()
    for topic in ("clicks", "views"):
        create_topic(broker, topic)
        produce(broker, topic, 0, [b"{}"] * 3)

    def run(topic: str) -> list[int]:
        options = {"lake": str(broker.lake), "subscribe": topic, "group": GROUP}
        with Consumption(spark, str(tmp_path / topic), options, output_format="parquet") as consumption:
            return [batch.records for batch in consumption.batches()]

    assert run("clicks") == run("views") == [3]
    produce(broker, "clicks", 0, [b"{}"] * 2)
    assert run("clicks") == [2]
    assert run("views") == []
    assert described(broker, GROUP) == {("clicks", 0): (5, 0), ("views", 0): (3, 0)}
    produce(broker, "views", 0, [b"{}"])
    assert run("views") == [1]
    assert described(broker, GROUP) == {("clicks", 0): (5, 0), ("views", 0): (4, 0)}


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"\xff", b'{"group": "etl", "offsets": {"clicks": 5}}'])
def test_batches_that_do_not_say_where_they_end_are_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None
) -> None:
    batch = tmp_path / "batch=00000000"
    batch.mkdir()
    if content is not None:
        (batch / "_offsets.json").write_bytes(content)
    for _ in range(2):
        with (
            contextlib.closing(ParquetOutput(str(tmp_path), GROUP)) as output,
            pytest.raises(LakeError, match=r"it is not known where the output ends: .*_offsets\.json"),
        ):
            output.offsets({})
    batch.rename(tmp_path / "batch=00000000.bak")
    with pytest.raises(LakeError, match=r"holds batch=00000000\.bak, which no run of consume wrote"):
        ParquetOutput(str(tmp_path), GROUP)


def test_an_output_is_one_writers_at_a_time(spark: SparkSession, lake: WrittenLake, tmp_path: Path) -> None:
    options = {"lake": str(lake.path), "subscribe": "clicks", "group": GROUP}
    first = Consumption(spark, str(tmp_path / "delta"), options)
    planned = first.plan()
    assert consume(spark, lake, tmp_path / "delta") == [15]
    with pytest.raises(LakeError, match="another run of group etl is writing"):
        first._write(planned)
    assert written(spark, tmp_path / "delta") == whole(10, 5)
    with (
        Consumption(spark, str(tmp_path / "parquet"), options, output_format="parquet"),
        pytest.raises(LakeError, match="another run is writing to"),
    ):
        consume(spark, lake, tmp_path / "parquet", "parquet")


def test_an_output_elsewhere_than_in_this_machines_file_systems_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LakeError, match="s3a://bucket/out cannot be the output: Parquet files go to a directory"):
        ParquetOutput("s3a://bucket/out", GROUP)
    ParquetOutput(f"file://{tmp_path}/out", GROUP).close()
    assert os.listdir(tmp_path) == ["out"]
    with pytest.raises(LakeError, match=r"^hdfs://nowhere/out cannot be read: "):
        DeltaOutput(cast(SparkSession, None), "hdfs://nowhere/out", GROUP).offsets({})


def test_a_column_that_directories_of_batches_would_hide_is_refused(tmp_path: Path) -> None:
    output = ParquetOutput(str(tmp_path / "out"), GROUP)
    frame = cast(DataFrame, SimpleNamespace(columns=["offset", "Batch"]))
    with pytest.raises(LakeError, match=r"readers take the column Batch of Parquet files for the number of their dir"):
        output.write(frame, {})
    output.close()


def test_the_command_consumes_as_a_group(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "out")
    arguments = ["--lake", str(lake.path), "--topic", "clicks", "--output", output, "--group", GROUP]
    with parallel_job_lock(lake.path, "consume", "the killed run", 1_000):
        pass  # as after a SIGKILL: nothing has recorded its end
    assert main([*arguments, "--dry-run"]) == 0
    assert "clicks          0     0  10       10" in capsys.readouterr().out
    assert not Path(output).exists()
    assert main(arguments) == 0
    assert f"15 records written to {output} as group etl, in 1 batch\n" in capsys.readouterr().out
    assert main(arguments) == 0
    assert "0 records written" in capsys.readouterr().out
    runs = spark.read.format("delta").load(str(lake.path / "metadata" / "job_runs"))
    assert runs.filter("job = 'consume' AND action = 'copy' AND outcome = 'done'").count() == 1
    (killed,) = runs.filter("outcome = 'killed'").collect()
    assert (killed.run_id, killed.job, killed.action) == ("the killed run", "consume", "run")
    assert not list(paths.job_lock_path(lake.path, "consume").parent.glob("*"))
    for wrong, message in (
        (["--mode", "overwrite"], "consume: a group appends"),
        (["--ending-offsets", "latest"], "consume: a group reads to the end"),
        (["--format", "parquet", "--output", "/dev/null/out"], "consume: /dev/null/out: Not a directory"),
        (["--topic", "clikcs"], "consume: topic 'clikcs' is not in"),
    ):
        assert main([*arguments, *wrong]) == 1
        assert message in capsys.readouterr().err
    assert main([*arguments[:-2], "--stream"]) == 1
    assert "consume: --stream goes with --group" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("output_format", first_of(["parquet", "delta"], 1))
def test_a_run_ends_after_its_batch_at_the_first_signal_and_at_once_at_the_second(
    spark: SparkSession,
    lake: WrittenLake,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    output_format: str,
) -> None:
    output = tmp_path / "out"
    command = ["--lake", str(lake.path), "--topic", "clicks", "--output", str(output), "--group", GROUP]
    command += ["--format", output_format, "--max-offsets", "4", "--columns", "partition,offset"]
    sent_again: list[int] = []
    outside = signal.signal(signal.SIGTERM, lambda number, frame: sent_again.append(number))
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    signals = 1

    def send(point: str) -> None:
        for _ in range(signals if point == "planned" else 0):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(frame, "on_fault_point", send)
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "4 records written to" in shown.out
    assert shown.err.count("ends after this batch") == 1
    assert len(written(spark, output, output_format)) == 4
    signals = 2
    for _ in range(2):
        assert main(command) == 128 + number
        assert capsys.readouterr().err.splitlines()[-1] == f"consume: ended by {number.name}"
        assert len(written(spark, output, output_format)) == 4
    assert sent_again == [signal.SIGTERM] * 2 * (number == signal.SIGTERM), "outside of a test it ends the process"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    signal.signal(signal.SIGTERM, outside)
    signals = 0
    assert main(command) == 0
    assert written(spark, output, output_format) == whole(10, 5)
    runs = [row for row in JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist() if row["action"] == "run"]
    assert sorted((row["outcome"], row["why"]) for row in runs) == [
        *[("done", "")] * 2,
        *[("stopped", f"ended by {number.name}")] * 2,
    ]


def test_an_idle_stream_ends_with_its_spark(
    spark: SparkSession,
    lake: WrittenLake,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing in it asks Spark before the next records come. A signal that ends Spark in the middle of a batch, too, ends both."""

    class Gone:
        def sc(self) -> object:
            raise Py4JNetworkError("Answer from Java side is empty")

    def end(point: str) -> None:
        if point == ends_at:
            monkeypatch.setattr(spark.sparkContext, "_jsc", Gone())
            if point == "planned":
                os.kill(os.getpid(), signal.SIGINT)
                Gone().sc()

    command = ["--lake", str(lake.path), "--topic", "clicks", "--output", str(tmp_path / "out"), "--group", GROUP]
    command += ["--stream", "--interval-seconds", "3600"]
    ends_at = "planned"
    monkeypatch.setattr(frame, "on_fault_point", end)
    assert main(command) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "consume: ended by SIGINT"
    monkeypatch.undo()
    ends_at = "told"
    monkeypatch.setattr(frame, "on_fault_point", end)
    assert main(command) == 1
    monkeypatch.undo()
    shown = capsys.readouterr()
    assert "15 records of 2 partitions written" in shown.out
    assert shown.err.splitlines()[-1] == "consume: Spark has ended; the next run goes on where this one was"
    runs = [row for row in JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist() if row["action"] == "run"]
    assert sorted((row["outcome"], row["why"], row["after"]) for row in runs) == [
        ("failed", "", [("error", "Spark has ended; the next run goes on where this one was")]),
        ("stopped", "ended by SIGINT", []),
    ]


def test_what_cannot_be_printed_ends_no_copy(
    spark: SparkSession,
    lake: WrittenLake,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that has enough of it (`| head -1`) is no failure; a full disk is one, told when all is done."""
    copy = ["--lake", str(lake.path), "--topic", "clicks", "--output"]
    group = [str(tmp_path / "group"), "--group", GROUP, "--max-offsets", "8"]
    full = "its results could not be printed: No space left on device"
    for arguments, status, said in (
        ([*group, "--dry-run"], 0, None),
        (group, 1, full),
        ([str(tmp_path / "copied")], 1, full),
    ):
        reader, writer = os.pipe()
        os.close(reader)
        with open("/dev/full" if said else writer, "w") as stdout, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stdout)
            assert main([*copy, *arguments]) == status
        err = capfd.readouterr().err.splitlines()
        assert not said or err[-1] == f"consume: {said}"
    assert written(spark, tmp_path / "group") == whole(10, 5)


def test_a_copy_that_is_interrupted_ends_without_a_traceback(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["--lake", str(lake.path), "--topic", "clicks", "--output", str(tmp_path / "out")]

    def interrupted(options: ReadOptions) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return begin_read(options)

    with monkeypatch.context() as patched:
        patched.setattr(consume_command, "begin_read", interrupted)
        assert main(command) == 130
    assert main(command) == 0
    assert written(spark, tmp_path / "out") == whole(10, 5)


@pytest.mark.parametrize("output_format", ["delta", "parquet"])
def test_a_topic_that_was_created_again_is_an_error_or_read_from_its_beginning(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path, output_format: str
) -> None:
    output = tmp_path / "output"
    options = {"lake": str(lake.path), "subscribe": "clicks", "group": GROUP}

    def batches(**more: str) -> list[int]:
        columns = ["partition", "offset"]
        with Consumption(
            spark, str(output), {**options, **more}, output_format=output_format, columns=columns
        ) as consumption:
            return [batch.records for batch in consumption.batches()]

    assert batches() == [15]
    lake.delete_topic("clicks")
    lake.create("clicks", 1)
    append(lake, 0, 12)  # more than its predecessor had here, and less than it had in all
    with pytest.raises(OffsetOutOfRangeError, match="topic clicks was deleted and created again since it was read"):
        batches()
    assert batches(failOnDataLoss="false") == [12]
    assert written(spark, output, output_format) == sorted([*whole(10, 5), *whole(12, 0)])
    append(lake, 0, 2)
    assert batches() == [2]


def test_equal_sums_are_no_equal_offsets(spark: SparkSession, tmp_path: Path) -> None:
    output = tmp_path / "output"
    # As 0.1 wrote it, and Delta has cleaned its log since.
    transaction = {"txnAppId": f"kafkalake-consume-{GROUP}", "txnVersion": "15"}
    spark.range(1).write.format("delta").options(**transaction).save(str(output))
    delta = DeltaOutput(spark, str(output), GROUP)
    with pytest.raises(LakeError, match="its log no longer holds up to which offsets"):
        delta.offsets({("clicks", 0): 5, ("clicks", 1): 10})
    assert delta.offsets({("clicks", 0): 15}) == {"clicks": {"0": 15}}
    with pytest.raises(LakeError, match="its log no longer holds up to which offsets"):
        delta.offsets({("clicks", 0): 14})


@pytest.mark.long
def test_merged_records_of_two_topics_of_one_name_are_all_there(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path
) -> None:
    output = tmp_path / "merged"
    reader = spark.read.format("kafkalake").option("lake", str(lake.path))
    merge_records(reader.load("clicks").filter("partition = 0"), str(output))  # by one that asks for no ids
    reader = reader.option("includeTopicId", True)
    for _ in range(2):
        merge_records(reader.load("clicks"), str(output))
        assert written(spark, output) == whole(10, 5)
    lake.delete_topic("clicks")
    lake.create("clicks", 2)
    append(lake, 1, 6)
    for _ in range(2):
        merge_records(reader.load("clicks").filter("partition = 1"), str(output))
        assert written(spark, output) == sorted([*whole(10, 5), *whole(0, 6)])


def test_merged_records_are_there_once_however_often_a_batch_is_repeated(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path
) -> None:
    output = tmp_path / "merged"
    frame = spark.read.format("kafkalake").option("lake", str(lake.path)).load("clicks")
    merge_records(frame.filter("offset < 4"), str(output))
    merge = merge_into(str(output))
    merge(frame.union(frame), 0)
    merge(frame.filter("offset < 0"), 1)
    assert written(spark, output) == whole(10, 5)
    with pytest.raises(ConfigurationError, match="the key of a record is topic, partition, offset"):
        merge_records(frame.select("offset"), str(output))


@pytest.mark.long
def test_merged_batches_come_in_any_order_overlapping_and_from_two_queries_at_once(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path
) -> None:
    output = tmp_path / "merged"
    frame = spark.read.format("kafkalake").option("lake", str(lake.path)).load("clicks")
    # As a replay from an older checkpoint beside a query that went on: later offsets first, then ranges that overlap them.
    for where in ("offset >= 6", "offset BETWEEN 4 AND 7", "partition = 0 AND offset < 2"):
        merge_records(frame.filter(where), str(output))
    merge = merge_into(str(output))

    def whole_topic(batch_id: int) -> None:
        while True:
            try:
                return merge(frame, batch_id)
            except PySparkException as error:
                if "CONCURRENT" not in (error.getCondition() or str(error)):  # what Delta says to the slower one
                    raise

    with concurrent.futures.ThreadPoolExecutor(2) as queries:
        list(queries.map(whole_topic, range(2)))
    assert written(spark, output) == whole(10, 5)
    values = spark.read.format("delta").load(str(output)).selectExpr("CAST(value AS STRING)").collect()
    assert sorted(row[0] for row in values) == sorted(f'{{"clicked": {number}}}' for number in [*range(10), *range(5)])


@pytest.mark.long
def test_the_example_of_merging_is_run_again_without_its_checkpoint(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(PROJECT / "jobs" / "merge_topic.py"))
    output, checkpoint = tmp_path / "merged", tmp_path / "checkpoint"
    arguments = [str(lake.path), "clicks", str(output), str(checkpoint)]
    assert example["reported"](*arguments) == 0
    shutil.rmtree(checkpoint)
    append(lake, 1, 2)
    assert example["reported"](*arguments) == 0
    assert written(spark, output) == whole(10, 7)
    shutil.rmtree(checkpoint)
    assert example["reported"](str(lake.path), "clikcs", *arguments[2:]) == 1
    assert capsys.readouterr().err.startswith(f"merge_topic: topic 'clikcs' is not in {lake.path}; its topics: clicks")


KILLED = """
    import os, runpy, signal, sys
    from pathlib import Path
    import local_spark
    from kafkalake.jobs import frame
    from kafkalake.spark.exactly_once import merge_into

    lake, output, checkpoint, scratch, *more = sys.argv[1:]
    of = local_spark.settings(Path(scratch), driver_memory="1g") | local_spark.FEW_ROWS
    spark = local_spark.session(master="local[2]", name="killed", of=of)

    def die(*point):
        os.kill(os.getpid(), signal.SIGKILL)

    if checkpoint:
        def merge_and_die(frame, batch_id):
            merge_into(output)(frame, batch_id)
            if batch_id == 1:
                die()

        reader = spark.readStream.format("kafkalake").option("lake", lake).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", "6").load("clicks")
        writer = frame.writeStream.foreachBatch(merge_and_die).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        frame.on_fault_point = lambda name: die() if name == "written" else None
        sys.argv[1:] = more
        runpy.run_path("jobs/consume.py", run_name="__main__")
"""


def killed(directory: Path, lake: str, output: str, checkpoint: str, *, arguments: Sequence[str] = ()) -> None:
    """A driver that kills itself with SIGKILL; what it started ends with it, at the latest here."""
    path = f"{PROJECT}:{PROJECT / 'scripts'}:{PROJECT / 'tests'}"
    said = directory / "killed.log"
    with said.open("wb") as log:
        driver = subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(KILLED),
                lake,
                output,
                checkpoint,
                str(directory / "spark"),
                *arguments,
            ],
            cwd=PROJECT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = driver.wait(400)  # half a minute on a quiet machine
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
    assert status == -signal.SIGKILL, said.read_text()[-4000:]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_stream_whose_driver_was_killed_goes_on_from_its_checkpoint(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path
) -> None:
    output, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    killed(tmp_path, str(lake.path), str(output), str(checkpoint))
    assert len(written(spark, output)) == 12
    append(lake, 0, 1)
    batches: list[int] = []

    def merge(frame: object, batch_id: int) -> None:
        batches.append(batch_id)
        merge_into(str(output))(frame, batch_id)  # type: ignore[arg-type]

    reader = spark.readStream.format("kafkalake").option("lake", str(lake.path)).option("startingOffsets", "earliest")
    writer = reader.load("clicks").writeStream.foreachBatch(merge).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(90)
    assert batches == [1, 2]  # the batch that was written and not noted comes again
    assert written(spark, output) == whole(11, 5)


def test_an_output_that_only_spark_would_find_again_is_refused_before_anything_is_written(
    spark: SparkSession, lake: WrittenLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--lake", str(lake.path), "--topic", "clicks", "--group", GROUP]
    for name in ("per%20cent", "two\nlines"):
        assert main([*asked, "--output", str(tmp_path / name)]) == 1
        assert "cannot be the output: Delta's readers take" in capsys.readouterr().err
        assert not (tmp_path / name).exists()
    damaged = tmp_path / "damaged" / "_delta_log"
    damaged.mkdir(parents=True)
    (damaged / f"{0:020d}.json").write_text("{")
    assert main([*asked, "--output", str(damaged.parent)]) == 1
    (said,) = capsys.readouterr().err.splitlines()[-1:]
    assert said.startswith(f"consume: {damaged.parent} cannot be read: ")
    assert main([*asked, "--output", str(tmp_path / "out"), "--interval-seconds", "-1"]) == 1
    assert "--interval-seconds -1: it cannot be negative" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("output_format", first_of(["delta", "parquet"], 1))
def test_a_consuming_stream_killed_between_output_and_group_repeats_and_loses_nothing(
    spark: SparkSession, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path, output_format: str
) -> None:
    broker = kafkalake_broker()
    create_topic(broker, "clicks", partitions=2)
    output = tmp_path / "out"
    stream = ["--lake", str(broker.lake), "--topic", "clicks", "--output", str(output), "--group", GROUP, "--stream"]
    stream += ["--format", output_format, "--max-offsets", "10", "--interval-seconds", "0.1"]
    stream += ["--value-schema", "user STRING, ms BIGINT", "--columns", "partition,offset,user,ms"]

    def click(partition: int, first: int, count: int) -> None:
        values = [b'{"user": "u%d", "ms": %d}' % (number, number * 10) for number in range(first, first + count)]
        produce(broker, "clicks", partition, values)

    def told() -> list[int]:
        return committed(broker, GROUP, "clicks", 2)

    click(0, 0, 10)
    click(1, 0, 5)
    killed(tmp_path, str(broker.lake), str(output), "", arguments=stream)
    assert max(told()) < 0
    assert len(written(spark, output, output_format)) == 10

    click(0, 10, 3)
    failed: list[BaseException] = []

    def click_and_end() -> None:
        """What comes while it runs is copied too; then SIGTERM ends it in order."""
        try:
            wait_until(lambda: told() == [13, 5])
            click(1, 5, 2)
            wait_until(lambda: told() == [13, 7])
        except BaseException as error:
            failed.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=click_and_end)
    watching.start()
    assert main(stream) == 0
    watching.join()
    assert not failed
    assert described(broker, GROUP) == {("clicks", 0): (13, 0), ("clicks", 1): (7, 0)}
    rows = spark.read.format(output_format).load(str(output)).select("partition", "offset", "user", "ms")
    assert dict(rows.dtypes)["ms"] == "bigint"
    assert sorted(tuple(row) for row in rows.collect()) == [
        (partition, offset, f"u{offset}", offset * 10) for partition, offset in whole(13, 7)
    ]
