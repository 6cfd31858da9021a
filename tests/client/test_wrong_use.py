"""Wrong arguments are refused at once and change nothing; a client that fails all the same says so, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import inspect
import logging
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from simulated_producer import SimulatedProducer

import kafkalake
from kafkalake import aio
from kafkalake.client.consuming.assignors import ASSIGNORS
from kafkalake.client.consuming.script import Call
from kafkalake.client.errors import ClientClosedError, SerializationError
from kafkalake.client.producing.interceptors import ProducerRecord
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.client.requests import INIT_PRODUCER_ID
from kafkalake.errors import ConfigurationError, InvalidRequestError
from kafkalake.wire.messages.transactions import InitProducerIdRequest

NOWHERE = "127.0.0.1:1"
LARGEST = 2**63

WRONG_RECORDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"value": "text"}, SerializationError, "str is not bytes"),
    ({"key": 5}, SerializationError, "int is not bytes"),
    ({"partition": "0"}, TypeError, "a partition is an int, not str"),
    ({"partition": 0.0}, TypeError, "a partition is an int"),
    ({"timestamp_ms": "now"}, TypeError, "milliseconds since 1970"),
    ({"timestamp_ms": 1.5}, TypeError, "milliseconds since 1970"),
    ({"timestamp_ms": -1}, ValueError, "at least 0"),
    ({"timestamp_ms": LARGEST}, ValueError, "64 bits"),
    ({"headers": {"a": b"1"}}, TypeError, "headers are pairs"),
    ({"headers": [("a",)]}, TypeError, "headers are pairs"),
    ({"headers": [(5, b"1")]}, TypeError, "the key of a header"),
    ({"headers": [("a", "1")]}, TypeError, "the value of header 'a'"),
    ({"headers": [("\udc80", b"1")]}, ValueError, "the key of a header.*UTF-8"),
    ({"on_delivery": 5}, TypeError, "on_delivery"),
    ({"on_delivery": asyncio.sleep}, TypeError, "not awaited"),
]


class Wordy:
    """A serializer that forgets to make bytes."""

    def serialize(self, topic: str, headers: Any, value: Any) -> Any:
        return "text"


class Deaf:
    """An interceptor that forgets to return the record."""

    def on_send(self, record: ProducerRecord) -> Any:
        return None

    def on_acknowledgement(self, metadata: object, error: object) -> None:
        pass


def append(producer: SimulatedProducer, **given: Any) -> Any:
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    record = {"value": b"v", "key": None, "partition": 0, "headers": (), "timestamp_ms": None, "on_delivery": None}
    return producer.core.try_append(queues, **{**record, **given})


def test_a_wrong_record_is_refused_and_others_are_sent() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    headers = [("a", b"1")]
    before = append(producer, headers=headers)
    headers.append(("b", None))
    for given, error, match in WRONG_RECORDS:
        with pytest.raises(error, match=match):
            append(producer, **given)
    after = append(producer, timestamp_ms=0)
    producer.run()
    assert [before.get(0).offset, after.get(0).offset] == [0, 1]
    assert producer.core.accumulator.used_bytes == 0


def test_the_name_of_a_topic_that_has_no_bytes_is_refused() -> None:
    named = "a topic is named in UTF-8"
    with kafkalake.Producer(bootstrap_servers=NOWHERE) as producer, pytest.raises(ValueError, match=named):
        producer.send("\udc80", b"v")
    with kafkalake.Consumer(bootstrap_servers=NOWHERE) as consumer:
        with pytest.raises(ValueError, match=named):
            consumer.assign([("\udc80", 0)])
        with pytest.raises(ValueError, match=named):
            consumer.subscribe("\udc80")
        with pytest.raises(ValueError, match=named):
            consumer.partitions_for("\udc80")


def test_a_serializer_that_returns_no_bytes_is_named() -> None:
    producer = SimulatedProducer(parts={"value_serializer": Wordy()}).start()
    with pytest.raises(SerializationError, match="Wordy returned str"):
        append(producer)


def test_an_interceptor_that_returns_no_record_is_skipped() -> None:
    producer = SimulatedProducer(parts={"interceptors": [Deaf()]}).start()
    record = ProducerRecord("t", b"v")
    assert producer.core.intercepted(record, None)[0] is record


async def call_later(metadata: object, error: object) -> None:
    """No callback: it would be called, and never awaited."""


class Passing(Deaf):
    """An interceptor that sees a record and changes nothing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:  # type: ignore[override]
        return record


@pytest.mark.parametrize(("wrong", "match"), [(5, "not callable"), (call_later, "not awaited")])
def test_what_is_no_callback_is_refused_where_there_are_interceptors(wrong: Any, match: str) -> None:
    producer = kafkalake.Producer(bootstrap_servers=NOWHERE, interceptors=[Passing()])
    with producer, pytest.raises(TypeError, match=match):
        producer.send("t", b"v", on_delivery=wrong)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"value_serializer": str}, TypeError, "value_serializer.*`serialize`"),
        ({"key_serializer": len}, TypeError, "key_serializer.*`serialize`"),
        ({"partitioner": max}, TypeError, "partitioner.*`partition`"),
        ({"interceptors": [5]}, TypeError, "interceptors.*`on_send`"),
        ({"transactional.id": " "}, ConfigurationError, r"transactional\.id.*non-empty"),
        ({"linger.ms": 1, "linger_ms": 2}, ConfigurationError, r"linger_ms and linger\.ms are the same"),
    ],
)
def test_a_producer_is_not_made_of_wrong_parts(given: dict[str, Any], error: type[Exception], match: str) -> None:
    parts = {
        name: given.pop(name) for name in list(given) if name.endswith(("serializer", "partitioner", "interceptors"))
    }
    with pytest.raises(error, match=match):
        kafkalake.Producer({"bootstrap.servers": NOWHERE, **given}, **parts)


@pytest.mark.parametrize(
    "name", ["client_id", "group_id", "group_instance_id", "transactional_id", "bootstrap_servers"]
)
def test_a_setting_that_has_no_bytes_is_refused(name: str) -> None:
    kinds = {"group_id": kafkalake.Consumer, "group_instance_id": kafkalake.Consumer, "client_id": kafkalake.Admin}
    with pytest.raises(ConfigurationError, match=rf"{name.replace('_', '.')}: it is sent in UTF-8") as raised:
        kinds.get(name, kafkalake.Producer)(**{"bootstrap_servers": NOWHERE, name: "a\udc80:1"}).close()
    assert str(raised.value).isascii(), "a terminal can show it"


@pytest.mark.parametrize("kind", [kafkalake.Producer, kafkalake.Consumer, kafkalake.Admin])
def test_settings_are_a_dictionary(kind: Any) -> None:
    with pytest.raises(TypeError, match="settings are a dictionary"):
        kind(NOWHERE)
    with pytest.raises(TypeError, match="settings are named by str, not int"):
        kind({5: 5})


@pytest.mark.parametrize(
    ("kind", "name", "match"),
    [
        (kafkalake.Producer, "key.serializer", "as the argument key_serializer"),
        (kafkalake.Producer, "partitioner.class", "as the argument partitioner"),
        (kafkalake.Producer, "interceptor_classes", "as the argument interceptors"),
        (kafkalake.Consumer, "value.deserializer", "as the argument value_deserializer"),
        (kafkalake.Consumer, "key.serializer", "Unknown setting 'key.serializer'"),
        (kafkalake.Producer, "compression.zstd.level", "no such setting of Kafka's"),
        (kafkalake.Consumer, "check_crcs", "no such setting of Kafka's"),
        (kafkalake.Admin, "connections.max.idle.ms", "no such setting of Kafka's"),
        (kafkalake.Producer, "batch.sizes", r"did you mean 'batch\.size'"),
        (kafkalake.Consumer, "fetch.min.byte", r"did you mean 'fetch\.min\.bytes'"),
    ],
)
def test_a_setting_that_is_none_is_refused_with_what_there_is(kind: Any, name: str, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        kind({"bootstrap.servers": NOWHERE, name: "x"})


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"value_deserializer": len}, TypeError, "value_deserializer.*`deserialize`"),
        ({"assignors": [5]}, TypeError, "assignors.*`assign`"),
        ({"interceptors": [5]}, TypeError, "interceptors.*`on_consume`"),
        ({"group_id": ""}, ConfigurationError, r"group\.id.*non-empty"),
        ({"group_instance_id": ""}, ConfigurationError, r"group\.instance\.id.*non-empty"),
        (
            {"group_protocol": "consumer", "assignors": [ASSIGNORS["range"]]},
            ConfigurationError,
            "assignors cannot be given",
        ),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            ConfigurationError,
            r"partition\.assignment\.strategy cannot be set when group\.protocol=consumer",
        ),
        (
            {"group_protocol": "consumer", "session_timeout_ms": 45_000, "heartbeat.interval.ms": 3_000},
            ConfigurationError,
            r"^heartbeat\.interval\.ms, session\.timeout\.ms cannot be set when group\.protocol=consumer$",
        ),
        ({"group_remote_assignor": "uniform"}, ConfigurationError, "cannot be set when group.protocol=classic"),
        ({"group_id": "g", "heartbeat_interval_ms": 45_000}, ConfigurationError, r"less than session\.timeout\.ms"),
    ],
)
def test_a_consumer_is_not_made_of_wrong_parts(given: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        kafkalake.Consumer(bootstrap_servers=NOWHERE, **given)


WRONG_PARTITIONS = ["t", ["t"], [("t",)], [("t", "0")], [("t", 0, 1)], [("", 0)], [(None, 0)], 5, None, [("t", -1)]]


@pytest.mark.parametrize("wrong", WRONG_PARTITIONS, ids=repr)
def test_what_are_no_partitions_is_refused_everywhere(wrong: Any) -> None:
    with closing(kafkalake.Consumer(bootstrap_servers=NOWHERE, group_id="g", enable_auto_commit=False)) as reader:
        for call in (
            reader.assign,
            reader.seek_to_beginning,
            reader.seek_to_end,
            reader.forget_positions,
            reader.pause,
            reader.resume,
            reader.committed,
            reader.beginning_offsets,
            reader.end_offsets,
            lambda given: [reader.position(each) for each in given],
            lambda given: [reader.lag(each) for each in given],
            lambda given: [reader.seek(each, 0) for each in given],
            lambda given: reader.offsets_for_times(dict.fromkeys(given, 0)),
            lambda given: reader.commit(dict.fromkeys(given, 0)),
        ):
            with pytest.raises((TypeError, ValueError)):
                call(wrong)
        reader.assign([("t", 0)])
        assert reader.assignment() == {("t", 0)}


def test_other_wrong_arguments_of_a_consumer() -> None:
    with closing(kafkalake.Consumer(bootstrap_servers=NOWHERE, group_id="g", enable_auto_commit=False)) as reader:
        place = "t", 0
        reader.assign([place])
        calls: list[Callable[[Any], object]] = [
            lambda wrong: reader.seek(place, wrong),
            lambda wrong: reader.commit({place: wrong}),
            lambda wrong: reader.commit({place: OffsetAndMetadata(wrong)}),
            lambda wrong: reader.offsets_for_times({place: wrong}),
        ]
        for call in calls:
            for wrong in ("x", 1.5, None, -1, 2**63):
                with pytest.raises((TypeError, ValueError)):
                    call(wrong)
        for wrong in ("x", -2, 2**31):
            with pytest.raises((TypeError, ValueError), match="a leader epoch"):
                reader.seek(place, 0, wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="callable"):
            reader.commit_async({place: 1}, 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a topic is a str"):
            reader.partitions_for(5)  # type: ignore[arg-type]
        reader.unsubscribe()
        with pytest.raises(TypeError, match="topics are named by str"):
            reader.subscribe([5])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="at least one character"):
            reader.subscribe(pattern="")
        with pytest.raises(TypeError, match="listener"):
            reader.subscribe(["t"], listener=5)  # type: ignore[arg-type]
        assert not reader.subscription()
        reader.assign([])
        reader.subscribe("t")
        assert reader.subscription() == {"t"}


def test_coroutines_are_not_dropped_by_a_consumer_that_awaits_nothing(recwarn: pytest.WarningsRecorder) -> None:
    async def revoked() -> None:
        pass

    def script() -> Any:
        yield Call(revoked)

    reader = kafkalake.Consumer(bootstrap_servers=NOWHERE)
    with closing(reader), pytest.raises(TypeError, match=r"kafkalake\.aio\.Consumer awaits them"):
        reader._run(script())
    assert not [each for each in recwarn if each.category is RuntimeWarning]


def test_wrong_arguments_of_other_calls() -> None:
    settings: dict[str, Any] = {"bootstrap.servers": NOWHERE, "transactional.id": "x"}
    with kafkalake.Producer(settings) as producer:
        for offsets, group in (([1], "g"), ({"t": 1}, "g"), ({("t", 0): "1"}, "g"), ({}, None), ({}, ""), ({}, 5)):
            with pytest.raises((TypeError, ValueError)):
                producer.send_offsets_to_transaction(offsets, group)  # type: ignore[arg-type]
    with kafkalake.Producer(bootstrap_servers=NOWHERE) as producer:
        for topic, error in ((None, TypeError), (5, TypeError), (b"t", TypeError), ("", ValueError)):
            with pytest.raises(error, match="a topic"):
                producer.send(topic, b"v")  # type: ignore[arg-type]


def test_records_that_are_no_arrow() -> None:
    producer = SimulatedProducer().start()
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    wrong: list[Any] = [{"value": [b"1"]}, None, pa.array([b"1"])]
    for each in wrong:
        with pytest.raises(TypeError, match=r"pyarrow\.RecordBatch or pyarrow\.Table"):
            producer.core.encode_arrow(queues, each, None)


def test_a_request_that_cannot_be_encoded_fails_alone() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    wrong: Any = 5
    pending = producer.core.client.send(0, INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=wrong), 1_000)
    future = producer.send(b"a")
    producer.run(1_000)
    assert isinstance(pending.error, InvalidRequestError)
    assert future.get(0).offset == 0


def test_the_clients_for_an_event_loop_are_found_in_the_package() -> None:
    assert kafkalake.aio.Producer is aio.Producer
    with pytest.raises(AttributeError, match="no attribute 'Produser'"):
        _ = kafkalake.Produser


@pytest.mark.parametrize("name", aio.__all__)
def test_twins_have_the_same_calls_with_the_same_arguments(name: str) -> None:
    twins = getattr(kafkalake, name), getattr(aio, name)
    first, second = ({each for each in dir(kind) if not each.startswith("_")} for kind in twins)
    assert first ^ second <= {"disown", "send_and_wait"}, "threads have forks, and wait by `get`"
    for call in (first & second) | {"__init__"}:
        arguments = [
            {key: each.default for key, each in inspect.signature(getattr(kind, call)).parameters.items()}
            for kind in twins
        ]
        assert arguments[0] == arguments[1] and list(arguments[0]) == list(arguments[1]), call
        assert all(getattr(kind, call).__doc__ for kind in twins), call


def test_the_package_says_that_it_has_types() -> None:
    """PEP 561: in the package, and in what is built of it."""
    root = Path(kafkalake.__file__).parent
    assert (root / "py.typed").is_file()
    built = tomllib.loads((root.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "py.typed" in built["kafkalake"]


def broken(now_ms: int) -> Any:
    raise ZeroDivisionError("a fault of ours")


def test_a_producer_whose_thread_fails_says_so_and_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with kafkalake.Producer(bootstrap_servers=NOWHERE) as producer:
        monkeypatch.setattr(producer._core.sender, "poll", broken)
        for _ in range(2):
            with pytest.raises(ClientClosedError, match="a fault of ours"):
                producer.send("t", b"v")
    assert "the producer's thread failed" in caplog.text


def test_what_waits_when_a_producer_fails_is_failed_and_more_is_refused() -> None:
    producer = SimulatedProducer(linger_ms=60_000).start()
    open_batch, other = producer.send(b"a", 0), producer.send(b"b", 1)
    error = ClientClosedError("over")
    producer.core.sender.abort(error)
    for future in (open_batch, other):
        with pytest.raises(ClientClosedError, match="over"):
            future.get(0)
    with pytest.raises(ClientClosedError, match="over"):
        producer.send(b"c")
    assert not producer.core.accumulator.has_incomplete


def test_clients_on_an_event_loop_that_fail_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with aio.Producer(bootstrap_servers=NOWHERE) as producer:
            monkeypatch.setattr(producer._core.sender, "poll", broken)
            with pytest.raises((ClientClosedError, ZeroDivisionError), match="a fault of ours"):
                await producer.send("t", b"v")
            with pytest.raises(ClientClosedError, match="a fault of ours"):
                await producer.send("t", b"v")
        reader = aio.Consumer(bootstrap_servers=NOWHERE)
        reader.assign([("t", 0)])
        with monkeypatch.context() as patch:
            patch.setattr(reader._core, "poll", broken)
            with pytest.raises(ZeroDivisionError, match="a fault of ours"):
                await reader.poll(10)
        assert await reader.poll(0.01) == []  # and life goes on
        await reader.close()

    caplog.set_level(logging.CRITICAL, logger="asyncio")
    asyncio.run(asyncio.wait_for(run(), 30))
