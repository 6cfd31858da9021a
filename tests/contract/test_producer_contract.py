"""Our producer against both brokers, the same calls; and through a proxy that delays and cuts, and a broker that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from cutting_proxy import CuttingProxy
from kafka_reference import ApacheKafka, BrokerProcess, Kafkalake, create_topic
from long_runs import first_of
from waiting import TIMEOUT_S, wait_until

import kafkalake
from kafkalake import Producer, aio
from kafkalake.client.errors import ClientClosedError, ClientTimeoutError, IllegalStateError
from kafkalake.client.producing.batch import RecordFuture
from kafkalake.client.records import ConsumerGroupMetadata, OffsetAndMetadata
from kafkalake.errors import BrokerUnavailableError, MessageTooLargeError, ProducerFencedError

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 4
RECORDS = 20_000


def read_values(broker: BrokerProcess, topic: str, count: int, partitions: Sequence[int] = (0, 1)) -> list[bytes]:
    """Return the first `count` committed values of partitions, read by librdkafka, and one more if there is one at once."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reads", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    values: list[bytes] = []

    def read(timeout_s: float) -> None:
        messages = consumer.consume(count, timeout_s)
        assert all(message.error() is None for message in messages)
        values.extend(message.value() or b"" for message in messages)

    try:
        wait_until(lambda: read(0.1) or len(values) >= count, lambda: f"{len(values)} of {count} in {TIMEOUT_S} s")
        read(0.1)
    finally:
        consumer.close()
    return values


def is_done(operation: Callable[[], None]) -> bool:
    """Return whether an operation has ended, which may be called again until it has."""
    try:
        operation()
    except (ClientTimeoutError, IllegalStateError):
        return False
    return True


@pytest.fixture
def made_topic(any_broker: BrokerProcess, topic: str) -> str:
    create_topic(any_broker, topic, partitions=2)
    return topic


def test_records_of_all_kinds_arrive(any_broker: BrokerProcess, made_topic: str) -> None:
    sent = []
    for compression in COMPRESSIONS:
        for acks in ("all", "1"):
            with Producer(
                bootstrap_servers=any_broker.bootstrap_servers, compression_type=compression, acks=acks
            ) as producer:
                values = [f"{compression}-{acks}-{n}".encode() * 20 for n in range(50)]
                futures = [producer.send(made_topic, value, b"k", headers=[("h", b"1")]) for value in values]
                assert len({future.get(60).partition for future in futures}) == 1
                table = pa.table({"value": [b"arrow-" + value for value in values], "key": [b"k"] * 50})
                assert sum(span.records for span in producer.send_arrow(made_topic, table).get(60)) == 50
                sent += [*values, *(b"arrow-" + value for value in values)]
    assert read_values(any_broker, made_topic, len(sent)) == sent


def open_connections(broker: BrokerProcess) -> set[int]:
    """Return this process's ports that have an open connection to a broker."""
    port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
    connections = psutil.Process().net_connections("tcp")
    to_broker = [each for each in connections if each.raddr and each.raddr.port == port]
    return {each.laddr.port for each in to_broker if each.status == "ESTABLISHED"}


@pytest.mark.parametrize("settings", [{}, {"acks": "1", "max_in_flight_requests_per_connection": 1}])
def test_what_one_connection_has_no_room_for_goes_over_a_second_in_the_order_of_each_partition(
    any_broker: BrokerProcess, topic: str, settings: dict[str, object]
) -> None:
    create_topic(any_broker, topic, partitions=PARTITIONS)
    rows = [b"%06d" % n * 100 for n in range(RECORDS)]
    before = open_connections(any_broker)
    with Producer(bootstrap_servers=any_broker.bootstrap_servers, batch_size=20_000, **settings) as producer:
        partitions = pa.array([n % PARTITIONS for n in range(RECORDS)], pa.int32())
        sent = producer.send_arrow(topic, pa.table({"value": rows, "partition": partitions}))
        assert sum(span.records for span in sent.get(60)) == RECORDS
        opened = open_connections(any_broker) - before
        assert len(opened) == 3, "the bootstrap address, and two connections to the leader"
    for partition in range(PARTITIONS):
        wanted = rows[partition::PARTITIONS]
        assert read_values(any_broker, topic, len(wanted), [partition]) == wanted


def test_a_record_that_the_topic_refuses_fails_alone(any_broker: BrokerProcess, topic: str) -> None:
    create_topic(any_broker, topic, config={"max.message.bytes": "2000"})
    with Producer(bootstrap_servers=any_broker.bootstrap_servers, linger_ms=50) as producer:
        futures = [producer.send(topic, b"%4d" % n * 100) for n in range(40)]  # as one batch too large, so it is split
        large = producer.send(topic, bytes(5_000))
        assert sorted(future.get(60).offset for future in futures) == list(range(40))
        with pytest.raises(MessageTooLargeError):
            large.get(60)
        assert producer.send(topic, b"after").get(60).offset == 40


def test_transactions_commit_abort_and_fence(any_broker: BrokerProcess, made_topic: str) -> None:
    settings = {"bootstrap.servers": any_broker.bootstrap_servers, "transactional.id": made_topic}
    with Producer(settings) as producer:
        producer.init_transactions()
        for n in range(3):
            with producer.transaction():
                producer.send(made_topic, b"%d" % n, partition=n % 2)
                producer.send_offsets_to_transaction({(made_topic, 0): n}, f"group-{made_topic}")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(made_topic, b"aborted", partition=0).get(60)
            raise ZeroDivisionError
        with Producer(settings) as newer:
            newer.init_transactions()
            with newer.transaction():
                newer.send(made_topic, b"newer", partition=0)
            with pytest.raises(Exception), producer.transaction():  # noqa: B017, the epoch is known at one request or another
                producer.send(made_topic, b"older", partition=0)
            with pytest.raises(ProducerFencedError):
                producer.begin_transaction()
    with Producer(settings, max_block_ms=1_000) as impatient:
        wait_until(lambda: is_done(impatient.init_transactions))
        with pytest.raises(ClientTimeoutError, match=r"(?i)unknown topic or partition"), impatient.transaction():
            impatient.send_offsets_to_transaction({(made_topic, 99): 1}, f"group-{made_topic}")
        wait_until(lambda: is_done(impatient.begin_transaction))  # the other one was aborted
        impatient.send(made_topic, b"after", partition=0)
        wait_until(lambda: is_done(impatient.commit_transaction))
    assert sorted(read_values(any_broker, made_topic, 5)) == [b"0", b"1", b"2", b"after", b"newer"]


def test_the_twin_for_event_loops_does_the_same(any_broker: BrokerProcess, made_topic: str) -> None:
    async def run() -> None:
        async with aio.Producer(bootstrap_servers=any_broker.bootstrap_servers, value_serializer="json") as producer:
            first = await producer.send_and_wait(made_topic, {"a": 1}, partition=1)
            assert (first.partition, first.offset) == (1, 0)
            assert await producer.partitions_for(made_topic) == 2
            deliveries = [await producer.send(made_topic, n, partition=1) for n in range(100)]
            assert [(await each).offset for each in deliveries] == list(range(1, 101))
        for late in (producer.send(made_topic, 1), producer.partitions_for(made_topic)):
            with pytest.raises(ClientClosedError):
                await late

    async def transact() -> None:
        settings = {"bootstrap.servers": any_broker.bootstrap_servers, "transactional.id": made_topic}
        async with aio.Producer(settings) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_arrow(made_topic, pa.table({"value": ["x", "y"]}), partition=1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(made_topic, b"aborted", partition=1)
                    raise ZeroDivisionError

    asyncio.run(run())
    asyncio.run(transact())
    values = read_values(any_broker, made_topic, 103)
    assert [*values[:2], *values[101:]] == [b'{"a":1}', b"0", b"x", b"y"]


class Proxied(NamedTuple):
    """A broker that is only reached through a proxy: it advertises the proxy's address."""

    broker: BrokerProcess
    proxy: CuttingProxy


@contextlib.contextmanager
def behind_proxy(kind: type[Kafkalake] | type[ApacheKafka], **how: float) -> Iterator[Proxied]:
    """A broker with the topic `t`. how: of the proxy."""
    with CuttingProxy(**how) as proxy:  # type: ignore[arg-type]
        broker = kind(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
        proxy.lead_to(broker.port)
        broker.start()
        try:
            create_topic(broker, "t", partitions=2)
            yield Proxied(broker, proxy)
        finally:
            broker.close()


@pytest.fixture
def proxied() -> Iterator[Proxied]:
    with behind_proxy(Kafkalake) as found:
        yield found


LATE_S, LATE_PIECES = 0.4, 4


@pytest.mark.parametrize("kind", first_of([Kafkalake, ApacheKafka], 1))
def test_requests_that_a_later_connection_overtakes_are_not_written_again(
    kind: type[Kafkalake] | type[ApacheKafka],
) -> None:
    """What an old connection still carries reaches the broker after the same records have come by a new one."""
    with behind_proxy(kind, delay_s=0.03) as (broker, proxy):
        futures: list[RecordFuture] = []
        with Producer(bootstrap_servers=f"127.0.0.1:{proxy.port}", batch_size=300, linger_ms=0) as producer:
            producer.send("t", b"first", partition=1).get(60)
            while proxy.came_late < LATE_PIECES and len(futures) < 4_000:
                futures += [producer.send("t", b"%100d" % (len(futures) + n), partition=0) for n in range(40)]
                wait_until(proxy.holds_requests)
                proxy.cut(LATE_S)
                futures[-1].get(60)
            assert [future.get(60).offset for future in futures] == list(range(len(futures)))
        assert proxy.came_late >= LATE_PIECES
        expected = [b"%100d" % n for n in range(len(futures))]
        assert read_values(broker, "t", len(futures), partitions=[0]) == expected


def test_cuts_and_kills_lose_and_double_nothing_and_keep_the_order(proxied: Proxied) -> None:
    """Two threads share a producer, while connections are cut and the broker is killed and started again."""
    broker, proxy = proxied
    futures: list[list[RecordFuture]] = [[], []]
    may_end = threading.Event()

    with Producer(bootstrap_servers=f"127.0.0.1:{proxy.port}", batch_size=500, linger_ms=1) as producer:

        def send(partition: int) -> None:
            while not may_end.is_set() or len(futures[partition]) < 500:
                value = b"%d-%d" % (partition, len(futures[partition]))
                futures[partition].append(producer.send("t", value, partition=partition))
                if len(futures[partition]) % 100 == 0:
                    futures[partition][-100].get(60)

        threads = [threading.Thread(target=send, args=(partition,)) for partition in (0, 1)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            wait_until(proxy.passes_bytes)
            proxy.cut()
        for _ in range(2):
            wait_until(lambda: futures[0] and futures[1])
            broker.kill()
            broker.restart()
            sent = len(futures[0])
            wait_until(lambda sent=sent: len(futures[0]) > sent + 100)  # type: ignore[misc]
        may_end.set()
        for thread in threads:
            thread.join(60)
    for partition, each in enumerate(futures):
        assert [future.get(0).offset for future in each] == list(range(len(each)))
        expected = [b"%d-%d" % (partition, n) for n in range(len(each))]
        assert read_values(broker, "t", len(each), partitions=[partition]) == expected
    assert proxy.cuts


def test_a_wrong_address_is_said_within_seconds() -> None:
    """By a producer and by a consumer, at once: each tries for five seconds."""

    def send() -> None:
        with (
            Producer(bootstrap_servers="127.0.0.1:1") as producer,
            pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1"),
        ):
            producer.send("t", b"a")

    def read() -> None:
        with contextlib.closing(kafkalake.Consumer(bootstrap_servers="127.0.0.1:1")) as reader:
            reader.assign([("t", 0)])
            with pytest.raises(BrokerUnavailableError):
                reader.poll(30)

    with ThreadPoolExecutor() as at_once:
        assert [each.result() for each in (at_once.submit(send), at_once.submit(read))] == [None, None]


WRONG_COMMITS: list[tuple[Any, Any]] = [
    ({("in", 0): 5}, "g\udc80"),
    ({("in", 0): 5}, ConsumerGroupMetadata("g", 1, "m\udc80")),
    ({("in", 0): 5}, ConsumerGroupMetadata("g", 1, "m", "i\udc80")),
    ({("in", 0): 5}, ConsumerGroupMetadata("g", 1 << 31, "m")),
    ({("in", 0): 5}, ConsumerGroupMetadata("g", "1", "m")),  # type: ignore[arg-type]
    ({("in", 0): 1 << 63}, "g"),
    ({("in", 1 << 31): 5}, "g"),
    ({("in", 0): OffsetAndMetadata(5, 1 << 31)}, "g"),
    ({("in", 0): OffsetAndMetadata(5, None, "m\udc80")}, "g"),
    ({("in", 0): OffsetAndMetadata(5, None, 7)}, "g"),  # type: ignore[arg-type]
]


def test_offsets_that_no_request_can_hold_are_refused_and_the_transaction_is_committed(
    any_broker: BrokerProcess, made_topic: str
) -> None:
    servers, topic = any_broker.bootstrap_servers, made_topic
    with kafkalake.Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            future = producer.send(topic, b"v", partition=0)
            for offsets, group in WRONG_COMMITS:
                with pytest.raises((TypeError, ValueError)):
                    producer.send_offsets_to_transaction(offsets, group)
            producer.send_offsets_to_transaction({(topic, 0): 5}, topic)
        assert future.get(TIMEOUT_S).offset == 0
    with kafkalake.Admin(bootstrap_servers=servers) as admin:
        assert admin.committed_offsets(topic)[topic, 0].offset == 5
