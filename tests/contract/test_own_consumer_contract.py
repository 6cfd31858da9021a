"""`kafkalake.Consumer` and its asynchronous twin on each kind of broker: groups, offsets, transactions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from kafka_clients import create_topic
from kafka_reference import BrokerProcess
from waiting import wait_until

import kafkalake
from kafkalake import aio
from kafkalake.client.consuming.consumer import Consumer
from kafkalake.client.consuming.listeners import RebalanceListener
from kafkalake.client.errors import (
    ClientClosedError,
    CommitFailedError,
    IllegalStateError,
    TransactionMustAbortError,
    WakeupError,
)
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.errors import (
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    InvalidTopicError,
    KafkaLakeError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
)
from kafkalake.topic_partition import TopicPartition

PARTITIONS = 4


def produce(broker: BrokerProcess, topic: str, values: Collection[bytes], partitions: int = PARTITIONS) -> None:
    """Write with another client, values in turn to the partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, key=b"k", headers=[("h", b"1")], partition=number % partitions)
    assert producer.flush(60) == 0


def consumer(broker: BrokerProcess, **given: Any) -> Consumer:
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    if given.get("group.protocol") != "consumer":  # in that protocol the times are the broker's
        settings |= {"heartbeat.interval.ms": 100, "session.timeout.ms": 6_000}
    return kafkalake.Consumer({**settings, **given})


class Heard(RebalanceListener):
    """What a listener heard, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", set(partitions)))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", set(partitions)))


def values_until(reader: Consumer, count: int, timeout_s: float = 60) -> list[bytes]:
    found: list[bytes] = []

    def poll() -> bool:
        found.extend(record.value for record in reader.poll(0.2))
        return len(found) >= count

    wait_until(poll, lambda: f"{len(found)} of {count}", timeout_s)
    return found


@pytest.fixture
def four(any_broker: BrokerProcess, topic: str) -> Iterator[BrokerProcess]:
    """A broker with the test's topic, of four partitions."""
    create_topic(any_broker.bootstrap_servers, topic, PARTITIONS)
    yield any_broker


def test_a_topic_whose_name_none_can_have_is_raised_by_polls_and_others_are_read(
    four: BrokerProcess, topic: str
) -> None:
    produce(four, topic, [b"v"])
    found: list[str] = []
    with consumer(four, **{"group.id": topic, "metadata.max.age.ms": 100}) as reader:

        def poll() -> bool:
            try:
                found.extend("v" for _ in reader.poll(0.1))
            except InvalidTopicError as error:
                found.append(str(error).partition(":")[0])
            return "v" in found and found.count("topic 'no topic!'") > 1

        reader.subscribe([topic, "no topic!"])
        wait_until(poll, lambda: f"{found}")


PROTOCOLS = [
    pytest.param({"partition.assignment.strategy": "range"}, id="eager"),
    pytest.param({"partition.assignment.strategy": "cooperative-sticky"}, id="cooperative"),
    pytest.param({"group.protocol": "consumer"}, id="consumer-protocol"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_take_over_those_of_one_that_leaves(
    four: BrokerProcess, topic: str, protocol: dict[str, str]
) -> None:
    wanted = {b"%d" % number for number in range(40)}
    produce(four, topic, sorted(wanted))
    group = {"group.id": f"g-{uuid.uuid4().hex[:8]}", "enable.auto.commit": False, **protocol}
    everything = {(topic, number) for number in range(PARTITIONS)}
    heard = Heard()
    with consumer(four, **group) as first:
        first.subscribe(topic, listener=heard)
        assert set(values_until(first, 40)) == wanted
        assert first.assignment() == everything and heard.calls[0] == ("assigned", everything)
        first.commit()
        with consumer(four, **group) as second:
            second.subscribe([topic])

            def shared() -> bool:
                first.poll(0.05)
                second.poll(0.05)
                return len(first.assignment()) == len(second.assignment()) == 2

            wait_until(shared)
            assert first.assignment() | second.assignment() == everything
            produce(four, topic, [b"more %d" % number for number in range(4)])
            found: list[bytes] = []

            def all_found() -> bool:
                found.extend(record.value for reader in (first, second) for record in reader.poll(0.05))
                return len(found) >= 4

            wait_until(all_found)
            assert sorted(found) == [b"more %d" % number for number in range(4)]  # each once: offsets were committed
            first.commit()
            second.commit()
        wait_until(lambda: not first.poll(0.05) and first.assignment() == everything)
        committed = first.committed(everything)
        assert sum(each.offset for each in committed.values() if each) == 44
    assert heard.calls[-1] == ("revoked", everything)


def test_a_static_member_comes_back_without_a_rebalance_and_a_second_one_is_kept_out(
    four: BrokerProcess, topic: str
) -> None:
    """Of each protocol a group, both at once: at the end they wait for a session."""
    with ThreadPoolExecutor() as at_once:
        checks = at_once.map(partial(check_static_members, four, topic), ["classic", "consumer"])
        assert list(checks) == [None, None]


def check_static_members(four: BrokerProcess, topic: str, protocol: str) -> None:
    produce(four, topic, [b"%d" % number for number in range(8)])
    group = {"group.id": f"g-{uuid.uuid4().hex[:8]}", "group.protocol": protocol, "enable.auto.commit": False}

    def member(instance: str, listener: Heard) -> Consumer:
        made = consumer(four, **group, **{"group.instance.id": instance})
        made.subscribe([topic], listener=listener)
        return made

    with ExitStack() as stack:
        heard, others = Heard(), Heard()
        first = stack.enter_context(closing(member("one", heard)))
        second = stack.enter_context(closing(member("two", others)))

        def shared() -> bool:
            first.poll(0.05)
            second.poll(0.05)
            return len(first.assignment()) == len(second.assignment()) == 2

        wait_until(shared)
        owned, seen = first.assignment(), len(others.calls)
        first.close()  # a static member does not leave
        again = stack.enter_context(closing(member("one", heard)))
        wait_until(lambda: not second.poll(0.05) and (again.poll(0.05) or again.assignment()))
        assert again.assignment() == owned and len(others.calls) == seen
        assert again.group_metadata().group_instance_id == "one"

        rival = stack.enter_context(closing(member("one", Heard())))
        kept_out: list[KafkaLakeError] = []

        def is_decided() -> bool:
            second.poll(0.05)
            for each in (again, rival):
                try:
                    each.poll(0.05)
                except (FencedInstanceIdError, UnreleasedInstanceIdError) as error:
                    kept_out.append(error)
            return bool(kept_out)

        wait_until(is_decided)
        # Of a classic group the newer one stays, of the other protocol the older one.
        expected = FencedInstanceIdError if protocol == "classic" else UnreleasedInstanceIdError
        assert isinstance(kept_out[0], expected)
        stays = rival if protocol == "classic" else again
        wait_until(lambda: not second.poll(0.05) and not stays.poll(0.05) and stays.assignment() == owned)
        stays.commit()
        assert len(others.calls) == seen
        stays.close()  # its partitions wait for it as long as its session lasts
        wait_until(lambda: not second.poll(0.05) and len(second.assignment()) == PARTITIONS)


def test_a_member_that_a_group_refuses_is_one_once_the_reason_is_gone(four: BrokerProcess, topic: str) -> None:
    eager = consumer(four, **{"group.id": topic, "partition.assignment.strategy": "range"})
    with (
        closing(eager),
        consumer(four, **{"group.id": topic, "partition.assignment.strategy": "cooperative-sticky"}) as refused,
    ):
        eager.subscribe(topic)
        wait_until(lambda: not eager.poll(0.1) and len(eager.assignment()) == PARTITIONS)
        refused.subscribe(topic)
        for _ in range(2):
            with pytest.raises(InconsistentGroupProtocolError):
                wait_until(lambda: refused.poll(0.1))
        eager.close()

        def is_member() -> bool:
            with contextlib.suppress(InconsistentGroupProtocolError):  # of a join that was refused before
                refused.poll(0.1)
            return len(refused.assignment()) == PARTITIONS

        wait_until(is_member)


def test_offsets_are_found_sought_committed_and_paused(four: BrokerProcess, topic: str) -> None:
    produce(four, topic, [b"%d" % number for number in range(10)], 1)
    place = topic, 0
    with consumer(four, **{"group.id": f"g-{uuid.uuid4().hex[:8]}", "max.poll.records": 3}) as reader:
        reader.assign([place])
        records = reader.poll(30)
        assert [record.offset for record in records] == [0, 1, 2] and reader.position(place) == 3
        assert (records[0].key, records[0].headers) == (b"k", (("h", b"1"),))
        reader.seek(place, 8)
        assert [record.offset for record in reader.poll(30)] == [8, 9]
        assert reader.lag(place) == 0
        assert reader.beginning_offsets([place]) == {place: 0} and reader.end_offsets([place]) == {place: 10}
        found = reader.offsets_for_times({place: records[2].timestamp, (topic, 1): 0})[place]
        assert found is not None and found.offset <= 2
        assert reader.offsets_for_times({place: 4_000_000_000_000}) == {place: None}
        reader.commit({place: OffsetAndMetadata(5, None, "note")})
        assert reader.committed([place, (topic, 1)]) == {place: OffsetAndMetadata(5, None, "note"), (topic, 1): None}
        ended: list[Any] = []
        reader.commit_async(callback=lambda offsets, error: ended.append((offsets[place].offset, error)))
        wait_until(lambda: not reader.poll(0.05) and ended)
        assert ended == [(10, None)]
        reader.pause([place])
        reader.seek_to_beginning([place])
        assert reader.position(place) == 0 and reader.poll(0.3) == []
        reader.seek_to_end([place])
        assert reader.position(place) == 10 and reader.paused() == {place}
        reader.seek_to_beginning([place])
        reader.resume([place])
        batches = reader.poll_arrow(30)
        assert [one for batch in batches for one in batch.column("value").to_pylist()] == [b"%d" % n for n in range(10)]
        assert {info.partition for info in reader.partitions_for(topic)} == set(range(PARTITIONS))
        assert topic in reader.topics()


def test_a_consumer_that_reads_nothing_answers_questions_about_topics(four: BrokerProcess, topic: str) -> None:
    with consumer(four, **{"group.id": topic, "allow.auto.create.topics": False}) as reader:
        assert len(reader.partitions_for(topic, 20)) == PARTITIONS
        for _ in range(2):
            assert len(reader.topics(20)[topic]) == PARTITIONS
        assert len(reader.partitions_for(topic, 20)) == PARTITIONS
        with pytest.raises(UnknownTopicOrPartitionError):
            reader.partitions_for(f"{topic}-missing", 20)
        reader.subscribe(pattern="nothing")
        assert len(reader.partitions_for(topic, 20)) == PARTITIONS
        reader.topics(20)
        create_topic(four.bootstrap_servers, f"{topic}-new", 2)
        assert len(reader.partitions_for(f"{topic}-new", 20)) == 2
        with pytest.raises(UnknownTopicOrPartitionError):
            reader.partitions_for(f"{topic}-missing", 20)

    async def ask() -> int:
        async with aio.Consumer(bootstrap_servers=four.bootstrap_servers) as reader:
            return len(await reader.partitions_for(topic, 20))

    assert asyncio.run(asyncio.wait_for(ask(), 30)) == PARTITIONS


def test_a_wakeup_is_heard_of_by_a_poll_that_has_records(four: BrokerProcess, topic: str) -> None:
    produce(four, topic, [b"%d" % number for number in range(100)], 1)
    with consumer(four) as reader:
        reader.assign([(topic, 0)])
        assert len(reader.poll(30, max_records=1)) == 1
        for poll in (lambda: reader.poll(0, max_records=1), lambda: reader.poll_arrow(0), lambda: next(iter(reader))):
            reader.wakeup()
            with pytest.raises(WakeupError):
                poll()
        assert [record.offset for record in reader.poll(30, max_records=1)] == [1]

    async def read() -> int:
        async with aio.Consumer(bootstrap_servers=four.bootstrap_servers, auto_offset_reset="earliest") as reader:
            reader.assign([(topic, 0)])
            assert len(await reader.poll(30, max_records=1)) == 1
            for poll in (reader.poll, reader.poll_arrow):
                reader.wakeup()
                with pytest.raises(WakeupError):
                    await poll(0)
            return (await reader.poll(30, max_records=1))[0].offset

    assert asyncio.run(asyncio.wait_for(read(), 60)) == 1


def test_offsets_are_committed_by_poll_and_close(four: BrokerProcess, topic: str) -> None:
    produce(four, topic, [b"%d" % number for number in range(8)])
    group = {"group.id": f"g-{uuid.uuid4().hex[:8]}", "auto.commit.interval.ms": 0}
    with consumer(four, **group) as reader:
        reader.subscribe(pattern=f"{topic}.*")
        values_until(reader, 8)
    with consumer(four, **group) as reader:
        reader.subscribe([topic])
        produce(four, topic, [b"new"], 1)
        assert values_until(reader, 1) == [b"new"]


def test_a_member_that_was_away_for_too_long_commits_nothing(four: BrokerProcess, topic: str) -> None:
    """Neither with its group empty again, nor in a transaction: the offsets of those that came after it stay."""
    produce(four, topic, [b"%d" % number for number in range(8)])
    group = {"group.id": f"g-{uuid.uuid4().hex[:8]}", "enable.auto.commit": False}
    early = {(topic, number): 1 for number in range(PARTITIONS)}
    transactional = kafkalake.Producer(bootstrap_servers=four.bootstrap_servers, transactional_id=group["group.id"])
    with (
        kafkalake.Admin(bootstrap_servers=four.bootstrap_servers) as admin,
        transactional as producer,
        consumer(four, **group, **{"max.poll.interval.ms": 2_000}) as slow,
    ):
        slow.subscribe(topic)
        assert len(values_until(slow, 8)) == 8
        wait_until(lambda: not admin.describe_group(str(group["group.id"])).members)
        with consumer(four, **group) as other:
            other.subscribe(topic)
            assert len(values_until(other, 8)) == 8
            other.commit()
        assert not admin.describe_group(str(group["group.id"])).members
        with pytest.raises(CommitFailedError):
            slow.commit(early)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"of a record that another member has had")
        with pytest.raises(TransactionMustAbortError):
            producer.send_offsets_to_transaction(early, slow.group_metadata())
        producer.abort_transaction()
        committed = admin.committed_offsets(str(group["group.id"]))
        assert {place: at.offset for place, at in committed.items()} == dict.fromkeys(early, 2)


def test_aborted_records_are_not_seen_by_read_committed(four: BrokerProcess, topic: str) -> None:
    settings = {"bootstrap.servers": four.bootstrap_servers, "transactional.id": f"id-{topic}"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(60)
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(topic, value=value, partition=0)
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    for level, expected in (("read_committed", [b"a", b"c"]), ("read_uncommitted", [b"a", b"b", b"c"])):
        with consumer(four, **{"isolation.level": level}) as reader:
            reader.assign([(topic, 0)])
            assert values_until(reader, len(expected)) == expected
            wait_until(lambda: not reader.poll(0.05) and reader.position((topic, 0)) == 6)  # behind the last marker
            reader.seek_to_beginning()
            rows = [one for batch in reader.poll_arrow(30) for one in batch.column("value").to_pylist()]
            assert rows and rows == expected[: len(rows)]


def test_the_asynchronous_consumer_reads_in_a_group(four: BrokerProcess, topic: str) -> None:
    produce(four, topic, [b"%d" % number for number in range(8)])
    heard: list[Collection[TopicPartition]] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append(partitions)

    async def read() -> list[Any]:
        settings = {"bootstrap.servers": four.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
        found: list[Any] = []
        async with aio.Consumer(settings, value_deserializer="json") as reader:
            reader.subscribe([topic], listener=Listener())
            async for record in reader:
                found.append(record.value)
                if len(found) == 8:
                    break
            await reader.commit()
            committed = await reader.committed([(topic, number) for number in range(PARTITIONS)])
            assert [each.offset for each in committed.values() if each is not None] == [2] * PARTITIONS
        return found

    assert sorted(asyncio.run(asyncio.wait_for(read(), 60))) == list(range(8))
    assert len(heard[0]) == PARTITIONS


def test_one_thread_at_a_time_uses_a_consumer_and_any_may_wake_it_up(four: BrokerProcess, topic: str) -> None:
    with closing(consumer(four)) as reader:
        reader.assign([(topic, 0)])
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                reader.poll(60)
            except WakeupError as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()

        def is_refused() -> bool:
            try:
                reader.assignment()
            except IllegalStateError:
                return True
            return False

        wait_until(is_refused)
        with pytest.raises(IllegalStateError):
            reader.close()
        reader.wakeup()
        waiting.join(30)
        assert len(errors) == 1
        assert reader.assignment() == {(topic, 0)}
    with pytest.raises(ClientClosedError):
        reader.poll()
