"""Sessions of their own: the job as spark-submit runs it, executors in other processes, Spark with nothing set up at all."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pyspark
import pytest
from kafka_reference import PROJECT
from local_spark import FEW_ROWS, settings
from pyspark.sql import SparkSession
from written_lake import WrittenLake

from kafkalake.jobs.consume.command import copy_topics, main
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.uuid_text import encode_uuid

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenLake]:
    """`flights`: 2 partitions, 200 JSON records each, one in ten of them broken."""
    lake = WrittenLake(tmp_path_factory.mktemp("jobs") / "lake")
    lake.create("flights", 2)
    for partition in range(2):
        for start in range(0, 200, 20):
            values = [
                b"broken" if i % 10 == 0 else b'{"carrier": "%s", "delay": %d}' % ((b"UA", b"AA")[i % 2], i)
                for i in range(start, start + 20)
            ]
            lake.append_values("flights", partition, values, timestamp=1_700_000_000_000 + 1000 * start)
        lake.roll("flights", partition)
    lake.publish()
    yield lake
    lake.close()


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A process with this interpreter, in the project's directory."""
    return subprocess.run(
        arguments,
        cwd=PROJECT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


def python(script: str, *arguments: str, **environment: str) -> str:
    """What a script prints. It may import `local_spark`."""
    path = f"{PROJECT / 'scripts'}:{PROJECT / 'tests'}"
    finished = run([sys.executable, "-c", textwrap.dedent(script), *arguments], PYTHONPATH=path, **environment)
    assert finished.returncode == 0, finished.stderr[-4000:]
    return finished.stdout


@pytest.mark.long  # the README's commands have it in the run
def test_spark_submit_copies_a_topic_into_a_delta_table(lake: WrittenLake, tmp_path: Path, spark: SparkSession) -> None:
    output = tmp_path / "flights"
    # The jars that the job's properties name are resolved already; here they are given, so that no registry is asked.
    given = settings(tmp_path) | FEW_ROWS
    properties = tmp_path / "spark.properties"
    properties.write_text("\n".join(f"{name} {value}" for name, value in given.items()))
    submit = Path(sys.executable).parent / "spark-submit"
    finished = run(
        [
            *(str(submit), "--properties-file", str(properties), "--master", "local[2]", "jobs/consume.py"),
            *("--lake", str(lake.path), "--topic", "flights", "--output", str(output)),
            *("--value-schema", "carrier string, delay int", "--columns", "partition,offset,carrier,delay,value"),
            *("--starting-offsets", '{"flights": {"0": 50, "1": -2}}'),
        ]
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    assert "flights-0: offsets 50 to 200, 150 of them" in finished.stdout
    assert f"350 records written to {output}, version 0" in finished.stdout
    ends = {"flights": {"0": 200, "1": 200}, f"flights#{encode_uuid(UUID(lake.topics['flights'].topic_id))}": {}}
    assert f"go on with: --mode append --starting-offsets '{json.dumps(ends)}'" in finished.stdout
    written = spark.read.format("delta").load(str(output))
    assert written.count() == 350
    assert written.columns == ["partition", "offset", "carrier", "delay", "value"]
    assert written.filter("carrier IS NULL AND value = X'62726F6B656E'").count() == 35
    assert written.agg({"delay": "max"}).first()[0] == 199


def test_a_copy_goes_on_where_the_last_one_ended(lake: WrittenLake, tmp_path: Path, spark: SparkSession) -> None:
    lake.create("more")
    output = str(tmp_path / "more")
    options = {"lake": str(lake.path), "subscribe": "more"}
    lake.append_values("more", 0, [b"1", b"2", b"3"])
    first = copy_topics(spark, output, options)
    lake.append_values("more", 0, [b"4", b"5"])
    then = copy_topics(
        spark,
        output,
        {**options, "startingOffsets": json.dumps(first.ending_offsets)},
        mode="append",
        columns=["value"],
    )
    assert (first.records, then.records, then.version) == (3, 2, 1)
    values = spark.read.format("delta").load(output).selectExpr("CAST(value AS STRING) value").collect()
    assert sorted(row.value for row in values) == ["1", "2", "3", "4", "5"]


def test_what_goes_wrong_is_one_sentence_and_an_exit_code(
    lake: WrittenLake, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "out")
    topic = ["--lake", str(lake.path), "--output", output, "--topic"]
    cases = [
        ([*topic, "flihgts"], "consume: topic 'flihgts' is not in "),
        ([*topic, "flights", "--columns", "carier"], "consume: there is no column 'carier' but key, value"),
        ([*topic, "flights", "--starting-offsets", "later"], "consume: startingOffsets is 'later'"),
        (
            [*topic, "flights", "--option", "minPartition=3"],
            "consume: unknown option 'minPartition'; did you mean minPartitions?",
        ),
        (["--lake", str(tmp_path), "--output", output, "--topic", "flights"], "consume: no lake at "),
        ([*topic, "flights", "--value-schema", "a strnig"], "consume: "),
    ]
    for arguments, message in cases:
        assert main(arguments) == 1
        said = capsys.readouterr().err.strip().splitlines()
        assert said[-1].startswith(message)
    assert main([*topic, "flights"]) == 0
    assert main([*topic, "flights"]) == 1
    assert "--mode append adds to it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ["--topic", "clicks", "--outptu", "out"],
            2,
            "consume: error: unknown argument '--outptu'; did you mean --output?",
        ),
        (
            ["--topic", "clicks", "--outp", "out"],
            2,
            "consume: error: unknown argument '--outp'; did you mean --output?",
        ),
        (["--tpoic", "clicks"], 2, "consume: error: unknown argument '--tpoic'; did you mean --topic?"),
        (["--topic", "clicks"], 2, "consume: error: the following arguments are required: --output"),
        (["--output", "out"], 2, "consume: error: one of the arguments --topic --pattern is required"),
        (
            ["--topic", "clicks", "--output", "out", "--max-offsets", "0"],
            2,
            "consume: error: argument --max-offsets: '0' is no whole number of at least 1",
        ),
        (["--topic", "clicks", "--output", ""], 1, "consume: --output is empty: name the directory of the table"),
        (
            ["--topic", "clicks", "--output", "out", "--option", "Subscribe=orders"],
            1,
            "consume: --option Subscribe: another argument gives it already",
        ),
    ],
)
def test_arguments_of_a_copy_are_checked_before_spark_starts(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    try:
        code: object = main(["--lake", str(tmp_path), *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == status
    said = capsys.readouterr().err
    assert said.strip().splitlines()[-1] == message
    assert "[--output" not in said, "it is required"


def test_a_copy_asks_the_brokers_that_are_named_in_place_of_a_lake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKALAKE_LAKE", raising=False)
    for servers, said in (("127.0.0.1:1", "127.0.0.1:1"), ("127.0.0.1:x", "kafka.bootstrap.servers")):
        named = ["--option", f"kafka.bootstrap.servers={servers}"]
        assert main(["--topic", "clicks", "--output", "out", *named]) == 1
        error = capsys.readouterr().err
        assert said in error and "no lake was named" not in error


def test_sentences_leave_the_stack_out() -> None:
    error = RuntimeError("[X] failed: Traceback\n  File y\nkafkalake.errors.LakeError: no lake at /x\n SQLSTATE: 38000")
    assert one_line_message(error) == "no lake at /x"


@pytest.mark.long
def test_two_executors_read_a_topic(lake: WrittenLake, tmp_path: Path) -> None:
    printed = python(
        """
        import os, sys
        from pathlib import Path
        import local_spark

        settings = local_spark.settings(Path(sys.argv[2]), driver_memory="1g") | local_spark.FEW_ROWS
        settings["spark.executor.memory"] = "1g"
        spark = local_spark.session(master="local-cluster[2,1,1024]", name="two executors", of=settings)
        frame = spark.read.format("kafkalake").option("lake", sys.argv[1]).option("minPartitions", "8").load("flights")
        print(frame.count(), frame.agg({"value": "max"}).first()[0], frame.filter("offset < 7").count())
        executors = frame.select("partition").rdd.mapPartitions(lambda rows: [(len(list(rows)), os.getppid())])
        print(len({daemon for rows, daemon in executors.collect() if rows}))
        local_spark.end(spark)
        """,
        str(lake.path),
        str(tmp_path),
    )
    assert printed.splitlines() == ['400 b\'{"carrier": "UA", "delay": 98}\' 14', "2"]


PLAIN = """
    import sys
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", sys.argv[2])
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    for pushdown in ("default", "true"):
        if pushdown == "true":
            spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        frame = spark.read.format("kafkalake").option("lake", sys.argv[1]).load("flights")
        print(frame.count(), frame.filter("offset = 1").count(), frame.filter("partition = 1").count(), frame.count())
        few = frame.filter("offset = 1").union(frame.filter("offset = 2"))
        print(sorted(row.offset for row in few.collect()))
"""
PLAIN_FOUND = ["400 2 200 400", "[1, 1, 2, 2]"] * 2


def test_spark_with_nothing_set_finds_the_source_and_its_tables(lake: WrittenLake, tmp_path: Path) -> None:
    tables = """
    spark.sql(f"CREATE TABLE flights USING kafkalake OPTIONS (lake '{sys.argv[1]}', subscribe 'flights')")
    spark.sql(f"CREATE TABLE few (offset BIGINT) USING kafkalake OPTIONS (lake '{sys.argv[1]}', subscribe 'flights')")
    print(spark.sql("SELECT count(*) FROM flights WHERE offset < 7").first()[0], spark.table("few").columns)
    """
    printed = python(PLAIN + tables, str(lake.path), str(tmp_path / "warehouse"))
    assert printed.splitlines() == [*PLAIN_FOUND, "14 ['offset']"]


@pytest.mark.long
def test_spark_without_the_jar_reads_the_same_records(lake: WrittenLake, tmp_path: Path) -> None:
    installed = Path(pyspark.__file__).parent
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name != "jars":
            (home / entry.name).symlink_to(entry)
    for jar in (installed / "jars").iterdir():
        if jar.name != "kafkalake-spark.jar":
            (home / "jars" / jar.name).symlink_to(jar)
    printed = python(PLAIN, str(lake.path), str(tmp_path / "warehouse"), SPARK_HOME=str(home))
    assert printed.splitlines() == PLAIN_FOUND


@pytest.mark.long
def test_spark_sql_reads_a_table_that_it_made_before(lake: WrittenLake, tmp_path: Path) -> None:
    sql = Path(sys.executable).parent / "spark-sql"
    given = settings(tmp_path) | FEW_ROWS
    arguments = [str(sql), "--master", "local[2]"]
    for name, value in given.items():
        if name != "spark.driver.memory":
            arguments += ["--conf", f"{name}={value}"]
    hive = f"spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={tmp_path}/metastore;create=true"
    create = f"CREATE TABLE flights USING kafkalake OPTIONS (lake '{lake.path}', subscribe 'flights')"
    made = run([*arguments, "--conf", hive, "-e", create])
    assert made.returncode == 0, made.stderr[-3000:]
    query = "SELECT partition, count(*), max(offset) FROM flights WHERE offset >= 100 GROUP BY 1 ORDER BY 1"
    found = run([*arguments, "--conf", hive, "-e", query])
    assert found.returncode == 0, found.stderr[-3000:]
    assert found.stdout.split() == ["0", "100", "199", "1", "100", "199"]


def test_the_jar_is_made_of_the_sources_beside_it(tmp_path: Path) -> None:
    import zipfile

    directory = PROJECT / "kafkalake" / "spark" / "jvm"
    with zipfile.ZipFile(directory / "kafkalake-spark.jar") as jar:
        classes = {Path(name).stem.split("$")[0] for name in jar.namelist() if name.endswith(".class")}
        register = jar.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister").decode().strip()
        made_of = jar.read("META-INF/kafkalake-sources.sha256").decode().strip()
    sources = sorted(directory.rglob("*.java"))
    assert classes == {source.stem for source in sources}
    assert made_of == hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest(), "run build_jar"
    assert register == "io.kafkalake.spark.KafkaLakeProvider"


def test_the_classes_that_a_session_loads_ahead_are_those_of_this_spark() -> None:
    import zipfile

    directory = PROJECT / "kafkalake" / "spark" / "jvm"
    listed = (directory / "first-query-classes").read_bytes()
    missing = {name.replace(".", "/") + ".class" for name in listed.decode().splitlines()}
    assert len(missing) > 1_500
    with zipfile.ZipFile(directory / "kafkalake-spark.jar") as jar:
        assert jar.read("io/kafkalake/spark/first-query-classes") == listed
        missing -= set(jar.namelist())
    for path in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")):
        with zipfile.ZipFile(path) as jar:
            missing -= set(jar.namelist())
    assert not missing, "list_first_classes is to be run again"
