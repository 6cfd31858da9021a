"""A Spark standalone cluster: a master and two workers, each a process of its own, started here."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from compacted_lake import CompactedTopic
from compaction_model import compacted
from kafka_reference import PROJECT, Kafkalake, die_with_parent
from written_lake import WrittenLake

from kafkalake.cli.log import problems_of

pytestmark = pytest.mark.spark

START_TIMEOUT_S = 90
CLASSES = "org.apache.spark.deploy"


def spark_without_kafkalake(home: Path) -> Path:
    """Make a home of Spark from links to the installed one, without kafkalake's jar, which `pip install` puts there."""
    installed = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    (home / "jars").mkdir(parents=True)
    for path in installed.iterdir():
        if path.name != "jars":
            (home / path.name).symlink_to(path)
    for path in (installed / "jars").iterdir():
        if not path.name.startswith("kafkalake"):
            (home / "jars" / path.name).symlink_to(path)
    return home


@contextlib.contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """The master's URL. Two workers with one core each have registered. Their Spark has no jar of kafkalake."""
    processes: list[subprocess.Popen[bytes]] = []
    environment = {
        **os.environ,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }

    home = spark_without_kafkalake(directory / "spark-home")

    def launch(name: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as file:
            processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *arguments],
                    env={**environment, "SPARK_HOME": str(home)},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            )
        return log

    def said(log: Path, pattern: str, times: int = 1) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(found := re.findall(pattern, log.read_text())) < times:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)
        return str(found[0])

    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        log = launch("master", f"{CLASSES}.master.Master", *ports)
        master = said(log, r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"))
            launch(f"worker-{number}", f"{CLASSES}.worker.Worker", *ports, *work, master)
        said(log, "Registering worker", times=2)
        yield master
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", 4)
    for partition in range(4):
        lake.append_values("clicks", partition, [b"value"] * 50)
    yield lake
    lake.close()


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
import local_spark
from compacted_lake import compact
from confluent_kafka import Consumer, Producer, TopicPartition
from kafkalake.jobs.compaction import key_offsets

master, lake, scratch, written, servers = sys.argv[1:]
of = local_spark.settings(Path(scratch), jar_sets=("delta", "spark-kafka"), driver_memory="1g") | local_spark.FEW_ROWS
of.pop("spark.executor.extraClassPath", None)
of |= {"spark.executor.memory": "600m", "spark.sql.streaming.realTimeMode.minBatchDuration": "200"}
of |= {"spark.sql.catalog.written": "io.kafkalake.spark.LakeCatalog", "spark.sql.catalog.written.path": written}
spark = local_spark.session(master=master, name="cluster", of=of)


def of_executors():
    # The processes that executors of this session have started.
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if spark.sparkContext.applicationId in Path(f"/proc/{parent}/cmdline").read_text():
                yield (process / "cmdline").read_text()
        except OSError:
            continue


spark.sql("CREATE TABLE written.typed (user STRING, ms BIGINT) TBLPROPERTIES ('partitions' = '2', 'key' = 'user')")
spark.sql("INSERT INTO written.typed SELECT CONCAT('u', id % 3), id FROM RANGE(0, 300, 1, 4)")
spark.sql("CREATE TABLE written.raw TBLPROPERTIES ('partitions' = '2')")
rows = spark.range(0, 300, 1, 4).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
rows.write.format("kafkalake").option("lake", written).mode("append").save("raw")
copied = spark.readStream.option("startingOffsets", "earliest").table("written.raw").select("key", "value")
copy = copied.writeStream.trigger(availableNow=True)
copy = copy.format("kafkalake").option("lake", written).option("checkpointLocation", f"{scratch}/copy")
assert copy.option("topic", "raw").start().awaitTermination(150)
sums = spark.sql("SELECT user, sum(ms) FROM written.typed GROUP BY 1 ORDER BY 1").collect()
print("written:", sums[0][1], spark.table("written.raw").count())
spark.sql("CREATE TABLE written.out TBLPROPERTIES ('partitions' = '1')")
real_time = spark.readStream.table("written.typed").selectExpr("CAST(ms AS STRING) AS value").writeStream
real_time = real_time.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "out")
real_time = real_time.option("checkpointLocation", f"{scratch}/real-time").outputMode("update")
query = real_time.trigger(realTime="1 second").start()
producer = Producer({"bootstrap.servers": servers})
consumer = Consumer({"bootstrap.servers": servers, "group.id": "out"})
consumer.assign([TopicPartition("out", 0, 0)])
sent, seen, batches, deadline = 0, [], 0, time.monotonic() + 90
while time.monotonic() < deadline and query.isActive and (batches < 3 or len(seen) < sent):
    for partition in range(2):
        producer.produce("typed", b'{"user": "r", "ms": %d}' % sent, partition=partition)
        sent += 1
    producer.flush(10)
    while time.monotonic() < deadline and query.isActive and len(seen) < sent:
        seen += [int(message.value()) for message in consumer.consume(100, 0.05)]
    batches = 0 if query.lastProgress is None else query.lastProgress["batchId"] + 1
print("in real time:", query.exception(), sorted(seen) == list(range(sent)), batches > 2)
query.stop()
print("of executors:", sorted(of_executors()))
reader = spark.readStream.format("kafkalake").option("lake", lake).option("startingOffsets", "earliest")
rows = []

def keep(frame, batch_id):
    read = frame.select("partition", "offset").rdd.map(lambda row: (row[0], row[1], os.getppid()))
    rows.extend(read.collect())

stream = reader.option("minPartitions", "8").option("maxOffsetsPerTrigger", 100).load("clicks").writeStream
query = stream.foreachBatch(keep).option("checkpointLocation", f"{scratch}/checkpoint")
assert query.trigger(availableNow=True).start().awaitTermination(150)
print("all read:", sorted(row[:2] for row in rows) == [(p, o) for p in range(4) for o in range(50)])
print("executors:", len({row[2] for row in rows}))
print("checkpoints by:", spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", "Spark"))

rewritten = key_offsets._rewritten

def killed_once(work, group, output, kept):
    row = rewritten(work, group, output, kept)
    try:
        os.close(os.open(f"{scratch}-killed", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return row
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    os.kill(int(daemon[1]), signal.SIGKILL)  # the JVM whose daemon started this worker
    return row

key_offsets._rewritten = killed_once
compact(Path(lake), spark)
local_spark.end(spark)
"""


@pytest.mark.long
def test_streams_and_a_compaction_of_which_an_executor_is_killed_run_on_a_standalone_cluster(
    lake: WrittenLake, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    broker = kafkalake_broker(tmp_path / "written")
    topic = CompactedTopic(lake, **{"internal.segment.bytes": "9000"})
    for number in range(12):
        topic.write([(b"k%d" % ((number * 7 + i) % 90), b"v" * 100) for i in range(60)])
        topic.seal()
    left = compacted(topic.records, topic.publish())
    path = f"{PROJECT}:{PROJECT / 'scripts'}:{PROJECT / 'tests'}"
    arguments = (lake.path, tmp_path / "spark", broker.lake, broker.bootstrap_servers)
    with standalone_cluster(tmp_path) as master:
        finished = subprocess.run(
            [sys.executable, "-c", SCRIPT, master, *map(str, arguments)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=250,
        )
    assert finished.returncode == 0, finished.stderr[-4000:]
    said = ["written: 14850 600", "in real time: None True True", "of executors: []", "all read: True", "executors: 2"]
    said.append("checkpoints by: Spark")  # executors that have not run a task of kafkalake yet lack its class
    assert finished.stdout.splitlines()[:6] == said, "written and read with no Python on executors, then with it"
    assert "Lost executor" in finished.stderr
    assert len(left) < len(topic.records)
    assert topic.stored() == topic.sealed(left)
    assert not list(lake.directory(topic.name).glob(".compaction-*"))
    assert list(problems_of(lake.path)) == []
