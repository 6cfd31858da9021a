"""A broker process from start to stop: lease, graceful stop, restart, kill, settings, what a crash leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract.test_configs_contract import incremental, settings
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce, values_of
from kafka_reference import BrokerFailed, Kafkalake, free_port
from waiting import wait_until

from kafkalake.errors import LeaseHeldError
from kafkalake.metadata.delta import DeltaMetadataStore

StartBroker = Callable[..., Kafkalake]
BROKER, SET = 4, 0


def store_of(lake: Path) -> DeltaMetadataStore:
    return DeltaMetadataStore(lake, create=False)


def run_to_its_end(lake: Path, *more: str, port: int | None = None) -> subprocess.CompletedProcess[str]:
    listen = f"127.0.0.1:{port or free_port()}"
    command = [sys.executable, "-m", "kafkalake.cli.main", "broker", "start", "--lake", str(lake), "--listen", listen]
    return subprocess.run([*command, *more], capture_output=True, text=True, timeout=60, check=False)


def test_a_second_broker_is_told_who_holds_the_lease(kafkalake_broker: StartBroker) -> None:
    first = kafkalake_broker()
    second = run_to_its_end(first.lake)
    assert second.returncode == 1
    assert second.stdout == ""
    assert f"127.0.0.1:{first.port}" in second.stderr
    assert str(first.pid) in second.stderr
    with WireClient(first.bootstrap_servers) as client:
        assert client.call("ApiVersions", 0).api_keys


@pytest.mark.process
def test_a_hangup_is_a_stop_in_order(kafkalake_broker: StartBroker) -> None:
    broker = kafkalake_broker()
    os.kill(broker.pid, signal.SIGHUP)
    wait_until(lambda: not broker.is_running(), timeout_s=20)
    assert store_of(broker.lake).load_brokers() == []
    assert "in_time=True" in broker.stderr_path.read_text()


@pytest.mark.process
def test_a_bad_setting_is_one_sentence(tmp_path: Path) -> None:
    for setting, said in (("no.such.setting=1", "no.such.setting"), ("num.partitions=abc", "Not a number")):
        ended = run_to_its_end(tmp_path / "lake", "--config", setting)
        assert ended.returncode != 0
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_one_sentence(kafkalake_broker: StartBroker, tmp_path: Path) -> None:
    first = kafkalake_broker()
    ended = run_to_its_end(tmp_path / "other", port=first.port)
    assert ended.returncode == 1
    assert str(first.port) in ended.stderr
    assert "Traceback" not in ended.stderr


class _SendingClient(WireClient):
    """One that tells when it has sent a request."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.has_sent = threading.Event()

    def send(self, api: str, version: int, **values: Any) -> int:
        number = super().send(api, version, **values)
        self.has_sent.set()
        return number


class TestGracefulStop:
    def test_everything_is_published_and_sealed(self, kafkalake_broker: StartBroker, topic: str) -> None:
        broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "600000"})
        with WireClient(broker.bootstrap_servers) as client:
            create_topic(client, topic, 2)
            for number in range(5):
                produce(client, topic, batch([(None, b"%d" % number)]))
        broker.stop()
        store = store_of(broker.lake)
        partitions = {row.partition: row for row in store.load_partitions() if row.topic == topic}
        assert [partitions[0].high_watermark, partitions[0].log_end_offset] == [5, 5]
        assert partitions[1].high_watermark == 0
        (segment,) = [row for row in store.load_segments() if row.topic == topic]
        assert (segment.base_offset, segment.next_offset, segment.records) == (0, 5, 5)
        assert (broker.lake / segment.path).stat().st_size == segment.bytes
        assert store.load_brokers() == []

    def test_waiting_requests_are_answered(self, kafkalake_broker: StartBroker, topic: str) -> None:
        broker = kafkalake_broker()
        answers: list[int] = []
        with _SendingClient(broker.bootstrap_servers) as client:
            create_topic(client, topic)
            client.has_sent.clear()

            def wait() -> None:
                answers.append(code(fetch(client, topic, 0, max_wait=60_000).error_code))

            waiting = threading.Thread(target=wait)
            waiting.start()
            assert client.has_sent.wait(10)
            with WireClient(broker.bootstrap_servers) as later:  # what was there before it is read by now
                later.call("ApiVersions", 0)
            begin = time.monotonic()
            broker.stop()
            waiting.join(10)
        assert answers == [0]
        assert time.monotonic() - begin < 15

    def test_it_goes_on_after_a_restart(self, kafkalake_broker: StartBroker, topic: str) -> None:
        broker = kafkalake_broker()
        for turn in range(3):
            with WireClient(broker.bootstrap_servers) as client:
                if turn == 0:
                    create_topic(client, topic)
                assert produce(client, topic, batch([(None, b"%d" % turn)])).base_offset == turn
                found = [values_of(fetch(client, topic, offset).records)[0] for offset in range(turn + 1)]
                assert found == [(offset, b"%d" % offset) for offset in range(turn + 1)]
            broker.restart()


class TestKill:
    def test_what_was_not_published_is_published_at_the_next_start(
        self, kafkalake_broker: StartBroker, topic: str
    ) -> None:
        broker = kafkalake_broker(
            settings={"metadata.publish.interval.ms": "600000", "internal.segment.bytes": "20000"}
        )
        with WireClient(broker.bootstrap_servers) as client:
            create_topic(client, topic)
            for _ in range(40):
                produce(client, topic, batch([(None, b"x" * 3000)]))
        broker.kill()
        broker.start()

        def published() -> bool:
            rows = sorted(
                (row for row in store_of(broker.lake).load_segments() if row.topic == topic),
                key=lambda row: row.base_offset,
            )
            ends = [0] + [row.next_offset for row in rows]
            return len(rows) >= 5 and [row.base_offset for row in rows] == ends[:-1]

        wait_until(published, timeout_s=20)
        with WireClient(broker.bootstrap_servers) as client:
            assert fetch(client, topic, 0).high_watermark == 40

    def test_producer_ids_are_not_given_again(self, kafkalake_broker: StartBroker) -> None:
        broker = kafkalake_broker()
        ids: set[int] = set()
        for turn in range(3):
            with WireClient(broker.bootstrap_servers) as client:
                for _ in range(5):
                    answer = client.call(
                        "InitProducerId",
                        4,
                        transactional_id=None,
                        transaction_timeout=0,
                        producer_id=-1,
                        producer_epoch=-1,
                    )
                    ids.add(answer.producer_id)
            assert len(ids) == 5 * (turn + 1)
            broker.kill()
            broker.start()

    def test_the_leader_epoch_grows(self, kafkalake_broker: StartBroker, topic: str) -> None:
        broker = kafkalake_broker()
        with WireClient(broker.bootstrap_servers) as client:
            create_topic(client, topic)
            produce(client, topic, batch([(None, b"x")]))
            assert code(fetch(client, topic, 0, leader_epoch=0).error_code) == 0
        broker.kill()
        broker.start()
        with WireClient(broker.bootstrap_servers) as client:
            assert code(fetch(client, topic, 0, leader_epoch=0).error_code) == 74
            (found,) = client.call("Metadata", 9, topics=[{"name": topic}]).topics
            epoch = found.partitions[0].leader_epoch
            assert epoch > 0
            assert code(fetch(client, topic, 0, leader_epoch=epoch).error_code) == 0


def test_damaged_records_are_an_error_of_their_partition_alone(kafkalake_broker: StartBroker, topic: str) -> None:
    broker = kafkalake_broker()
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic, 2)
        for index in (0, 1):
            produce(client, topic, batch([(None, b"%d" % index * 500)]), partition=index)
    broker.stop()
    (segment,) = (broker.lake / "logs" / "0" / f"{topic}-0").glob("*.arrow")
    content = bytearray(segment.read_bytes())
    position = content.index(b"0" * 400)
    content[position + 100] ^= 1
    segment.write_bytes(content)
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        for _ in range(2):
            damaged = fetch(client, topic, 0)
            assert code(damaged.error_code) == 2
            assert not damaged.records
            assert values_of(fetch(client, topic, 0, partition=1).records) == [(0, b"1" * 500)]
    assert f"{segment}" in broker.stderr_path.read_text()


def test_a_broker_whose_lease_was_taken_stops_and_writes_nothing_more(
    kafkalake_broker: StartBroker, topic: str
) -> None:
    broker = kafkalake_broker(
        settings={
            "lease.duration.ms": "1000",
            "metadata.publish.interval.ms": "600000",
            "internal.segment.bytes": "20000",
        }
    )
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        produce(client, topic, batch([(None, b"x")]))
    store = store_of(broker.lake)
    for _ in range(100):
        (row,) = store.load_brokers()
        taken = replace(
            row, lease_id="another", machine="elsewhere", lease_expires_at_ms=row.lease_expires_at_ms + 60_000
        )
        with contextlib.suppress(LeaseHeldError):  # it has just renewed it
            store.acquire_broker(taken, replacing=row)
            break
    wait_until(lambda: not broker.is_running(), timeout_s=20)
    assert [each.lease_id for each in store.load_brokers()] == ["another"]
    assert not [each for each in store.load_segments() if each.topic == topic]
    assert "lease lost" in broker.stderr_path.read_text()


def test_dynamic_settings_survive_a_restart(kafkalake_broker: StartBroker, topic: str) -> None:
    broker = kafkalake_broker()
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        assert incremental(client, BROKER, "0", ("message.max.bytes", SET, "5000")) == 0
        assert code(produce(client, topic, batch([(None, b"x" * 6000)])).error_code) == 10
    broker.restart()
    with WireClient(broker.bootstrap_servers) as client:
        assert settings(client, BROKER, "0")["message.max.bytes"] == ("5000", 2)
        assert code(produce(client, topic, batch([(None, b"x" * 6000)])).error_code) == 10


def test_static_settings_are_the_topics_defaults(kafkalake_broker: StartBroker, topic: str) -> None:
    broker = kafkalake_broker(settings={"num.partitions": "3", "log.retention.ms": "77", "flush.messages": "1"})
    with WireClient(broker.bootstrap_servers) as client:
        answer = client.call("Metadata", 4, topics=[{"name": topic}], allow_auto_topic_creation=True)
        assert len(answer.topics[0].partitions) == 3
        assert settings(client, 2, topic)["retention.ms"] == ("77", 4)
        assert settings(client, 2, topic)["flush.messages"] == ("1", 4)
        for number in range(20):
            assert produce(client, topic, batch([(None, b"x")])).base_offset == number


def test_auto_creation_can_be_switched_off(kafkalake_broker: StartBroker, topic: str) -> None:
    broker = kafkalake_broker(settings={"auto.create.topics.enable": "false"})
    with WireClient(broker.bootstrap_servers) as client:
        answer = client.call("Metadata", 4, topics=[{"name": topic}], allow_auto_topic_creation=True)
        assert code(answer.topics[0].error_code) == 3


def test_files_of_a_deleted_topic_go(kafkalake_broker: StartBroker, topic: str) -> None:
    broker = kafkalake_broker(settings={"log.segment.delete.delay.ms": "100"})
    logs = broker.lake / "logs" / "0"
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic, 2)
        produce(client, topic, batch([(None, b"x")]))
        client.call("DeleteTopics", 5, topic_names=[topic], timeout=10_000)
    wait_until(lambda: not list(logs.glob(f"{topic}*")), timeout_s=20)
    wait_until(lambda: not [row for row in store_of(broker.lake).load_partitions() if row.topic == topic], timeout_s=20)


def test_directories_of_no_topic_are_cleared_at_the_start(kafkalake_broker: StartBroker, topic: str) -> None:
    """A crash between the deletion in Delta and that of the files."""
    broker = kafkalake_broker()
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        produce(client, topic, batch([(None, b"old")]))
    broker.kill()
    (row,) = [each for each in store_of(broker.lake).load_topics() if each.topic == topic]
    store_of(broker.lake).delete_topics([row.topic_id])
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        answer = fetch(client, topic, 0, max_wait=0)
        assert (code(answer.error_code), answer.high_watermark) == (0, 0)


@pytest.mark.process
def test_a_lake_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    ended = run_to_its_end(tmp_path)
    assert ended.returncode == 1
    assert "precious.txt" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_start_that_fails_leaves_no_lease(kafkalake_broker: StartBroker, tmp_path: Path) -> None:
    other = kafkalake_broker()
    lake = tmp_path / "mine"
    assert run_to_its_end(lake, port=other.port).returncode == 1
    try:
        kafkalake_broker(lake)
    except BrokerFailed as error:
        pytest.fail(str(error))


@pytest.mark.process
def test_a_thread_that_never_comes_back_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    """What blocks it is no part of the stop: a staged file on a dead file system, say."""
    script = """
import sys, threading
from pathlib import Path
from kafkalake.process import node, run

started = node.Node.start

async def start(self):
    await started(self)
    self.acceptor._context.start_task(self._blocking(threading.Event().wait))

node.Node.start = start
sys.exit(run.run_broker(Path(sys.argv[1]), {"listeners": f"PLAINTEXT://127.0.0.1:{sys.argv[2]}"}))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lake"), str(free_port())], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening")
        process.terminate()
        assert process.wait(30) == 1
