"""AppendStaged at a running broker: all or nothing for every reason to refuse, once for every way to ask twice."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka.admin
import pyarrow as pa
import pytest
from kafka_reference import Kafkalake, create_topic, topic_name
from staged_jobs import TIMEOUT_S, addresses, append, consumed, describe, numbered, stage
from waiting import wait_until

from kafkalake.broker.staged.commits import CommitFiles, Committed, UnderWay
from kafkalake.broker.staged.request import AppendRequest, StagedFile
from kafkalake.broker.staged.service import RUNS_MAX, StagedAppendResult, StagedAppends
from kafkalake.client.staged_append import ask_once, ask_until
from kafkalake.dataset import topic_dataset
from kafkalake.delayed_headers import DELAY_MS
from kafkalake.errors import (
    BrokerUnavailableError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    KafkaLakeError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalake.metadata.identity import known_cluster_id
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.staging import commits_path, staging_path
from kafkalake.wire.staged_append import API_KEY, body_of_request, decode_response, encode_request

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    with Kafkalake(settings={"staged.append.max.bytes": "1000000"}) as broker:
        yield broker


@pytest.fixture
def clicks(broker: Kafkalake) -> str:
    name = topic_name("clicks")
    create_topic(broker, name, partitions=2)
    return name


def count(broker: Kafkalake, topic: str) -> int:
    return int(topic_dataset(str(broker.lake), topic).count_rows())


def test_one_request_writes_to_several_topics_or_to_none(broker: Kafkalake, clicks: str) -> None:
    views = topic_name("views")
    create_topic(broker, views)
    described = describe(broker, clicks, views)
    assert [(topic["name"], topic["partitions"]) for topic in described["topics"]] == [(clicks, 2), (views, 1)]
    rows = numbered(0, 100)
    topics = pa.array([clicks if number % 2 else views for number in range(100)])
    request = stage(broker.lake, described, clicks, [[rows.append_column("topic", topics)]])
    assert request["partitions"] == [(0, 0), (0, 1), (1, 0)]
    with pytest.raises(InvalidRecordError, match="which its job did not name"):
        append(broker, {**request, "partitions": [(0, 0), (0, 1)]})
    assert (count(broker, clicks), count(broker, views)) == (0, 0)
    assert append(broker, request)["records"] == 100
    assert (count(broker, clicks), count(broker, views)) == (50, 50)


def test_the_same_request_twice_at_once_is_one_append(broker: Kafkalake, clicks: str) -> None:
    request = stage(broker.lake, describe(broker, clicks), clicks, [[numbered(0, 3_000)]])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: append(broker, request), range(4)))
    assert all(answer["records"] == 3_000 for answer in answers)
    assert count(broker, clicks) == 3_000
    assert append(broker, {**request, "version": 0, "files": []})["again"]


def test_a_version_that_a_user_has_named_counts_for_each_topic(broker: Kafkalake, clicks: str) -> None:
    views, job = topic_name("views"), f"etl-{clicks}"
    create_topic(broker, views)

    def request(topic: str, version: int) -> dict[str, Any]:
        staged = stage(broker.lake, describe(broker, topic), f"{job}-{topic}", [[numbered(0, 10)]], version=version)
        return {**staged, "application": job, "is_named": True}

    assert not append(broker, request(clicks, 4))["again"]
    for again in (False, True):
        assert append(broker, request(views, 4))["again"] == again
    assert append(broker, request(clicks, 4))["again"]
    assert append(broker, request(views, 5)) == {"error": 0, "records": 10, "again": False, "version": 5}
    assert append(broker, request(views, 4))["again"], "as an older version"
    assert append(broker, {**request(clicks, 5), "is_named": False})["again"], (
        "a stream whose batch went elsewhere before"
    )
    assert not append(broker, request(clicks, 5))["again"]
    assert (count(broker, clicks), count(broker, views)) == (20, 20)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([clicks])[clicks].result(TIMEOUT_S)
    create_topic(broker, clicks)
    assert not append(broker, request(clicks, 5))["again"], "a topic made anew is another one"
    assert count(broker, clicks) == 10


def test_a_request_for_several_topics_passes_over_those_that_have_its_version(broker: Kafkalake, clicks: str) -> None:
    views, job = topic_name("views"), f"etl-{clicks}"
    create_topic(broker, views)
    named = {"application": job, "is_named": True}
    alone = stage(broker.lake, describe(broker, clicks), f"{job}-alone", [[numbered(0, 10)]])
    assert not append(broker, {**alone, **named})["again"]
    topics = pa.array([clicks if number % 5 else views for number in range(100)])
    rows = numbered(0, 100).append_column("topic", topics)
    both = stage(broker.lake, describe(broker, clicks, views), job, [[rows], [rows]]) | named
    assert append(broker, both) == {"error": 0, "records": 40, "again": False, "version": 0}
    assert append(broker, both)["again"]
    assert append(broker, {**both, "version": 1}) == {"error": 0, "records": 200, "again": False, "version": 1}
    assert append(broker, {**both, "version": 1})["again"]
    assert (count(broker, clicks), count(broker, views)) == (10 + 160, 40 + 40)


def test_a_client_that_goes_away_does_not_stop_what_it_asked_for(broker: Kafkalake, clicks: str) -> None:
    request = stage(broker.lake, describe(broker, clicks), clicks, [[numbered(0, 3_000)]])
    with socket.create_connection(addresses(broker)[0]) as connection:
        connection.sendall(encode_request(1, "gone", request))
    assert append(broker, request)["records"] == 3_000
    assert count(broker, clicks) == 3_000


def staged_host() -> Any:
    """A broker that coordinates everything."""

    async def run_blocking(work: Callable[[], Any]) -> Any:
        return work()

    async def make_ready() -> None: ...

    transactions = SimpleNamespace(
        coordinator_elsewhere=lambda transactional_id: None,
        epoch_of=lambda transactional_id: 0,
        journal=SimpleNamespace(make_ready=make_ready),
    )
    return SimpleNamespace(run_blocking=run_blocking, transactions=transactions)


def test_two_jobs_append_at_a_time_and_a_third_waits_for_its_turn(tmp_path: Path) -> None:
    begun: list[str] = []

    async def check() -> None:
        released = asyncio.Event()

        class Held(StagedAppends):
            def _check(self, request: AppendRequest) -> Any:
                return {}

            async def _append(
                self, request: AppendRequest, committed: Any, partitions: Any, epoch: int
            ) -> StagedAppendResult:
                begun.append(request.application)
                await released.wait()
                return StagedAppendResult(request.records, again=False, version=request.version)

        appends = Held(staged_host(), tmp_path, REAL_FILES)
        jobs = [f"job-{number}" for number in range(RUNS_MAX + 1)]
        file = StagedFile("f", 1, 1, 100)
        requests = [AppendRequest(job, 0, "d", (("t", "i"),), ((0, 0),), (file,)) for job in jobs]
        running = [asyncio.ensure_future(appends.append(request)) for request in requests]
        while len(begun) < RUNS_MAX:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert begun == jobs[:RUNS_MAX]
        released.set()
        assert [each.records for each in await asyncio.gather(*running)] == [100] * len(jobs)
        assert begun == jobs

    asyncio.run(check())


def test_a_commit_that_cannot_be_settled_holds_up_its_own_job_alone(tmp_path: Path) -> None:
    ended: list[str] = []

    async def check() -> None:
        released, begun = asyncio.Event(), asyncio.Event()

        class Held(StagedAppends):
            async def _settle(self, committed: Committed, epoch: int) -> Committed:
                if committed.under_way is not None:
                    begun.set()
                    await released.wait()
                return replace(committed, under_way=None)

            def _check(self, request: AppendRequest) -> Any:
                return {}

            async def _append(
                self, request: AppendRequest, committed: Committed, partitions: Any, epoch: int
            ) -> StagedAppendResult:
                ended.append(request.application)
                return StagedAppendResult(request.records, again=False, version=request.version)

        CommitFiles(commits_path(tmp_path), REAL_FILES).save(Committed("stuck", 0, 1, UnderWay(1, 7, 0, 1)), 0)
        appends = Held(staged_host(), tmp_path, REAL_FILES)
        appends.recover()
        await begun.wait()
        file = StagedFile("f", 1, 1, 100)
        stuck, other = (AppendRequest(job, 2, "d", (("t", "i"),), ((0, 0),), (file,)) for job in ("stuck", "other"))
        held = asyncio.ensure_future(appends.append(stuck))
        await appends.append(other)
        assert ended == ["other"]
        appends.recover()
        released.set()
        await held
        assert ended == ["other", "stuck"]
        appends.stop()

    asyncio.run(check())


def test_nothing_but_regular_files_of_a_real_directory_is_read(broker: Kafkalake, clicks: str, tmp_path: Path) -> None:
    request = stage(broker.lake, describe(broker, clicks), clicks, [[numbered(0, 100)]])
    directory = staging_path(broker.lake) / request["directory"]
    ((name, *_),) = request["files"]
    kept = directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(kept)
    with pytest.raises(KafkaLakeError, match="cannot be read"):
        append(broker, request)
    directory.unlink()
    directory.mkdir()
    for make in (os.mkfifo, lambda path: path.symlink_to(kept / name), lambda path: path.mkdir()):
        make(directory / name)  # type: ignore[no-untyped-call]
        with pytest.raises(KafkaLakeError, match="cannot be read"):
            append(broker, request)
        (directory / name).rename(tmp_path / f"done-{make}".replace("/", ""))
    kept_file = (kept / name).read_bytes()
    (directory / name).write_bytes(kept_file)
    assert append(broker, request)["records"] == 100


def test_a_version_without_files_commits_nothing(broker: Kafkalake, clicks: str) -> None:
    request = stage(broker.lake, describe(broker, clicks), clicks, [[numbered(0, 100)]], version=5)
    empty = request | {"files": [], "partitions": []}
    for version in (6, 2**63 - 1):
        assert append(broker, empty | {"version": version})["version"] == -1
    assert append(broker, request) == {"error": 0, "records": 100, "again": False, "version": 5}
    assert append(broker, request | {"version": 4}) == {"error": 0, "records": 0, "again": True, "version": 5}


def test_large_requests_that_say_nothing_cost_little(broker: Kafkalake, clicks: str) -> None:
    def asked(text: bytes) -> dict[str, Any]:
        frame = encode_request(3, "x", {})[4:-2] + text
        with socket.create_connection(addresses(broker)[0], 60) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            return decode_response(3, connection.recv(size, socket.MSG_WAITALL))

    before = rss_bytes(broker.pid)
    padding = b"[]," * (10 << 20)
    for text in (
        b'{"ask":"describe"}',
        b'{"ask":"describe","topics":{}}',
        b'{"ask":"describe","topics":[[]]}',
        b'{"ask":"describe","topics":["%s"]}' % (b"x" * (31 << 20)),
        b'{"ask":"describe","topics":[%s[]]}' % padding,
        b'{"ask":"append","files":[%s[]]}' % padding,
        b'{"ask":"append","files":[["a",1,1,1]],"topics":[%s[]]}' % padding,
    ):
        answer = asked(text)
        assert answer["error"] == InvalidRequestError.code
        assert len(answer["message"]) < 400
    # The frames themselves, and what the allocator keeps.
    assert rss_bytes(broker.pid) - before < 3 * (31 << 20) + (64 << 20)
    files = [(f"task-{number}.arrow", 1000, 1, 1) for number in range(100_000)]
    with pytest.raises(MessageTooLargeError):
        append(broker, stage(broker.lake, describe(broker, clicks), clicks, [[numbered(0, 1)]]) | {"files": files})


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_whatever_is_wrong_with_the_files_nothing_is_seen_and_a_right_request_follows(
    broker: Kafkalake, clicks: str
) -> None:
    described = describe(broker, clicks)
    tasks = [[numbered(0, 500)], [numbered(500, 500)]]
    request = stage(broker.lake, described, clicks, tasks)
    directory = staging_path(broker.lake) / request["directory"]
    name, size, batches, records = request["files"][1]

    def refused(message: str, **changes: Any) -> None:
        with pytest.raises(KafkaLakeError, match=message) as raised:
            append(broker, request | changes)
        assert str(broker.lake) not in str(raised.value), "where the lake lies is nobody's business"
        assert count(broker, clicks) == 0

    refused("its job wrote 999", files=[request["files"][0], (name, size, batches, 999)])
    refused("bytes, its job wrote", files=[request["files"][0], (name, size - 1, batches, records)])
    refused("No such file", files=[request["files"][0], ("other", size, batches, records)])
    refused("which its job did not name", partitions=request["partitions"][:1])
    damaged(directory / name)
    refused("checksum")
    stage(broker.lake, described, clicks, tasks)
    assert append(broker, request) == {"error": 0, "records": 1_000, "again": False, "version": 0}
    assert sorted(
        int(key or b"") for _, _, key in consumed(broker.bootstrap_servers, clicks, "read_committed")
    ) == list(range(1_000))


def test_what_the_topic_does_not_take_is_refused(broker: Kafkalake, clicks: str) -> None:
    request = stage(broker.lake, describe(broker, clicks), clicks, [[numbered(0, 10)]])
    ((name, topic_id),) = request["topics"]
    with pytest.raises(UnknownTopicOrPartitionError, match="is not there any more"):
        append(broker, {**request, "topics": [(name, "0" * 8 + topic_id[8:])]})
    with pytest.raises(UnknownTopicOrPartitionError, match="lacks that partition"):
        append(broker, {**request, "partitions": [(0, 7)]})
    with pytest.raises(KafkaLakeError, match="internal topic"):
        append(broker, {**request, "topics": [("__consumer_offsets", topic_id)]})
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic 'clikcs'"):
        describe(broker, "clikcs")
    with pytest.raises(MessageTooLargeError, match=r"staged.append.max.bytes is 1000000"):
        append(broker, {**request, "files": [(file, 2_000_000, 1, 1) for file, *_ in request["files"]]})

    small, compacted = topic_name("small"), topic_name("compacted")
    create_topic(broker, small, config={"max.message.bytes": "2000"})
    create_topic(broker, compacted, config={"cleanup.policy": "compact"})
    careless = describe(broker, small)
    careless["topics"][0]["message_bytes_max"] = 100_000
    with pytest.raises(MessageTooLargeError, match=r"max.message.bytes is 2000"):
        append(broker, stage(broker.lake, careless, small, [[numbered(0, 100)]]))
    careless = describe(broker, compacted)
    careless["topics"][0]["key_required"] = False
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"1"], pa.binary())})
    with pytest.raises(InvalidRecordError, match="no record without a key"):
        append(broker, stage(broker.lake, careless, compacted, [[rows]]))
    assert (count(broker, small), count(broker, compacted), count(broker, clicks)) == (0, 0, 0)


def test_times_that_the_topic_does_not_take_from_producers_are_refused(broker: Kafkalake) -> None:
    now_ms = time.time_ns() // 1_000_000
    hour_ms = 3_600_000

    def appended(topic: str, *times: int) -> int:
        rows = numbered(0, len(times)).append_column("timestamp", pa.array(times, pa.timestamp("ms", tz="UTC")))
        return int(append(broker, stage(broker.lake, describe(broker, topic), topic, [[rows]]))["records"])

    names = [topic_name(each) for each in ("any", "recent", "own")]
    create_topic(broker, names[0])
    create_topic(broker, names[1], config={"message.timestamp.before.max.ms": str(hour_ms)})
    create_topic(broker, names[2], config={"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(InvalidTimestampError, match=r"message.timestamp.after.max.ms is 3600000"):
        appended(names[0], now_ms, now_ms + 2 * hour_ms, 0)
    with pytest.raises(InvalidTimestampError, match=r"message.timestamp.before.max.ms is 3600000"):
        appended(names[1], now_ms, now_ms - 2 * hour_ms)
    assert [count(broker, name) for name in names] == [0, 0, 0]
    assert appended(names[0], now_ms, -1, 0, -(2**40)) == 4
    assert appended(names[1], now_ms, -1) == 2  # -1: the producer gave none
    assert appended(names[2], now_ms + 2 * hour_ms) == 1


def with_delays(first: int, delays: list[bytes | None]) -> pa.RecordBatch:
    """Rows with a header for their delay, where there is one."""
    headers = [[] if delay is None else [{"key": DELAY_MS, "value": delay}] for delay in delays]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return numbered(first, len(delays)).append_column("headers", pa.array(headers, kind))


def test_rows_with_delays_wait_for_their_time_if_their_job_is_committed(broker: Kafkalake) -> None:
    jobs = topic_name("jobs")
    create_topic(broker, jobs, partitions=2, config={"delayed.delivery.enable": "true", "delay.levels": "300ms"})
    level = f"{jobs}-delay-300ms"
    described = describe(broker, jobs)
    with pytest.raises(InvalidRecordError, match="no number of milliseconds"):
        append(broker, stage(broker.lake, described, jobs, [[with_delays(90, [None, b"1", b"soon"])]]))
    request = stage(broker.lake, described, jobs, [[with_delays(0, [None, b"400", None, b"400"])]], version=1)
    damaged = {**request, "files": [(*request["files"][0][:3], 5)]}
    with pytest.raises(KafkaLakeError, match="its job wrote 5"):
        # when all of it has been appended: it is aborted; a coordinator that is loading is asked again
        ask_until(lambda: addresses(broker), damaged, TIMEOUT_S)
    assert append(broker, request)["records"] == 4
    assert append(broker, request)["again"]
    at_level = describe(broker, level)
    assert append(broker, stage(broker.lake, at_level, level, [[numbered(10, 3)]]))["records"] == 3

    def keys() -> list[int]:
        return sorted(int(key or b"") for _, _, key in consumed(broker.bootstrap_servers, jobs, "read_committed"))

    wait_until(lambda: len(keys()) >= 7)
    assert keys() == [0, 1, 2, 3, 10, 11, 12]


@pytest.mark.parametrize(
    "changes",
    [
        {"ask": "destroy"},
        {"application": ""},
        {"application": "x" * 201},
        {"application": "job\n2026-01-01 ERROR forged"},
        {"application": "\u202e"},
        {"version": -1},
        {"version": True},
        {"directory": ".."},
        {"directory": "../logs"},
        {"directory": ".commits"},
        {"files": [("../state", 1, 1, 1)]},
        {"files": [("a", 1, 1)]},
        {"files": "many"},
        {"topics": [("t",)]},
        {"partitions": [(5, 0)]},
        {"partitions": []},
    ],
)
def test_malformed_requests_are_refused(broker: Kafkalake, changes: dict[str, Any]) -> None:
    request = {
        "ask": "append",
        "application": "a",
        "version": 0,
        "directory": "d",
        "topics": [("t", "i")],
        "partitions": [(0, 0)],
        "files": [("f", 1, 1, 1)],
    }
    with pytest.raises(InvalidRequestError, match="malformed AppendStaged request"):
        ask_once(addresses(broker), request | changes, 10)


def test_bytes_that_are_no_request_close_their_connection_only(broker: Kafkalake, clicks: str) -> None:
    for body in (
        b"\x27\x11\x00\x00" + b"\x00" * 3,
        b"\x27\x11\x00\x00\x00\x00\x00\x00\x7f\xff",
        b"\x27\x11\x00\x01" + b"\x00" * 6,
    ):
        with socket.create_connection(addresses(broker)[0], 10) as connection:
            connection.sendall(len(body).to_bytes(4, "big") + body)
            assert connection.recv(100) == b""
    for text in (b"{", b"[]", b"[" * 100_000, b"\xff"):
        frame = encode_request(3, "x", {})[4:-2] + text
        assert body_of_request(frame) == text
        with socket.create_connection(addresses(broker)[0], 10) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            answer = connection.recv(1_000)
        assert decode_response(3, answer[4:])["error"] == InvalidRequestError.code
    assert API_KEY == 0x2711
    assert describe(broker, clicks)["error"] == 0


def test_a_broker_of_another_cluster_is_no_broker_of_the_lake(broker: Kafkalake, clicks: str) -> None:
    described = describe(broker, clicks)
    assert described["lake"] == str(broker.lake)
    assert described["cluster_id"] == known_cluster_id(broker.lake)
    question = {"ask": "describe", "topics": None, "cluster_id": described["cluster_id"]}
    assert ask_once(addresses(broker), question, 10)["error"] == 0
    for request in ({**question, "cluster_id": "x"}, {**stage(broker.lake, described, clicks, []), "cluster_id": "x"}):
        with pytest.raises(BrokerUnavailableError, match=f"this is a broker of cluster {described['cluster_id']}"):
            ask_once(addresses(broker), request, 10)


def test_ports_without_a_broker_are_no_broker() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(BrokerUnavailableError, match="no answer in time"),
    ):
        ask_once([silent.getsockname()], {"ask": "describe", "topics": None}, 0.2)
    with pytest.raises(InvalidRequestError, match="too many staged files"):
        ask_once([("127.0.0.1", 1)], {"files": ["x" * (33 << 20)]}, 1)
    assert json.loads(encode_request(0, "c", {"a": 1})[4 + 11 :]) == {"a": 1}
