"""The commands that read a lake's files: `sql`, `log verify`, `log dump`; and `broker start`, which makes one."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Ended, Run
from kafka_reference import Kafkalake, free_port, topic_name
from waiting import wait_for_later_files, wait_until
from written_lake import WrittenLake

from kafkalake import Admin, Producer
from kafkalake.record.schema import HEADERS_TYPE

pytestmark = pytest.mark.process

RECORDS = 1_000


def write(broker: Kafkalake, topic: str, values: list[bytes | None], keys: list[bytes | None] | None = None) -> None:
    """Acknowledged records, timestamps 0 s, 1 s, 2 s, ..."""
    records = pa.RecordBatch.from_arrays(
        [
            pa.array(keys or [None] * len(values), pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([index * 1_000 for index in range(len(values))], pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
            pa.array([[{"key": "h", "value": b"1"}]] * len(values), HEADERS_TYPE),
        ],
        names=["key", "value", "timestamp", "headers"],
    )
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=10_000) as producer:
        producer.send_arrow(topic, records).get()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkalake]:
    """A running broker with the topics `clicks` (2 partitions, JSON values), `web-logs` and `empty`."""
    directory = tmp_path_factory.mktemp("lake")
    with Kafkalake(directory / "lake", directory=directory / "broker") as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("clicks", partitions=2)
            admin.create_topic("web-logs")
            admin.create_topic("empty")
        values = [json.dumps({"user": f"u{index % 3}", "n": index}).encode() for index in range(RECORDS)]
        write(
            running,
            "clicks",
            [None, b"\xff\x00", *values[2:]],
            [f"key {index % 20}".encode() for index in range(RECORDS)],
        )
        write(running, "web-logs", [b"GET /", b"GET /favicon.ico"])
        yield running


@pytest.fixture
def lake(broker: Kafkalake) -> str:
    return str(broker.lake)


@pytest.fixture
def query(kafkalake: Run, lake: str) -> Callable[..., list[dict[str, object]]]:
    """Rows of a query, by `--json`."""

    def rows(text: str) -> list[dict[str, object]]:
        ended = kafkalake("sql", text, "--lake", lake, "--json")
        assert (ended.code, ended.stderr) == (0, "")
        return [json.loads(line) for line in ended.stdout.splitlines()]

    return rows


def test_each_topic_is_a_table(query: Callable[..., list[dict[str, object]]]) -> None:
    assert query("SELECT count(*) AS n FROM clicks") == [{"n": RECORDS}]
    assert query("SELECT count(*) AS n FROM CLICKS, empty") == [{"n": 0}]
    assert query('SELECT text(value) AS line, "offset" FROM "web-logs" WHERE "offset" > 0') == [
        {"line": "GET /favicon.ico", "offset": 1}
    ]
    assert [row["name"] for row in query("SHOW TABLES")] == ["clicks", "empty", "web-logs"]


def test_values_as_text_and_as_json(query: Callable[..., list[dict[str, object]]]) -> None:
    counted = query("SELECT json(value)->>'user' AS user, count(*) AS n FROM clicks GROUP BY 1 ORDER BY 1 NULLS FIRST")
    assert counted == [
        {"user": None, "n": 2},
        {"user": "u0", "n": 333},
        {"user": "u1", "n": 332},
        {"user": "u2", "n": 333},
    ]
    strange = query("SELECT value, text(value) AS text FROM clicks WHERE json(value) IS NULL ORDER BY timestamp")
    assert strange == [{"value": None, "text": None}, {"value": {"base64": "/wA="}, "text": None}]


def test_a_row_has_the_columns_of_sparks_kafka_source(query: Callable[..., list[dict[str, object]]]) -> None:
    (row,) = query('SELECT * FROM "web-logs" LIMIT 1')
    assert row == {
        "key": None,
        "value": "GET /",
        "topic": "web-logs",
        "partition": 0,
        "offset": 0,
        "timestamp": "1970-01-01T00:00:00.000Z",
        "timestampType": 0,
        "headers": [{"key": "h", "value": "1"}],
    }


def test_years_that_python_does_not_have_are_shown(query: Callable[..., list[dict[str, object]]]) -> None:
    days = "VALUES (DATE '2024-02-29'), (NULL), (DATE '9999-12-31' + 1), (DATE '0001-01-01' - 1)"
    shown: list[object] = ["2024-02-29", None, "+10000-01-01", "0000-12-31"]
    assert query(f"SELECT day FROM ({days}) AS t(day)") == [{"day": day} for day in shown]


def test_a_query_sees_the_last_acknowledged_record(
    broker: Kafkalake, query: Callable[..., list[dict[str, object]]], topic: str
) -> None:
    for count in range(1, 4):
        write(broker, topic, [b"now"])
        assert query(f'SELECT count(*) AS n FROM "{topic}"') == [{"n": count}]


def test_tables_and_csv(kafkalake: Run, lake: str) -> None:
    text = "SELECT partition, count(*) AS n, NULL AS nothing FROM clicks GROUP BY 1 ORDER BY 1"
    table = kafkalake("sql", text, "--lake", lake)
    assert table.code == 0
    assert table.stdout.split()[:3] == ["partition", "n", "nothing"]
    assert "\x1b[" not in table.stdout
    ended = kafkalake("sql", text, "--csv", environment={"KAFKALAKE_LAKE": lake})
    rows = list(csv.DictReader(io.StringIO(ended.stdout)))
    assert [row["partition"] for row in rows] == ["0", "1"]
    assert sum(int(row["n"]) for row in rows) == RECORDS
    assert {row["nothing"] for row in rows} == {""}
    assert kafkalake("sql", "SELECT value FROM empty", "--csv", "--lake", lake).stdout == "value\n"


def test_a_long_table_says_what_is_left_out(kafkalake: Run, lake: str) -> None:
    ended = kafkalake("sql", 'SELECT "offset" FROM clicks', "--lake", lake, "--max-rows", "10")
    assert len([line for line in ended.stdout.splitlines() if line.strip().isdecimal()]) == 10
    assert ended.stderr.startswith("The first 10 rows;")


def test_a_query_from_stdin(process: Run, lake: str) -> None:
    ended = process("sql", "--lake", lake, "--csv", stdin="SELECT\n  max(partition) AS p\nFROM clicks\n")
    assert (ended.code, ended.stdout) == (0, "p\n1\n")
    nothing = process("sql", "--lake", lake)
    assert (nothing.code, nothing.stderr[:22]) == (2, "error: no query given:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM clisk", "there is no topic 'clisk'\ndid you mean 'clicks'?"),
        ("SELECT * FROM nothing_like_it", "The topics are: clicks, empty, "),
        ("SELECT * FROM web-logs", 'Write "web-logs" in double quotes'),
        ("SELECT offset FROM clicks", 'write "offset" in double quotes'),
        ("SELECT value->>'user', length(value) FROM clicks", "text(value), json(value)"),
        ("SELECT user_name FROM clicks", 'column "user_name" not found'),
        ("SELEC 1", "syntax error"),
        ("SELECT count(*)\nFROM clicks WERE 1", "LINE 2: FROM clicks WERE 1\n"),
        ("SELECT * FROM group_offsets", "The metadata table is lake.group_offsets"),
        ("SELECT * FROM lake.nothing", "nothing"),
        ("CREATE TABLE t AS SELECT * FROM clicks", "CREATE leaves nothing behind"),
    ],
)
def test_queries_that_cannot_run_are_explained(kafkalake: Run, lake: str, text: str, said: str) -> None:
    ended = kafkalake("sql", text, "--lake", lake)
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: ")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) <= 4


def test_metadata_tables_are_in_the_schema_lake(query: Callable[..., list[dict[str, object]]]) -> None:
    topics = [row["topic"] for row in query("SELECT topic FROM lake.topics ORDER BY 1")]
    assert {"clicks", "empty", "web-logs"} <= set(topics)
    rows = query('SELECT t.topic, count(*) AS n FROM lake.topics t JOIN "lake"."brokers" ON true GROUP BY 1')
    assert len(rows) == len(topics)
    assert query("CREATE TABLE t AS SELECT 7 AS n; SELECT n FROM t") == [{"n": 7}]


def test_a_query_as_of_a_time(kafkalake: Run, tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"a", b"b"])
    lake.publish()
    between = datetime.now(UTC)
    wait_for_later_files(between.timestamp())
    lake.append_values("clicks", 0, [b"c"])
    lake.publish()
    lake.close()

    def count(*arguments: str) -> Ended:
        return kafkalake("sql", "SELECT count(*) AS n FROM clicks", "--csv", "--lake", str(lake.path), *arguments)

    assert count().stdout == "n\n3\n"
    assert count("--as-of", between.isoformat()).stdout == "n\n2\n"
    assert count("--as-of", "2020-01-01").code == 1


def test_names_of_files_and_of_duckdb_are_not_shadowed_by_topics(
    kafkalake: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = WrittenLake(tmp_path / "lake")
    for topic in ("data.csv", "information_schema", "lake"):
        lake.create(topic)
        lake.append_values(topic, 0, [topic.encode()])
    lake.close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("from_the_file\n1\n")

    def first(text: str) -> str:
        ended = kafkalake("sql", text, "--csv", "--lake", str(lake.path))
        assert ended.code == 0, ended
        return ended.stdout.split()[-1]

    assert first("SELECT * FROM 'data.csv'") == "1"
    assert first('SELECT value FROM "data.csv"') == "data.csv"
    assert first("SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'lake'") == "1"
    assert first('SELECT value FROM "information_schema"') == "information_schema"
    assert first('SELECT value FROM "lake"') == "lake"
    assert first("SELECT count(*) FROM lake.topics") == "3"


@pytest.mark.process
def test_a_prompt_on_a_terminal(lake: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "100"}
    command = [sys.executable, "-m", "kafkalake", "sql", "--lake", lake]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = ""

        def wait_for(text: str) -> None:
            nonlocal said
            while text not in said:
                assert select.select([ours], [], [], 60)[0], said
                said += os.read(ours, 65_536).decode()
            said = said.split(text, 1)[1]

        for typed, shown in [
            ("SELECT count(*) AS n\nFROM empty;\n", " 0 "),
            ("SELECT * FROM clisk;\n", "did you mean 'clicks'?"),
            ("CREATE TABLE t AS SELECT 4711 AS n;\nSELECT n FROM t;\n", " 4711 "),
        ]:
            wait_for("sql> ")
            os.write(ours, typed.encode())
            wait_for(shown)
        os.write(ours, b"exit\n")
        assert process.wait(60) == 0
        os.close(ours)
    assert "FROM empty;" in (tmp_path / "kafkalake" / "sql-history").read_text()


@pytest.mark.process
def test_ctrl_c_ends_a_query(lake: str, tmp_path: Path) -> None:
    """The second statement counts for minutes."""
    begun = tmp_path / "begun.csv"
    query = f"COPY (SELECT 1) TO '{begun}'; SELECT count(*) FROM range(1_000_000_000_000)"
    command = [sys.executable, "-m", "kafkalake", "sql", query, "--lake", lake]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: begun.exists() or process.poll() is not None)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, *said) == (130, "", "")


def test_internal_topics_are_there_for_who_names_them(kafkalake: Run, tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    for topic in ("clicks", "__consumer_offsets"):
        lake.create(topic)
        lake.append_values(topic, 0, [topic.encode()])
    lake.close()
    shown = kafkalake("sql", "SHOW TABLES", "--csv", "--lake", str(lake.path))
    assert shown.stdout.split() == ["name", "clicks"]
    named = kafkalake("sql", "SELECT value FROM __consumer_offsets", "--csv", "--lake", str(lake.path))
    assert named.stdout.split() == ["value", "__consumer_offsets"]
    missing = kafkalake("sql", "SELECT * FROM none", "--lake", str(lake.path))
    assert "The topics are: clicks" in missing.stderr
    assert "__consumer_offsets" not in missing.stderr


def test_a_query_that_ends_early_ends_cleanly(process: Run, lake: str) -> None:
    for _ in range(3):
        ended = process("sql", "SELECT * FROM clicks LIMIT 1", "--lake", lake, "--csv")
        assert (ended.code, ended.stderr, len(ended.stdout.splitlines())) == (0, "", 2)


@pytest.mark.parametrize("command", [("sql", "SELECT 1", "--lake"), ("log", "verify")])
def test_what_is_no_lake(kafkalake: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        ended = kafkalake(*command, str(path))
        assert (ended.code, ended.stdout) == (1, "")
        assert ended.stderr.startswith(f"error: no lake at {path}: ")
    assert not (tmp_path / "missing").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "said"), [("file:lake", "file:lake is none"), ("", "directory is empty")])
@pytest.mark.parametrize("command", [("broker", "start", "--lake"), ("sql", "SELECT 1", "--lake"), ("log", "verify")])
def test_what_is_no_name_of_a_directory(
    kafkalake: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = kafkalake(*command, text)
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.endswith(f"{said}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_lake_in_use_has_no_problems(kafkalake: Run, lake: str) -> None:
    ended = kafkalake("log", "verify", f"file://{lake}")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith("No problems in ")
    assert json.loads(kafkalake("log", "verify", lake, "--json").stdout)["problems"] == []


def test_damage_is_named_with_file_and_position(
    kafkalake: Run, kafkalake_broker: Callable[..., Kafkalake], topic: str
) -> None:
    broker = kafkalake_broker()
    write(broker, topic, [b"value %d" % index for index in range(500)])
    broker.stop()
    assert kafkalake("log", "verify", str(broker.lake)).code == 0
    (segment,) = (path for path in broker.lake.glob(f"logs/0/{topic}-0/*.arrow") if path.stat().st_size > 5_000)
    with segment.open("r+b") as file:
        file.seek(3_000)
        byte = file.read(1)[0]
        file.seek(3_000)
        file.write(bytes([byte ^ 1]))
    ended = kafkalake("log", "verify", str(broker.lake))
    assert (ended.code, ended.stdout) == (1, "")
    first, *_, last = ended.stderr.splitlines()
    assert first.startswith(f"{segment}: at byte ")
    assert "checksum" in first
    assert last.startswith("error: ") and "problem" in last
    document = json.loads(kafkalake("log", "verify", str(broker.lake), "--json").stdout)
    assert document["problems"][0]["file"] == str(segment)

    dumped = kafkalake("log", "dump", str(segment))
    assert dumped.code == 1
    assert "damage position: " in dumped.stdout
    queried = kafkalake("sql", f'SELECT max(value) FROM "{topic}"', "--lake", str(broker.lake))
    assert (queried.code, queried.stdout) == (1, "")
    assert queried.stderr.startswith(f"error: {segment}: at byte ")


def test_a_topic_with_a_schema_is_filled_from_csv_and_json_and_queried_by_its_fields(
    kafkalake: Run, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    broker = kafkalake_broker()
    address = ("--bootstrap-server", broker.bootstrap_servers)
    topic = topic_name("typed").replace("-", "_")
    schema = "value.schema=zip STRING, n BIGINT, ok BOOLEAN, tags ARRAY<INT>"
    assert kafkalake("topics", "create", topic, "--config", schema, "--config", "key=zip", *address).code == 0
    file = tmp_path / "rows.csv"
    file.write_text('zip,n,ok,tags\n10001,7,TRUE,"[1, 2]"\n00501,,no,\n')
    assert kafkalake("produce", topic, str(file), *address).code == 0
    lines = '{"zip": "20", "n": 1}\n{"n": 2}\n'
    assert kafkalake("produce", topic, "--format", "json", *address, stdin=lines).code == 0
    ended = kafkalake(
        "sql",
        f"SELECT * EXCLUDE (_topic, _timestamp) FROM {topic} ORDER BY _offset",
        "--json",
        "--lake",
        str(broker.lake),
    )
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["_key"], row["zip"], row["n"], row["ok"], row["tags"]) for row in rows] == [
        ("10001", "10001", 7, True, [1, 2]),
        ("00501", "00501", None, None, None),
        ("20", "20", 1, None, None),
        (None, None, 2, None, None),
    ]
    assert rows[0]["_value"] == '{"zip":"10001","n":7,"ok":true,"tags":[1, 2]}', "types of the schema, not guessed ones"
    lines = '{"zip": "30", "n": 3}\n{"zap": "40"}\n{"zip": "50"}\n'
    stopped = kafkalake("produce", topic, "--format", "json", *address, stdin=lines)
    assert stopped.code == 1
    assert "line 2: value.schema has no field zap; did you mean 'zip'?" in stopped.stderr
    assert f"1 record was written to {topic}. Once line 2 is mended, --from-line 2 goes on there" in stopped.stderr
    assert kafkalake("produce", topic, "--format", "lines", *address, stdin='{"zap": "40"}\n').code == 0
    file.write_text("zip,N\n60,6\n")
    refused = kafkalake("produce", topic, str(file), *address)
    assert (refused.code, "rows.csv: value.schema has no field N; did you mean 'n'?" in refused.stderr) == (1, True)
    count = ("sql", f"SELECT count(*) AS n FROM {topic}", "--json", "--lake", str(broker.lake))
    assert json.loads(kafkalake(*count).stdout) == {"n": 6}
    wrong = kafkalake("topics", "create", f"{topic}2", "--config", "value.schema=zip STRNG", *address)
    assert (wrong.code, "did you mean STRING" in wrong.stderr) == (1, True)


def test_a_topic_of_avro_is_filled_from_json_csv_and_parquet_and_shows_its_fields(
    kafkalake: Run, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    broker = kafkalake_broker()
    address = ("--bootstrap-server", broker.bootstrap_servers)
    topic = topic_name("avro").replace("-", "_")
    ddl = "user STRING, n INT, raw BINARY, price DECIMAL(9,2)"
    settings = (f"value.schema={ddl}", "value.format=avro", "key=user")
    options = [part for setting in settings for part in ("--config", setting)]
    assert kafkalake("topics", "create", topic, *options, *address).code == 0
    lines = '{"user": "ann", "n": 1, "raw": {"base64": "/w=="}}\n{"n": 2, "usr": "x"}\n{"n": "y"}\n{"price": 1.25}\n'
    sent = kafkalake("produce", topic, "--format", "json", "--on-error", "skip", *address, stdin=lines)
    assert (sent.code, "2 lines were left out" in sent.stderr) == (0, True)
    assert "value.schema has no field usr; did you mean 'user'?" in sent.stderr
    (tmp_path / "rows.csv").write_text("user,price\n007,3.50\n")
    assert kafkalake("produce", topic, str(tmp_path / "rows.csv"), *address).code == 0
    rows = pa.table({"user": ["bob"], "raw": pa.array([b"\xfe\xff"])})
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert kafkalake("produce", topic, str(tmp_path / "rows.parquet"), *address).code == 0
    assert kafkalake("produce", topic, *address, stdin="no avro\n").code == 0
    everything = ("consume", topic, "--from-beginning", "--exit-at-end", "--quiet", *address)
    shown = [
        '{"user":"ann","n":1,"raw":{"base64":"/w=="}}',
        '{"price":1.25}',
        '{"user":"007","price":3.50}',
        '{"user":"bob","raw":{"base64":"/v8="}}',
    ]
    assert kafkalake(*everything).stdout.splitlines() == [*shown, "no avro"]
    records = [json.loads(line) for line in kafkalake(*everything, "--format", "json").stdout.splitlines()]
    assert [(record["key"], record["fields"]) for record in records] == [
        *((json.loads(text).get("user"), json.loads(text)) for text in shown),
        (None, None),
    ]
    assert records[1]["value"] == "\x00\x00\x00\x02\x02}"
    head, first, *_ = kafkalake(*everything, "--format", "csv").stdout.splitlines()
    assert head.endswith(",headers,value.user,value.n,value.raw,value.price")
    assert first.endswith(""",,ann,1,"{""base64"":""/w==""}",""")
    ended = kafkalake("sql", f"SELECT user, price FROM {topic} WHERE price > 1", "--json", "--lake", str(broker.lake))
    assert ended.stdout.splitlines() == ['{"user": null, "price": "1.25"}', '{"user": "007", "price": "3.50"}']


def test_what_is_shown_while_it_arrives_has_the_fields_that_a_topic_of_avro_has_got_since(
    kafkalake: Run, kafkalake_broker: Callable[..., Kafkalake]
) -> None:
    address = ("--bootstrap-server", kafkalake_broker().bootstrap_servers)
    topic = topic_name("avro").replace("-", "_")
    options = ("--config", "value.schema=user STRING", "--config", "value.format=avro")
    assert kafkalake("topics", "create", topic, *options, *address).code == 0

    def sent(*lines: str) -> int:
        return kafkalake("produce", topic, "--format", "json", *address, stdin="\n".join(lines)).code

    assert sent('{"user": "ann"}') == 0
    command = [sys.executable, "-m", "kafkalake", "consume", topic, "--from-beginning", "--max-records", "3", *address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '{"user":"ann"}\n'
        assert kafkalake("topics", "alter", topic, "--config", "value.schema=user STRING, n INT", *address).code == 0
        assert sent('{"user": "bob", "n": 2}', '{"user": "eve"}') == 0
        assert process.communicate(timeout=60)[0].splitlines() == ['{"user":"bob","n":2}', '{"user":"eve"}']


def test_a_segment_in_the_words_of_kafka_dump_log(kafkalake: Run, lake: str) -> None:
    (segment,) = Path(lake).glob("logs/0/web-logs-0/*.arrow")
    ended = kafkalake("log", "dump", str(segment))
    assert (ended.code, ended.stderr) == (0, "")
    title, batch, first, second = ended.stdout.splitlines()[:4]
    assert title == f"Dumping {segment}"
    assert batch.startswith("baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: ")
    assert batch.endswith("position: 488 CreateTime: 1000 compresscodec: none")
    assert first == ("| offset: 0 CreateTime: 0 keySize: -1 valueSize: 5 sequence: 0 headerKeys: [h] payload: GET /")
    assert second.startswith("| offset: 1 CreateTime: 1000 ")
    document = json.loads(kafkalake("log", "dump", str(segment), "--json").stdout.splitlines()[0])
    assert (document["kind"], document["count"], document["records"][0]["value"]) == ("batch", 2, "GET /")
    assert "| offset" not in kafkalake("log", "dump", str(segment), "--batches-only").stdout
    state = json.loads(kafkalake("log", "dump", str(segment.parent / "state"), "--json").stdout.splitlines()[-1])
    assert state["kind"] == "state"


def test_what_cannot_be_dumped(kafkalake: Run, lake: str, tmp_path: Path) -> None:
    directory = kafkalake("log", "dump", str(Path(lake) / "logs/0/web-logs-0"))
    assert directory.code == 1
    assert "is a directory; name one of its files, such as " in directory.stderr
    missing = kafkalake("log", "dump", str(tmp_path / "00000000000000000000.arrow"))
    assert (missing.code, missing.stderr) == (1, f"error: {tmp_path}/00000000000000000000.arrow: no such file\n")
    (tmp_path / "notes.txt").write_text("no segment")
    assert "not a file of a log" in kafkalake("log", "dump", str(tmp_path / "notes.txt")).stderr


def test_a_broker_prints_where_it_listens_and_ctrl_c_stops_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kafkalake", "broker", "start", "--lake", str(tmp_path / "lake")]
    broker = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--config", "num.partitions=3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
        text=True,
    )
    try:
        assert broker.stdout is not None
        said = broker.stdout.readline()
        assert said.startswith("listening on 127.0.0.1:")
        with Admin(bootstrap_servers=said.split()[-1]) as admin:
            assert admin.create_topic("t").partitions == 3
        broker.send_signal(signal.SIGINT)
        rest, errors = broker.communicate(timeout=30)
        assert (broker.returncode, rest) == (0, "")
        assert "Traceback" not in errors
    finally:
        broker.kill()
        broker.wait()


def test_a_broker_that_cannot_start_says_why(process: Run, tmp_path: Path, broker: Kafkalake) -> None:
    lake = str(tmp_path / "lake")
    address = f"127.0.0.1:{free_port()}"
    typo = process("broker", "start", "--lake", lake, "--listen", address, "--config", "num.partition=3")
    assert (typo.code, typo.stdout) == (1, "")
    assert "did you mean 'num.partitions'" in typo.stderr
    value = process("broker", "start", "--lake", lake, "--listen", address, "--config", "num.partitions=three")
    assert (value.code, value.stdout) == (1, "")
    assert "num.partitions" in value.stderr
    taken = process("broker", "start", "--lake", lake, "--listen", broker.bootstrap_servers)
    assert (taken.code, taken.stdout) == (1, "")
    assert f"cannot listen on {broker.bootstrap_servers}" in taken.stderr
    second = process("broker", "start", "--lake", str(broker.lake), "--listen", address)
    assert (second.code, second.stdout) == (1, "")
    assert f"pid {broker.pid}" in second.stderr
    assert broker.bootstrap_servers in second.stderr
    (tmp_path / "file").write_text("")
    file = process("broker", "start", "--lake", str(tmp_path / "file"))
    assert (file.code, file.stderr) == (2, f"error: --lake {tmp_path}/file is a file; it takes a directory\n")
