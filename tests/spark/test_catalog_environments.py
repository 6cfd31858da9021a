"""The statements of a lake's catalogue, the same list in every place where people write SQL for Spark.

- the session of the other tests, which has Delta's catalogue as its own
- a standalone cluster: its executors have neither kafkalake's jar nor its Python package, and its driver has no Delta
- the thrift server, with Hive's metastore as the session's catalogue, by Hive's JDBC driver
- Spark Connect, by its Python client, of the same server

Each server is started once, and each environment has topics of its own on one broker.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import catalog_client
import local_spark
import long_runs
import pyspark
import pytest
from kafka_reference import Kafkalake, die_with_parent, free_port
from lake_catalog import with_catalog
from pyspark.sql import SparkSession
from waiting import wait_until

from kafkalake.errors import KafkaLakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.snapshot import take_snapshot

pytestmark = pytest.mark.spark

Rows = list[list[str | None]]
Run = Callable[[str], Rows]
START_TIMEOUT_S = 120.0
JAR = "kafkalake-spark.jar"
CATALOG = {"spark.sql.catalog.lake": "io.kafkalake.spark.LakeCatalog"}


class Refused(str):
    """A part of the sentence with which a statement is refused."""


@dataclass(frozen=True)
class Has:
    """Rows that must be among those of an answer."""

    rows: Rows


# A statement and what is answered; names in braces are filled in: {t} begins the names of the topics.
STATEMENTS: list[tuple[str, Rows | Refused | Has]] = [
    (
        "CREATE TABLE lake.{t} (user STRING, url STRING, ms BIGINT) TBLPROPERTIES ('partitions'='4', 'key'='user')",
        [],
    ),
    ("INSERT INTO lake.{t} VALUES ('ann', '/', 12), ('bob', '/', 30)", []),
    ("SELECT count(*) FROM lake.{t} VERSION AS OF {version_of_t}", [["2"]]),
    ("INSERT INTO lake.{t} (ms, url, user) SELECT 14, '/cart', 'ann'", []),
    (
        "SELECT user, avg(ms) FROM lake.{t} WHERE _timestamp > now() - INTERVAL 1 HOUR GROUP BY user ORDER BY user",
        [["ann", "13.0"], ["bob", "30.0"]],
    ),
    (
        "SELECT count(*), count(DISTINCT _offset, _partition) FROM lake.default.{t} WHERE CAST(_key AS STRING) = user",
        [["3", "3"]],
    ),
    ("SELECT count(*) FROM lake.{t} VERSION AS OF {first_version_of_t}", [["2"]]),
    ("SELECT count(*) FROM lake.{t} TIMESTAMP AS OF '{time_of_first_version}'", [["2"]]),
    ("SET TIME ZONE 'Asia/Tokyo'", Has([])),
    ("SELECT count(*) FROM lake.{t} TIMESTAMP AS OF '{tokyo_time_of_first_version}'", [["2"]]),
    ("SET TIME ZONE 'UTC'", Has([])),
    ("SELECT count(*) FROM lake.{t} TIMESTAMP AS OF '2100-01-01'", Refused("after the latest version")),
    ("SELECT count(*) FROM lake.{t} VERSION AS OF 1000000", Refused("cannot be read")),
    (
        "SELECT user, url, _change_type FROM lake.{t} CHANGES FROM VERSION {first_version_of_t} EXCLUSIVE "
        "TO VERSION {version_of_t}",
        [["ann", "/cart", "insert"]],
    ),
    ("SELECT count(*) FROM lake.{t} CHANGES FROM VERSION {first_version_of_t}", [["3"]]),
    ("SELECT count(*) FROM lake.{t}.lag", [["0"]]),
    ("SELECT count(*) > 0, max(next_offset) > 0 FROM lake.{t}.segments", [["true", "true"]]),
    ("SELECT count(*), count(leader) FROM lake.{t}.partitions", [["4", "4"]]),
    ("SELECT max(version) FROM lake.{t}.history VERSION AS OF {first_version_of_t}", [["{first_version_of_t}"]]),
    ("SELECT count(*) FROM lake.system.jobs WHERE topic = '{t}'", [["0"]]),
    ("CALL lake.system.retention(topic => '{t}', dry_run => true)", []),
    ("CALL lake.system.compact(topic => '{t}', dry_run => true)", []),
    ("CALL lake.system.lag(topic => '{t}')", []),
    ("SHOW PROCEDURES IN lake.system", Has([])),
    ("CALL lake.system.compct()", Refused("those of its namespace system are retention, compact")),
    ("SHOW NAMESPACES IN lake", [["default"], ["system"]]),
    ("SHOW TABLES IN lake LIKE '{t}'", Has([["default", "{t}", "false"]])),
    ("SHOW TBLPROPERTIES lake.{t} ('partitions')", [["partitions", "4"]]),
    ("ALTER TABLE lake.{t} SET TBLPROPERTIES ('retention.ms' = '3600000', 'partitions' = '5')", []),
    ("SHOW TBLPROPERTIES lake.{t} ('retention.ms')", [["retention.ms", "3600000"]]),
    ("SHOW TBLPROPERTIES lake.{t} ('partitions')", [["partitions", "5"]]),
    ("SHOW TABLE EXTENDED IN lake LIKE '{t}'", Has([])),
    ("CREATE TABLE lake.{t}_like LIKE lake.{t}", []),
    ("SHOW TBLPROPERTIES lake.{t}_like ('key')", [["key", "user"]]),
    ("DESCRIBE EXTENDED lake.{t}", Has([["ms", "bigint", None], ["Provider", "kafkalake", ""]])),
    ("CREATE TABLE lake.{t}_copy AS SELECT user, sum(ms) AS ms FROM lake.{t} GROUP BY user", []),
    ("SELECT user, ms FROM lake.{t}_copy ORDER BY user", [["ann", "26"], ["bob", "30"]]),
    ("SELECT count(*) FROM lake.{t} a JOIN lake.{t}_copy b USING (user)", [["3"]]),
    ("CREATE TEMPORARY VIEW {t}_view AS SELECT user FROM lake.{t} WHERE ms > 13", []),
    ("SELECT count(*) FROM {t}_view", [["2"]]),
    ("CREATE OR REPLACE TABLE lake.{t}_copy (a INT)", Refused("a topic is not replaced")),
    ("INSERT OVERWRITE lake.{t} VALUES ('ann', '/', 12)", Refused("overwritten")),
    ("UPDATE lake.{t} SET ms = 0 WHERE user = 'ann'", Refused("UPDATE TABLE")),
    (
        "MERGE INTO lake.{t} t USING (SELECT 'zoe' AS user) s ON t.user = s.user "
        "WHEN NOT MATCHED THEN INSERT (user) VALUES (s.user)",
        Refused("MERGE INTO TABLE does not change the records of a topic"),
    ),
    ("CREATE VIEW lake.{t}_view AS SELECT * FROM lake.{t}", Refused("a lake has no views")),
    ("CREATE NAMESPACE IF NOT EXISTS lake.default", []),
    ("ALTER TABLE lake.{t} RENAME TO default.{t}_other", Refused("cannot be renamed")),
    ("DELETE FROM lake.{t} WHERE user = 'ann'", Refused("is not compacted")),
    ("DELETE FROM lake.{t} WHERE ms < 13", Refused("Cannot delete")),
    ("DELETE FROM lake.{t} WHERE _offset < 1000", []),
    ("SELECT count(*) FROM lake.{t}", [["0"]]),
    ("TRUNCATE TABLE lake.{t}_copy", []),
    ("SELECT count(*) FROM lake.{t}_copy", [["0"]]),
    ("CREATE TABLE lake.{t}_users (user STRING, age INT) TBLPROPERTIES ('cleanup.policy'='compact', 'key'='user')", []),
    ("INSERT INTO lake.{t}_users VALUES ('ann', 31), ('bob', 32), ('cleo', 33)", []),
    ("DELETE FROM lake.{t}_users WHERE user IN ('ann', 'bob', 'nobody')", []),
    ("SELECT count(*), count(_value) FROM lake.{t}_users", [["5", "3"]]),
    ("SELECT count(*) FROM lake.{t}_nothing", Refused("TABLE_OR_VIEW_NOT_FOUND")),
    ("DROP TABLE lake.{t}", []),
    ("SELECT count(*) FROM lake.{t}", Refused("TABLE_OR_VIEW_NOT_FOUND")),
    ("DROP TABLE IF EXISTS lake.{t}", []),
]

TELLING = (
    "CREATE TABLE lake.{t} (",
    "INSERT INTO lake.{t} ",
    "SELECT user",
    "SELECT count(*) FROM lake.{t} VERSION AS OF {",
    "SELECT count(*) FROM lake.{t} TIMESTAMP AS OF '{time",
    "SELECT count(*) FROM lake.{t} CHANGES",
    "SELECT count(*) FROM lake.{t}.lag",
    "CALL lake.system.retention",
    "CALL lake.system.compact",
    "SHOW TABLES",
    "CREATE TABLE lake.{t}_copy AS",
    "MERGE INTO lake.{t}",
    "SELECT count(*) FROM lake.{t} a JOIN",
    "DELETE FROM lake.{t} WHERE ",
    "DROP TABLE lake.{t}",
)
"""The beginnings of statements of each kind. The thrift server runs all statements; the others run these, and all in the soak."""
EACH = ("",) if long_runs.ALL else TELLING

OF_SESSION_CATALOG: list[tuple[str, Rows | Refused | Has]] = [
    ("CREATE TABLE lake.{t}_raw", []),
    ("CREATE TABLE {t}_entry USING kafkalake OPTIONS (lake '{lake}', subscribe '{t}_raw')", []),
    ("DESCRIBE EXTENDED {t}_entry", Has([["Type", "EXTERNAL", ""]])),
    ("INSERT INTO {t}_entry (key, value) VALUES ('k', 'v')", []),
    ("SELECT CAST(key AS STRING), CAST(value AS STRING) FROM {t}_entry", [["k", "v"]]),
    ("DROP TABLE {t}_entry", []),
    ("SELECT count(*) FROM lake.{t}_raw", [["1"]]),
]


class Versions:
    """Fills in the names of a statement: versions that show all of a topic, once the broker has published one."""

    def __init__(self, lake: Path, topic: str) -> None:
        self._options = ReadOptions(str(lake), topics=(topic,))
        self._tables = DeltaMetadataStore(lake, create=False)
        self._known: dict[str, str] = {"t": topic, "lake": str(lake)}

    def fill(self, text: str) -> str:
        if "{version_of_t}" in text or ("{first_version_of_t}" in text and "first_version_of_t" not in self._known):
            now = str(self._published())
            if "first_version_of_t" not in self._known:
                moment = datetime.fromtimestamp(self._tables.committed_ms(int(now)) / 1000, UTC)
                self._known["first_version_of_t"] = now
                self._known["time_of_first_version"] = moment.replace(tzinfo=None).isoformat(" ")
                tokyo = moment.astimezone(ZoneInfo("Asia/Tokyo"))
                self._known["tokyo_time_of_first_version"] = tokyo.replace(tzinfo=None).isoformat(" ")
            self._known["version_of_t"] = now
        return text.format(**self._known)

    def _published(self) -> int:
        found = -1

        def has_all() -> bool:
            nonlocal found
            now = take_snapshot(self._options, self._tables)
            found, rows = self._tables.partitions_at(None, None)
            ends = {(row.topic, row.partition): row.last_stable_offset for row in rows}
            return all(ends.get((each.topic, each.partition), 0) >= each.end_offset for each in now.partitions)

        wait_until(has_all)
        return found


def check(
    run: Run,
    lake: Path,
    topic: str,
    more: Sequence[tuple[str, Rows | Refused | Has]] = (),
    begins: tuple[str, ...] = ("",),
) -> None:
    """Run all statements that begin so, and `more`, and collect what is not as expected."""
    versions = Versions(lake, topic)
    wrong = []
    asked_for = [each for each in STATEMENTS if each[0].startswith(begins)]
    for statement, expected in (*asked_for, *more):
        try:
            asked = versions.fill(statement)
        except KafkaLakeError as error:  # a statement before it did nothing
            wrong.append(f"{statement}\n    {error}")
            break
        try:
            answer: Rows | Refused = run(asked)
        except Exception as error:
            answer = Refused(error)
        if not agrees(answer, expected, versions):
            wrong.append(f"{asked}\n    {str(answer)[:600]}")
    assert not wrong, "\n".join(wrong)


def agrees(answer: Rows | Refused, expected: Rows | Refused | Has, versions: Versions) -> bool:
    if isinstance(answer, Refused) or isinstance(expected, Refused):
        return isinstance(answer, Refused) and isinstance(expected, Refused) and expected in answer
    if isinstance(expected, Has):
        wanted = [[value and versions.fill(value) for value in row] for row in expected.rows]
        return all(row in answer for row in wanted)
    return answer == [[value and versions.fill(value) for value in row] for row in expected]


# The environments


def of_session(session: SparkSession) -> Run:
    return lambda statement: catalog_client.rows_of(session, statement)


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(30)


@contextlib.contextmanager
def client(settings: dict[str, str], log: Path, **environment: str) -> Iterator[Callable[[str | dict[str, str]], Rows]]:
    """A Python process with a session of these settings."""
    with running([sys.executable, catalog_client.__file__, json.dumps(settings)], log, **environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = process.stdout

        def answer() -> Rows:
            timer = threading.Timer(START_TIMEOUT_S, process.kill)
            timer.start()
            line = lines.readline()
            timer.cancel()
            assert line, log.read_text()[-3000:]
            found: dict[str, Any] = json.loads(line)
            if "error" in found:
                raise RuntimeError(found["error"])
            rows: Rows = found["rows"]
            return rows

        def run(statement: str | dict[str, str]) -> Rows:
            assert process.stdin is not None
            process.stdin.write(json.dumps(statement).encode() + b"\n")
            process.stdin.flush()
            return answer()

        assert answer() == []
        yield run


@pytest.mark.long
def test_in_a_session_with_deltas_catalogue(broker: Kafkalake, spark: SparkSession) -> None:
    check(of_session(with_catalog(spark, broker.lake)), broker.lake, "in_delta", OF_SESSION_CATALOG)


@contextlib.contextmanager
def bare_cluster(directory: Path) -> Iterator[str]:
    """The master's URL of a cluster whose worker has a Spark without kafkalake's jar, and no Python package of ours."""
    installed = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    home = directory / "bare"
    (home / "jars").mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name != "jars":
            (home / entry.name).symlink_to(entry)
    for jar in (installed / "jars").iterdir():
        if jar.name != JAR:
            (home / "jars" / jar.name).symlink_to(jar.resolve())
    bare = {
        "SPARK_HOME": str(home),
        "PYTHONPATH": "",
        "PYSPARK_PYTHON": "/no/python/here",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    port = free_port()
    spark_class, classes = str(home / "bin" / "spark-class"), "org.apache.spark.deploy"
    host = ("--host", "127.0.0.1", "--webui-port", "0")
    master = [spark_class, f"{classes}.master.Master", *host, "--port", str(port)]
    url = f"spark://127.0.0.1:{port}"
    work = ("--port", "0", "--cores", "2", "--memory", "1g", "--work-dir", str(directory / "work"))
    worker = [spark_class, f"{classes}.worker.Worker", *host, *work, url]
    with running(master, directory / "master.log", **bare), running(worker, directory / "worker.log", **bare):
        registered = directory / "worker.log"
        wait_until(lambda: "Successfully registered" in registered.read_text(), registered.read_text, START_TIMEOUT_S)
        yield url


def check_stream(run: Callable[[str | dict[str, str]], Rows], topic: str, checkpoint: Path) -> None:
    """Copy a table to another one by `readStream.table` and `toTable`, go on from the checkpoint, and count what is there."""
    for name in (f"{topic}_in", f"{topic}_out"):
        run(f"CREATE TABLE lake.{name} (user STRING, ms BIGINT) TBLPROPERTIES ('key' = 'user')")
    for number in range(2):
        run(f"INSERT INTO lake.{topic}_in VALUES ('ann', {number}), ('bob', {number})")
        run({"stream": f"lake.{topic}_in", "into": f"lake.{topic}_out", "checkpoint": str(checkpoint)})
    counted = f"SELECT user, count(*), sum(ms) FROM lake.{topic}_out WHERE CAST(_key AS STRING) = user GROUP BY user"
    assert sorted(run(counted)) == [["ann", "2", "1"], ["bob", "2", "1"]]


def test_on_a_cluster_whose_executors_have_no_kafkalake(broker: Kafkalake, tmp_path: Path) -> None:
    settings = local_spark.settings(tmp_path, jar_sets=(), driver_memory="1g") | local_spark.FEW_ROWS | CATALOG
    settings |= {"spark.sql.catalog.lake.path": str(broker.lake), "spark.executor.memory": "600m"}
    for name in ("spark.executor.extraClassPath", "spark.jars"):
        settings.pop(name, None)
    with bare_cluster(tmp_path) as master, client(settings | {"master": master}, tmp_path / "driver.log") as run:
        check(run, broker.lake, "on_cluster", OF_SESSION_CATALOG, EACH)
        check_stream(run, "on_cluster", tmp_path / "checkpoint")
    assert "kafkalake" not in (tmp_path / "worker.log").read_text().split("Successfully registered")[0]


@dataclass(frozen=True)
class Server:
    thrift_port: int
    connect_port: int


@pytest.fixture(scope="module")
def server(broker: Kafkalake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The thrift server, with Hive's metastore in an embedded Derby, and Spark Connect's beside it."""
    directory = tmp_path_factory.mktemp("server")
    found = Server(free_port(), free_port())
    settings = local_spark.settings(directory, jar_sets=(), driver_memory="1g") | local_spark.FEW_ROWS | CATALOG
    settings |= {
        "spark.sql.catalog.lake.path": str(broker.lake),
        "spark.master": "local[2]",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(found.connect_port),
        "spark.hadoop.hive.server2.thrift.port": str(found.thrift_port),
        "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore;create=true",
        "spark.hadoop.hive.exec.scratchdir": str(directory / "scratch"),
    }
    del settings["spark.jars"]
    conf = directory / "server.conf"
    conf.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    command = [str(home / "bin" / "spark-submit"), "--properties-file", str(conf), "--class"]
    command += ["org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal"]
    log = directory / "server.log"
    with running(command, log, PYSPARK_PYTHON=sys.executable, SPARK_HOME=str(home)):
        wait_until(lambda: listens(found.thrift_port) and listens(found.connect_port), log.read_text, START_TIMEOUT_S)
        yield found


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def by_jdbc(server: Server, spark: SparkSession) -> Iterator[Run]:
    """A session of its own on the thrift server, by Hive's driver, which is in the JVM of the tests' session."""
    jvm: Any = spark._jvm
    connection = jvm.java.sql.DriverManager.getConnection(f"jdbc:hive2://127.0.0.1:{server.thrift_port}/default")
    try:
        statement = connection.createStatement()

        def run(text: str) -> Rows:
            rows: Rows = []
            if statement.execute(text):
                found = statement.getResultSet()
                columns = found.getMetaData().getColumnCount()
                while found.next():
                    rows.append([found.getString(number + 1) for number in range(columns)])
            return rows

        yield run
    finally:
        connection.close()


@pytest.mark.long
def test_by_jdbc_from_the_thrift_server_with_hives_metastore(
    broker: Kafkalake, server: Server, spark: SparkSession
) -> None:
    with by_jdbc(server, spark) as run:
        check(run, broker.lake, "by_thrift", OF_SESSION_CATALOG)
        run("CREATE TABLE lake.from_hive (user STRING, ms BIGINT)")
        run("INSERT INTO lake.from_hive VALUES ('ann', 1), ('bob', 2)")
        run("CREATE VIEW of_lake AS SELECT user FROM lake.from_hive WHERE ms > 1")
        run("CREATE TABLE of_hive USING parquet AS SELECT * FROM lake.from_hive")
        run("INSERT INTO lake.from_hive SELECT * FROM of_hive")
        assert run("SELECT user, count(*) FROM of_lake JOIN of_hive USING (user) GROUP BY ALL") == [["bob", "2"]]
        run(f"CREATE TABLE entry USING kafkalake OPTIONS (lake '{broker.lake}', subscribe 'from_hive')")
    with by_jdbc(server, spark) as run:  # a session that has not made it has the table from Hive's metastore
        query = "SELECT partition, count(*), min(offset) FROM entry WHERE offset >= 1 GROUP BY 1"
        assert run(query) == [["0", "3", "1"]]


@pytest.mark.xdist_group("spark")  # where the server is
def test_by_spark_connect(broker: Kafkalake, server: Server, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    log = tmp_path / "client.log"
    with client({"remote": f"sc://127.0.0.1:{server.connect_port}"}, log, PYTHONPATH=os.pathsep.join(sys.path)) as run:
        check(run, broker.lake, "by_connect", begins=EACH)
        check_stream(run, "by_connect", tmp_path / "checkpoint")
