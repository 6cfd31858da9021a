"""`kafkalake produce` and `kafkalake consume` against both brokers, with files, pipes, and Kafka's own console tools."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.kafka_tools import run_tool
from command_line import Run
from kafka_reference import BrokerProcess

AWKWARD = [
    {
        "key": "k",
        "value": "v",
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}],
        "timestamp": 1_000,
    },
    {"key": None, "value": None, "headers": [], "timestamp": 2_000},
    {"key": "", "value": "tab\there, größer, \U0001f600", "headers": [{"key": "h", "value": ""}], "timestamp": 3_000},
    {"key": {"base64": "//4="}, "value": {"base64": "AP+A"}, "headers": [], "timestamp": 4_000},
    {"key": "k", "value": '"quoted", with comma', "headers": [], "timestamp": 5_000},
]


def lines(records: list[dict[str, object]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def consumed(on: Run, topic: str, *arguments: str) -> list[dict[str, object]]:
    """All records of the topic as `consume --json` prints them."""
    ended = on("consume", topic, "--from-beginning", "--exit-at-end", "--json", *arguments)
    assert ended.code == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def console_consumer(broker: BrokerProcess, topic: str, count: int, *properties: str) -> bytes:
    """What Apache Kafka's own `kafka-console-consumer` prints of partition 0."""
    arguments = [
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "earliest",
    ]
    arguments += ["--max-messages", str(count), "--timeout-ms", "30000"]
    for entry in properties:
        arguments += ["--property", entry]
    said = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments, 60)
    kept = [line for line in said.splitlines() if not line.startswith(("SLF4J", "Processed a total"))]
    return "".join(line + "\n" for line in kept).encode()


def test_lines_from_a_pipe(on: Run, process: Run, any_broker: BrokerProcess, topic: str) -> None:
    servers = {"KAFKALAKE_BOOTSTRAP_SERVERS": any_broker.bootstrap_servers}
    sent = process(
        "produce", topic, "--create-topic", environment=servers, stdin="first\n\nthird without an end\r\nlast"
    )
    assert (sent.code, sent.stdout) == (0, "")
    assert sent.stderr.startswith("4 records (")
    read = on("consume", topic, "--from-beginning", "--exit-at-end")
    assert (read.code, read.stdout) == (0, "first\n\nthird without an end\nlast\n")
    assert read.stderr == "Processed a total of 4 messages\n"


def test_keys_before_a_separator_and_nulls(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    sent = on("produce", topic, "--key-separator", "=>", "--null-marker", "NULL", stdin="a=>1=>2\nNULL=>x\nb=>NULL\n")
    assert sent.code == 0
    assert [(record["key"], record["value"]) for record in consumed(on, topic)] == [
        ("a", "1=>2"),
        (None, "x"),
        ("b", None),
    ]


def test_a_line_without_the_separator_ends_it_after_the_lines_before(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    sent = on("produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nc\nd:4\n")
    assert sent.code == 1
    assert sent.stderr.splitlines() == [
        f"2 records were written to {topic}. Once line 3 is mended, --from-line 3 goes on there.",
        "error: line 3 has no key separator ':'",
    ]
    assert [record["value"] for record in consumed(on, topic)] == ["1", "2"]


def test_json_lines_with_key_and_time_from_fields(on: Run, topic: str, tmp_path: Path) -> None:
    assert on("topics", "create", topic).code == 0
    file = tmp_path / "events.jsonl"
    file.write_text(
        '{"user": {"id": "u1"}, "at": 1000}\n\n{"at": "1970-01-01T00:00:02Z", "user": {"id": 7}}\n{"user":{"id":null},"at":3000}\n'
    )
    sent = on("produce", topic, str(file), "--key-field", "user.id", "--timestamp-field", "at", "-H", "source=test")
    assert sent.code == 0, sent.stderr
    read = consumed(on, topic)
    assert [record["key"] for record in read] == ["u1", "7", None]
    assert [record["timestamp"] for record in read] == [1000, 2000, 3000]
    assert [record["value"] for record in read] == [line for line in file.read_text().splitlines() if line]
    assert all(record["headers"] == [{"key": "source", "value": "test"}] for record in read)


def test_a_header_may_be_given_several_times(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    assert on("produce", topic, "-H", "a=1", "-H", "b=", "-H", "a=2", "-H", "a=1", stdin="x\n").code == 0
    (record,) = consumed(on, topic)
    assert record["headers"] == [
        {"key": key, "value": value} for key, value in (("a", "1"), ("b", ""), ("a", "2"), ("a", "1"))
    ]


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ('{"a": 1}\n{"a": \n', (), "line 2 is not JSON"),
        ('{"user": 1}\n{"usr": 2}\n', ("--key-field", "user"), "line 2 has no field 'user'; did you mean 'usr'?"),
        ("[1]\n", ("--key-field", "user"), "line 1 is no JSON object"),
        ('{"at": "soon"}\n', ("--timestamp-field", "at"), "line 1: 'soon' is no timestamp"),
        ('{"a": 1}\n{"a": "\\ud83d"}\n', ("--key-field", "a"), "line 2 has half of a surrogate pair"),
    ],
)
def test_json_that_cannot_be_used(on: Run, topic: str, text: str, arguments: tuple[str, ...], said: str) -> None:
    ended = on("produce", topic, "--create-topic", "--format", "json", *arguments, stdin=text)
    assert (ended.code, ended.stdout) == (1, "")
    assert f"error: {said}" in ended.stderr
    assert len(ended.stderr.splitlines()) == 2  # what was written, and the error


def test_a_name_that_is_no_topic_is_refused(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    ended = on("produce", topic + "x", stdin="a\n")
    assert ended.code == 1
    assert ended.stderr.startswith(f"error: topic '{topic}x' does not exist; did you mean '{topic}'")
    assert ended.stderr.endswith("--create-topic creates it.\n")
    described = on("topics", "describe", topic + "x", topic, "--json")
    assert described.code == 1
    one, unknown = json.loads(described.stdout)
    assert (one["topic"], unknown["topic"]) == (topic, topic + "x")
    assert f"error: {unknown['error']}\n" == described.stderr
    shown = on("topics", "describe", topic + "x", topic)
    assert (shown.code, shown.stderr, shown.stdout[:7]) == (1, described.stderr, "Topic: ")
    states = on("topics", "describe", topic + "x", "--unavailable-partitions", "--json")
    assert (states.code, json.loads(states.stdout)) == (1, [unknown])
    assert on("produce", topic + "x", "--create-topic", stdin="a\n").code == 0
    assert [record["value"] for record in consumed(on, topic + "x")] == ["a"]


def test_bad_lines_are_left_out_or_kept_in_a_file(on: Run, topic: str, tmp_path: Path) -> None:
    assert on("topics", "create", topic).code == 0
    text = '{"a": 1}\nnonsense\n{"a": 2}\n{"b": 3}\n'
    skipped = on("produce", topic, "-f", "json", "--value-field", "a", "--on-error", "skip", "--json", stdin=text)
    assert skipped.code == 0
    assert skipped.stderr.startswith("2 lines were left out; the first: line 2 is not JSON")
    assert (json.loads(skipped.stdout)["records"], json.loads(skipped.stdout)["leftOut"]) == (2, 2)
    kept = tmp_path / "bad.jsonl"
    assert on("produce", topic, "-f", "json", "--value-field", "a", "--on-error", str(kept), stdin=text).code == 0
    assert kept.read_text() == 'nonsense\n{"b": 3}\n'
    assert [record["value"] for record in consumed(on, topic)] == ["1", "2"] * 2
    assert on("produce", topic, "--on-error", str(tmp_path), stdin="a\n").code == 1


def test_the_file_of_bad_lines_loses_neither_the_input_nor_those_of_earlier_runs(
    on: Run, topic: str, tmp_path: Path
) -> None:
    text = '{"a": 1}\nnonsense\n{"a": 2}\n'
    source, kept, link = tmp_path / "events.jsonl", tmp_path / "bad.jsonl", tmp_path / "link"
    source.write_text(text)
    link.symlink_to(source)
    for name in (source, link):
        itself = on("produce", topic, str(source), "--create-topic", "--on-error", str(name))
        assert (itself.code, source.read_text()) == (2, text)
        assert f"--on-error {name} is the input itself" in itself.stderr
    assert on("produce", topic, str(source), "--on-error", "").code == 2
    kept.write_text("earlier\n")
    assert on("produce", topic, str(source), "--on-error", str(kept)).code == 1  # there is no topic
    assert on("produce", topic, str(source), "--create-topic", "--on-error", str(kept)).code == 0
    assert kept.read_text() == "earlier\nnonsense\n"
    full = on("produce", topic, str(source), "--on-error", "/dev/full")
    assert full.code == 1
    assert full.stderr.splitlines() == [
        f"1 record was written to {topic}. Once line 2 is mended, --from-line 2 goes on there.",
        "error: line 2 cannot be kept in /dev/full: No space left on device",
    ]
    assert [record["value"] for record in consumed(on, topic)] == ['{"a": 1}', '{"a": 2}', '{"a": 1}']


def test_values_of_options_that_cannot_be_are_usage_errors(on: Run, topic: str) -> None:
    for option in (["--timeout", "inf"], ["--timeout", "1e300"], ["-H", "\udcff=1"], ["-H", "a=\udcff"]):
        ended = on("produce", topic, "--create-topic", *option, stdin="a\n")
        assert (ended.code, ended.stdout) == (2, ""), ended.stderr
    assert on("topics", "describe", topic).code == 1, "nothing was done"


def test_a_stopped_run_goes_on_at_its_line(on: Run, topic: str, tmp_path: Path) -> None:
    assert on("topics", "create", topic).code == 0
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n3\n5,6\n")
    stopped = on("produce", topic, str(file))
    assert stopped.code == 1
    assert stopped.stderr.splitlines() == [
        f"1 record was written to {topic}. Once line 3 is mended, --from-line 3 goes on there.",
        "error: line 3 has 1 column, the head has 2",
    ]
    file.write_text("a,b\n1,2\n3,4\n5,6\n")
    assert on("produce", topic, str(file), "--from-line", "3").code == 0
    values = [record["value"] for record in consumed(on, topic)]
    assert values == ['{"a":1,"b":2}', '{"a":3,"b":4}', '{"a":5,"b":6}']


def test_a_transaction_is_all_or_nothing(on: Run, topic: str) -> None:
    assert on("topics", "create", topic, "--partitions", "3").code == 0
    good = "".join(f"k{n}:{n}\n" for n in range(50))
    failed = on("produce", topic, "--transactional", "--key-separator", ":", stdin=good + "bad\n")
    assert failed.code == 1
    assert failed.stderr.splitlines()[0] == f"The transaction was aborted: none of its records is in {topic}."
    assert consumed(on, topic) == []
    assert on("produce", topic, "--transactional", "--key-separator", ":", stdin=good).code == 0
    assert sorted(int(record["value"]) for record in consumed(on, topic)) == list(range(50))


def test_csv_rows_become_json_objects_and_numbers_stay_as_they_are_written(on: Run, topic: str, tmp_path: Path) -> None:
    assert on("topics", "create", topic).code == 0
    file = tmp_path / "rows.csv"
    file.write_text('zip,name,price,note\n00501,"O""Neil, A",1.50,\n10001,Müller,-3e5,true\n')
    assert on("produce", topic, str(file), "--key-field", "zip").code == 0
    assert [(record["key"], record["value"]) for record in consumed(on, topic)] == [
        ("00501", '{"zip":"00501","name":"O\\"Neil, A","price":1.50,"note":null}'),
        ("10001", '{"zip":10001,"name":"Müller","price":-3e5,"note":"true"}'),
    ]


def test_parquet_rows_become_json_objects_or_one_column_is_the_value(on: Run, topic: str, tmp_path: Path) -> None:
    assert on("topics", "create", topic).code == 0
    file = tmp_path / "rows.parquet"
    moments = pa.array([1_000, 2_000], pa.int64()).cast(pa.timestamp("ms"))
    table = pa.table({"n": [1, 2], "name": ["a", None], "at": moments, "raw": pa.array([b"\x00\xff", b"text"])})
    pq.write_table(table, file)
    assert (
        on("produce", topic, str(file), "--key-field", "name", "--value-field", "raw", "--timestamp-field", "at").code
        == 0
    )
    assert on("produce", topic, str(file), "--key-field", "n").code == 0
    read = consumed(on, topic)
    assert [(record["key"], record["value"], record["timestamp"]) for record in read[:2]] == [
        ("a", {"base64": "AP8="}, 1000),
        (None, "text", 2000),
    ]
    assert [record["key"] for record in read[2:]] == ["1", "2"]
    assert json.loads(str(read[3]["value"])) == {"n": 2, "name": None, "at": "1970-01-01 00:00:02", "raw": "text"}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.csv", None, "No such file"),
        ("bad.parquet", "this is not parquet", "bad.parquet"),
        ("rows.csv", "a,b\n1,2\n", "there is no column 'c': a, b"),
    ],
)
def test_files_that_cannot_be_read(
    on: Run, topic: str, tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    ended = on("produce", topic, str(tmp_path / name), "--create-topic", "--key-field", "c")
    assert (ended.code, ended.stdout) == (1, "")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_consume_prints_as_json_produce_takes(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    assert on("topics", "create", topic + "-copy").code == 0
    assert on("produce", topic, "--format", "records", stdin=lines(AWKWARD)).code == 0
    first = on("consume", topic, "--from-beginning", "-e", "--json")
    assert on("produce", topic + "-copy", "--format", "records", stdin=first.stdout).code == 0
    read, copied = consumed(on, topic), consumed(on, topic + "-copy")
    fields = ("key", "value", "headers", "timestamp")
    assert [{field: record[field] for field in fields} for record in read] == AWKWARD
    assert [{field: record[field] for field in fields} for record in copied] == AWKWARD
    assert [record["offset"] for record in read] == [0, 1, 2, 3, 4]


def test_text_is_byte_for_byte_what_kafka_console_consumer_prints(
    on: Run, any_broker: BrokerProcess, topic: str
) -> None:
    assert on("topics", "create", topic).code == 0
    text_only = [record for record in AWKWARD if not isinstance(record["value"], dict)]
    assert on("produce", topic, "--format", "records", stdin=lines(text_only)).code == 0
    count = len(text_only)
    properties = [
        "print.timestamp=true",
        "print.partition=true",
        "print.offset=true",
        "print.headers=true",
        "print.key=true",
    ]
    theirs = console_consumer(any_broker, topic, count, *properties, "key.separator=|")
    arguments = [part for entry in (*properties, "key.separator=|") for part in ("--property", entry)]
    ours = on("consume", topic, "--from-beginning", "--max-records", str(count), *arguments)
    assert ours.stdout.encode() == theirs
    flags = ["--print-timestamp", "--print-partition", "--print-offset", "--print-headers", "--print-key"]
    assert on("consume", topic, "--from-beginning", "-e", *flags).stdout.encode() == theirs.replace(b"|", b"\t")


def test_csv_output_reads_back(on: Run, topic: str) -> None:
    import csv
    import io

    assert on("topics", "create", topic).code == 0
    assert on("produce", topic, "--format", "records", stdin=lines(AWKWARD)).code == 0
    ended = on("consume", topic, "--from-beginning", "-e", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ended.stdout)))
    assert [row["offset"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert rows[2]["value"] == AWKWARD[2]["value"]
    assert rows[3]["value"] == "base64:AP+A"
    assert rows[4]["value"] == AWKWARD[4]["value"]
    assert json.loads(rows[0]["headers"]) == {"a": None}


def test_where_consuming_starts(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    sent = [{"value": str(number), "timestamp": 1_000 * number} for number in range(10)]
    assert on("produce", topic, "--format", "records", stdin=lines(sent)).code == 0

    def values(*arguments: str) -> str:
        ended = on("consume", topic, "--exit-at-end", "--quiet", *arguments)
        assert (ended.code, ended.stderr) == (0, "")
        return "".join(ended.stdout.split())

    assert values("--from-beginning") == "0123456789"
    assert values() == ""
    assert values("--offset", "7") == "789"
    assert values("--offset", "-2") == "89"
    assert values("--offset", "earliest", "-n", "3") == "012"
    assert values("--offset", "latest") == ""
    assert values("--from-time", "1970-01-01T00:00:04.500Z") == "56789"
    assert values("--from-time", "6000", "--max-records", "2") == "67"
    assert values("--from-time", "1h") == ""
    outside = on("consume", topic, "--offset", "11", "-e", "--timeout", "5")
    assert (outside.code, outside.stdout) == (0, "")
    failed = on("consume", topic, "--offset", "11", "--timeout", "5")
    assert failed.code == 1
    assert f"error: partition {topic}-0 has no offset 11: it goes from 0 to 10" in failed.stderr


def test_only_some_partitions(on: Run, topic: str) -> None:
    assert on("topics", "create", topic, "-p", "3").code == 0
    for partition in range(3):
        assert on("produce", topic, "--partition", str(partition), stdin=f"p{partition}\n").code == 0
    assert on("consume", topic, "--from-beginning", "-e", "-p", "1").stdout == "p1\n"
    assert sorted(on("consume", topic, "--from-beginning", "-e", "-p", "0", "-p", "2").stdout.split()) == ["p0", "p2"]
    wrong = on("consume", topic, "-p", "3")
    assert (wrong.code, wrong.stderr) == (1, f"error: topic '{topic}' has no partition 3; it has 3, numbered from 0\n")


def test_consume_ends_when_nothing_comes(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    assert on("produce", topic, stdin="a\n").code == 0
    started = time.monotonic()
    ended = on("consume", topic, "--from-beginning", "--timeout", "1")
    assert (ended.code, ended.stdout) == (0, "a\n")
    assert 1 <= time.monotonic() - started < 20


def test_a_topic_that_is_not_there_is_named_with_its_neighbour(on: Run, topic: str) -> None:
    assert on("produce", topic, "--create-topic", stdin="a\n").code == 0
    ended = on("consume", topic[:-1] + "_", "--from-beginning")
    assert (ended.code, ended.stdout) == (1, "")
    assert f"did you mean '{topic}'" in ended.stderr


def on_a_terminal(broker: BrokerProcess, *arguments: str) -> bytes:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "KAFKALAKE_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "COLUMNS": "100"}
    command = [sys.executable, "-m", "kafkalake", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        written = b""
        try:
            while piece := os.read(ours, 65_536):
                written += piece
        except OSError:  # the other side has gone
            pass
        os.close(ours)
        assert process.wait(60) == 0
    return written


@pytest.mark.parametrize("any_broker", ["kafkalake"], indirect=True)
def test_escapes_of_strangers_do_not_reach_the_terminal(on: Run, any_broker: BrokerProcess, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    assert on("produce", topic, stdin="clear\x1b[2J\x9b and \u202egnp.exe\n").code == 0
    group = f"{topic}-\x1b[2J"
    assert on("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute").code == 0
    assert on("consume", topic, "--from-beginning", "-e", "-q").stdout == "clear\x1b[2J\x9b and \u202egnp.exe\n"
    arguments = ("consume", topic, "--from-beginning", "-e", "-q")
    assert on_a_terminal(any_broker, *arguments) == b"clear\\x1b[2J\\u009b and \\u202egnp.exe\r\n"
    assert b"clear\x1b[2J" in on_a_terminal(any_broker, *arguments, "--raw")
    for command in ("list", "describe", "members"):
        shown = on_a_terminal(any_broker, "groups", command, *(() if command == "list" else (group,)))
        assert b"\\x1b[2J" in shown
        assert b"\x1b[2J" not in shown


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_a_summary_as_json(on: Run, topic: str, codec: str) -> None:
    assert on("topics", "create", topic, "-p", "2").code == 0
    text = "".join(f"line {number}\n" for number in range(2_000))
    sent = on("produce", topic, "--compression", codec, "--json", stdin=text)
    summary = json.loads(sent.stdout)
    assert (sent.code, sent.stderr) == (0, "")
    assert summary["records"] == sum(summary["nextOffsets"].values()) == 2_000
    assert summary["bytes"] < len(text)
    read = on("consume", topic, "--from-beginning", "-e", "-q").stdout
    assert sorted(read.splitlines()) == sorted(text.splitlines())


def start(broker: BrokerProcess, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "kafkalake", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KAFKALAKE_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
    )


def test_lines_arrive_while_both_ends_are_open_and_ctrl_c_ends_it_cleanly(
    on: Run, any_broker: BrokerProcess, topic: str
) -> None:
    assert on("topics", "create", topic).code == 0
    producer, consumer = start(any_broker, "produce", topic), start(any_broker, "consume", topic, "--from-beginning")
    try:
        assert producer.stdin is not None and consumer.stdout is not None
        for text in (b"one\n", b"two\n"):
            producer.stdin.write(text)
            producer.stdin.flush()
            assert consumer.stdout.readline() == text
        consumer.send_signal(signal.SIGINT)
        _, said = consumer.communicate(timeout=20)
        assert (consumer.returncode, said) == (130, b"Processed a total of 2 messages\n")
        producer.stdin.close()
        assert producer.wait(20) == 0
    finally:
        for process in (producer, consumer):
            process.kill()
            process.wait()


def test_a_reader_that_goes_away_ends_it_quietly(on: Run, any_broker: BrokerProcess, topic: str) -> None:
    assert on("produce", topic, "--create-topic", stdin="a line\n" * 200_000).code == 0
    consumer = start(any_broker, "consume", topic, "--from-beginning", "--quiet")
    try:
        assert consumer.stdout is not None and consumer.stderr is not None
        assert consumer.stdout.readline() == b"a line\n"
        consumer.stdout.close()
        assert consumer.wait(20) == 0
        assert consumer.stderr.read() == b""
    finally:
        consumer.kill()
        consumer.wait()


def test_a_group_goes_on_where_it_was(on: Run, topic: str) -> None:
    assert on("topics", "create", topic, "--partitions", "2").code == 0
    lines_of = {
        "first": "".join(f"k{n}:{n}\n" for n in range(20)),
        "then": "".join(f"k{n}:{n}\n" for n in range(20, 30)),
    }
    assert on("produce", topic, "--key-separator", ":", stdin=lines_of["first"]).code == 0
    group = ("consume", topic, "--group", f"g-{topic}", "--from-beginning", "-e", "-q")

    def read(*arguments: str) -> list[int]:
        ended = on(*group, *arguments)
        assert ended.code == 0, ended.stderr
        return sorted(map(int, ended.stdout.split()))

    assert read("--commit", "none") == list(range(20))
    assert len(read("--max-records", "7")) == 7
    assert len(read()) == 13  # no record of a batch that was printed in part comes twice or is left out
    assert read() == []
    assert on("produce", topic, "--key-separator", ":", stdin=lines_of["then"]).code == 0
    assert read() == list(range(20, 30))
    rows = json.loads(on("groups", "describe", f"g-{topic}", "--json").stdout)
    assert sum(row["currentOffset"] for row in rows) == 30
    assert [row["lag"] for row in rows] == [0, 0]


def test_two_members_of_a_group_share_its_partitions(on: Run, any_broker: BrokerProcess, topic: str) -> None:
    assert on("topics", "create", topic, "--partitions", "2").code == 0
    members = [start(any_broker, "consume", topic, "--group", f"g-{topic}", "--from-beginning", "-q") for _ in range(2)]
    try:
        deadline = time.monotonic() + 60
        while True:
            described = on("groups", "members", f"g-{topic}", "--json")
            shown = json.loads(described.stdout) if described.code == 0 else {"members": []}
            if shown.get("state") == "Stable" and len(shown["members"]) == 2:
                break
            assert time.monotonic() < deadline, shown
        assert [len(member["partitions"]) for member in shown["members"]] == [1, 1]
        for partition in ("0", "1"):
            assert on("produce", topic, "--partition", partition, stdin=f"to {partition}\n").code == 0
        assert sorted(member.stdout.readline() for member in members if member.stdout) == [b"to 0\n", b"to 1\n"]
        for member in members:
            member.send_signal(signal.SIGINT)
            member.wait(30)
    finally:
        for member in members:
            member.kill()
            member.wait()
    # A record whose line was out when Ctrl-C came may not be committed yet: the group's next member prints just those.
    rest = on("consume", topic, "--group", f"g-{topic}", "--from-beginning", "--exit-at-end", "-q").stdout.splitlines()
    assert set(rest) < {"to 0", "to 1"}
    rows = json.loads(on("groups", "describe", f"g-{topic}", "--json").stdout)
    assert [(row["currentOffset"], row["lag"]) for row in rows] == [(1, 0), (1, 0)]


@pytest.mark.parametrize("arguments", [("--partition", "0"), ("--offset", "3"), ("--from-time", "1h")])
def test_a_group_says_itself_where_it_reads(on: Run, topic: str, arguments: tuple[str, ...]) -> None:
    ended = on("consume", topic, "--group", "g", *arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert "--group reads what the group assigns" in ended.stderr
    assert on("consume", topic, "--commit", "none").code == 2
