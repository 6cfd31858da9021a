"""The accumulator and the sender with a simulated clock, network and brokers that check sequence numbers."""

from __future__ import annotations

import time
from cProfile import Profile
from itertools import pairwise
from random import Random

import pytest
from simulated_producer import OUT_OF_ORDER, UNKNOWN_PRODUCER, ModelLog, SimulatedProducer

from kafkalake.client.errors import ClientTimeoutError
from kafkalake.client.producing.batch import LOG_APPEND_TIME_NONE, Batch, RecordFuture, wait_for
from kafkalake.client.requests import INIT_PRODUCER_ID
from kafkalake.errors import (
    ConfigurationError,
    InvalidRecordError,
    KafkaLakeError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    UnknownTopicOrPartitionError,
)
from kafkalake.wire.messages.cluster import MetadataRequest
from kafkalake.wire.messages.transactions import InitProducerIdResponse

TOO_LARGE, NOT_ENOUGH_REPLICAS, INVALID_RECORD = 10, 19, 87


def offsets(futures: list[RecordFuture]) -> list[int]:
    return [future.get(0).offset for future in futures]


def failures_of(count: int, code: int):  # type: ignore[no-untyped-def]
    """Return a fault that answers with an error `count` times."""
    left = count

    def fault(topic: str, partition: int) -> int:
        nonlocal left
        left -= 1
        return code if left >= 0 else 0

    return fault


def test_records_linger_into_one_batch_and_get_their_offsets() -> None:
    producer = SimulatedProducer(linger_ms=20).start()
    futures = [producer.send(b"%d" % n) for n in range(3)]
    producer.run(19)
    assert not producer.requests
    producer.run(1)
    assert offsets(futures) == [0, 1, 2]
    assert len(producer.requests) == 1
    assert producer.core.accumulator.used_bytes == 0


def asked_topics(producer: SimulatedProducer, milliseconds: int) -> list[list[str]]:
    """Return the topics of the refreshes in a time from now on."""
    before = [len(broker.requests) for broker in producer.brokers]
    producer.run(milliseconds)
    new = [each for broker, count in zip(producer.brokers, before, strict=True) for each in broker.requests[count:]]
    return [[topic.name or "" for topic in each.topics or ()] for each in new if isinstance(each, MetadataRequest)]


def test_topics_that_nobody_sends_to_are_forgotten() -> None:
    producer = SimulatedProducer(linger_ms=0, metadata_max_idle_ms=20_000, metadata_max_age_ms=10_000).start()
    producer.core.want_topic("missing")
    for _ in range(6):
        producer.send(b"v")
        asked = asked_topics(producer, 10_000)
    assert asked == [["t"]], "one that is sent to is kept; one that does not exist was asked for every second"
    assert asked_topics(producer, 60_000)[-1] == []
    assert producer.core.client.metadata.cluster.topics == {}
    producer.core.want_topic("t")
    assert ["t"] in asked_topics(producer, 1_000)
    later = producer.send(b"v")
    producer.run()
    assert later.get(0).offset == 6


def test_queues_of_a_forgotten_topic_are_given_up_and_taken_up_by_a_caller_that_has_them() -> None:
    producer = SimulatedProducer(linger_ms=0, metadata_max_idle_ms=5_000, metadata_max_age_ms=5_000).start()
    accumulator = producer.core.accumulator
    before = accumulator.topic("t")
    assert before is not None
    producer.run(20_000)
    assert accumulator.topic("t") is None, "as much stayed for each topic that was ever sent to"
    late = producer.core.try_append(before, b"late", None, 0, (), None, None)
    assert isinstance(late, RecordFuture) and accumulator.topic("t") is before
    producer.run(20_000)
    assert late.get(0).offset == 0 and accumulator.topic("t") is None
    producer.core.sender.call(lambda: producer.core.want_topic("t"))
    producer.run(1_000)
    assert accumulator.topic("t") is before, "two queues of a partition would mix up its order"


def test_a_topic_that_a_caller_waits_for_is_not_forgotten() -> None:
    producer = SimulatedProducer(metadata_max_idle_ms=5_000).start()
    for _ in range(20):
        producer.core.want_topic("late")
        producer.run(1_000)
    producer.topics.leaders["late"] = [0]
    producer.run(2_000)
    assert producer.core.accumulator.topic("late") is not None


def test_a_full_batch_does_not_linger() -> None:
    producer = SimulatedProducer(linger_ms=60_000, batch_size=1_000).start()
    futures = [producer.send(bytes(300)) for _ in range(7)]
    producer.run()
    assert offsets(futures[:6]) == list(range(6))
    assert not futures[6].is_done


def test_a_flush_ends_the_linger() -> None:
    producer = SimulatedProducer(linger_ms=60_000).start()
    future = producer.send(b"a")
    assert len(producer.core.accumulator.begin_flush()) == 1
    producer.run()
    producer.core.accumulator.end_flush()
    assert future.get(0).offset == 0


def test_partitions_of_one_leader_share_a_request() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.topics.move("t", 1, 0)
    producer.core.client.metadata.request_update()
    producer.run(1_000)
    futures = [producer.send(b"a", 0), producer.send(b"b", 1)]
    producer.run()
    assert offsets(futures) == [0, 0]
    assert len(producer.requests) == 1


def test_memory_is_refused_when_full_and_given_back() -> None:
    producer = SimulatedProducer(buffer_memory=40_000, linger_ms=0).start()
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    futures = []
    while isinstance(added := producer.core.try_append(queues, bytes(3_000), None, 0, (), None, None), RecordFuture):
        futures.append(added)
    assert 8 <= len(futures) <= 13
    producer.run()
    assert offsets(futures) == list(range(len(futures)))
    assert producer.core.accumulator.used_bytes == 0
    assert producer.send(bytes(3_000))


@pytest.mark.parametrize("size", [1_048_577, 3_000_000])
def test_a_record_that_is_too_large_is_refused_at_once(size: int) -> None:
    producer = SimulatedProducer().start()
    with pytest.raises(MessageTooLargeError, match=r"max\.request\.size"):
        producer.send(bytes(size))
    assert producer.core.accumulator.used_bytes == 0


def test_a_partition_that_is_not_there_is_refused() -> None:
    producer = SimulatedProducer().start()
    with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 2; it has 2"):
        producer.send(b"a", 2)


@pytest.mark.parametrize("settings", [{}, {"enable_idempotence": False}, {"acks": "1"}])
def test_an_error_that_may_pass_is_retried(settings: dict[str, object]) -> None:
    producer = SimulatedProducer(linger_ms=0, **settings).start()
    producer.fault = failures_of(3, NOT_ENOUGH_REPLICAS)
    future = producer.send(b"a")
    producer.run(5_000)
    assert future.get(0).offset == 0
    assert len(producer.requests) == 4


def test_retries_end_with_the_error() -> None:
    producer = SimulatedProducer(linger_ms=0, retries=2, enable_idempotence=False).start()
    producer.fault = failures_of(9, NOT_ENOUGH_REPLICAS)
    future = producer.send(b"a")
    producer.run(5_000)
    with pytest.raises(NotEnoughReplicasError):
        future.get(0)
    assert len(producer.requests) == 3


@pytest.mark.parametrize("code", [NOT_ENOUGH_REPLICAS, OUT_OF_ORDER])
def test_a_partition_goes_on_after_a_batch_was_sent_as_often_as_it_may_be(code: int) -> None:
    producer = SimulatedProducer(linger_ms=0, retries=2).start()
    producer.send(b"begin")
    producer.run()
    for round_number in range(1, 3):
        producer.fault = failures_of(3, code)
        lost = producer.send(b"lost")
        producer.run(5_000)
        with pytest.raises(KafkaLakeError):
            lost.get(0)
        again = [producer.send(b"again"), producer.send(b"and again")]
        producer.run(5_000)
        assert offsets(again) == [2 * round_number - 1, 2 * round_number], "its number was missing for ever"


def test_an_error_that_stays_fails_the_batch_and_later_ones_go_on() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    for _ in range(2):
        producer.fault = failures_of(1, INVALID_RECORD)
        bad = producer.send(b"bad")
        producer.run()
        good = producer.send(b"good")
        producer.run(1_000)
        with pytest.raises(InvalidRecordError):
            bad.get(0)
        assert good.is_done and good.get(0)
    assert producer.logs["t", 0].values == [b"good", b"good"]


def test_a_leader_that_moves_is_followed() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.topics.move("t", 0, 1)
    future = producer.send(b"a")
    producer.run(2_000)
    assert future.get(0).offset == 0
    assert [node_id for node_id, _ in producer.requests] == [0, 1]


def test_a_leader_that_an_error_names_is_followed_at_once() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.names_leaders = True
    producer.send(b"a", 1)
    producer.run()
    producer.topics.move("t", 0, 1)
    future = producer.send(b"a")
    producer.run()
    assert future.get(0).offset == 0


def test_what_is_not_delivered_in_time_fails_with_the_reason() -> None:
    producer = SimulatedProducer(linger_ms=0, delivery_timeout_ms=40_000).start()
    producer.fault = lambda topic, partition: NOT_ENOUGH_REPLICAS
    future = producer.send(b"a")
    producer.run(39_900)
    assert not future.is_done
    producer.run(200)
    with pytest.raises(ClientTimeoutError, match="40000 ms; the last failure: partition t-0"):
        future.get(0)
    producer.fault = lambda topic, partition: 0
    again = producer.send(b"b")
    producer.run(1_000)
    assert again.get(0).offset == 0


def test_an_answer_that_is_lost_writes_the_batch_once() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.send(b"first")
    producer.run()
    producer.network.hold_answers()
    future = producer.send(b"a")
    producer.run()
    producer.network.cut(producer.brokers[0])
    producer.network.deliver()
    producer.run(2_000)
    assert future.get(0).offset == 1
    assert producer.logs["t", 0].values == [b"first", b"a"]


def test_batches_in_flight_keep_their_order_when_an_earlier_one_fails() -> None:
    producer = SimulatedProducer(linger_ms=0, batch_size=0).start()
    producer.send(b"begin")
    producer.run()
    producer.fault = failures_of(1, NOT_ENOUGH_REPLICAS)
    futures = [producer.send(b"%d" % n) for n in range(8)]
    producer.run(5_000)
    assert offsets(futures) == list(range(1, 9))
    assert producer.logs["t", 0].values == [b"begin", *(b"%d" % n for n in range(8))]


def test_without_idempotence_one_request_in_flight_keeps_the_order() -> None:
    settings = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
    producer = SimulatedProducer(linger_ms=0, batch_size=0, **settings).start()
    producer.fault = failures_of(2, NOT_ENOUGH_REPLICAS)
    futures = [producer.send(b"%d" % n) for n in range(5)]
    producer.run(5_000)
    assert offsets(futures) == list(range(5))


def test_a_lost_producer_state_raises_the_epoch() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.send(b"a")
    producer.run()
    for epoch in (1, 2):
        producer.fault = failures_of(1, UNKNOWN_PRODUCER)
        producer.logs["t", 0].producers.clear()
        futures = [producer.send(b"b")]
        producer.run(1_000)
        assert offsets(futures) == [epoch]
        assert producer.logs["t", 0].producers[101][0] == epoch


def test_numbers_out_of_order_raise_the_epoch() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.send(b"a")
    producer.run()
    producer.fault = failures_of(1, OUT_OF_ORDER)
    future = producer.send(b"b")
    producer.run(1_000)
    assert future.get(0).offset == 1


def test_a_batch_that_is_too_large_for_the_broker_is_split() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.send(b"a")
    producer.run()
    producer.fault = failures_of(3, TOO_LARGE)  # the whole, its first half, and the first half of that
    delivered: list[int] = []
    futures = [
        producer.send(b"%d" % n, done=lambda metadata, error: delivered.append(metadata.offset)) for n in range(8)
    ]
    producer.run(5_000)
    assert offsets(futures) == list(range(1, 9))
    assert sorted(delivered) == list(range(1, 9))
    assert producer.logs["t", 0].values[1:] == [b"%d" % n for n in range(8)]
    assert producer.core.accumulator.used_bytes == 0


def test_a_record_that_is_too_large_for_the_broker_fails() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    producer.fault = lambda topic, partition: TOO_LARGE
    futures = [producer.send(b"a"), producer.send(b"b")]
    producer.run(5_000)
    for future in futures:
        with pytest.raises(MessageTooLargeError):
            future.get(0)


def test_without_acknowledgement_a_record_counts_as_sent() -> None:
    producer = SimulatedProducer(linger_ms=0, acks="0").start()
    future = producer.send(b"a")
    producer.run()
    assert future.get(0).offset == -1
    assert producer.logs["t", 0].values == [b"a"]


def test_a_closed_producer_fails_what_is_left() -> None:
    producer = SimulatedProducer(linger_ms=60_000).start()
    futures = [producer.send(b"a")]
    producer.network.hold_answers()
    futures.append(producer.send(bytes(300_000), 1))
    producer.run()
    producer.core.sender.abort(ClientTimeoutError("closed"))
    for future in futures:
        with pytest.raises(ClientTimeoutError, match="closed"):
            future.get(0)
    assert producer.core.accumulator.used_bytes == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_each_record_is_written_once_and_in_order(seed: int) -> None:
    """Errors, cut connections, moved leaders, lost answers: then peace."""
    chance = Random(seed)
    producer = SimulatedProducer(seed=seed, linger_ms=5, batch_size=200).start()
    producer.names_leaders = bool(seed % 2)
    producer.fault = lambda topic, partition: NOT_ENOUGH_REPLICAS if chance.random() < 0.1 else 0
    futures: dict[int, list[RecordFuture]] = {0: [], 1: []}
    for step in range(150):
        partition = chance.randrange(2)
        futures[partition].append(producer.send(b"%d" % step, partition))
        happens = chance.random()
        if happens < 0.05:
            producer.network.hold_answers()
        elif happens < 0.15:
            producer.network.deliver()
        elif happens < 0.20:
            producer.network.cut(chance.choice(producer.brokers))
        elif happens < 0.23:
            producer.topics.move("t", partition, chance.randrange(2))
        producer.run(chance.randrange(12))
    producer.fault = lambda topic, partition: 0
    producer.network.deliver()
    producer.run(10_000)
    for partition, sent in futures.items():
        assert offsets(sent) == list(range(len(sent)))
        assert len(producer.logs["t", partition].values) == len(sent)
    assert producer.core.accumulator.used_bytes == 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"batch.sise": 1}, "did you mean 'batch.size'"),
        ({"acks": "2"}, "must be one of"),
        ({"linger.ms": "soon"}, "Not a number"),
        ({"linger.ms": -1}, "at least 0"),
        ({"enable.idempotence": True, "acks": 1}, "needs acks=all"),
        ({"transactional.id": "x", "max.in.flight.requests.per.connection": 6}, "<= 5"),
        ({"transactional.id": "x", "enable.idempotence": "false"}, "needs enable.idempotence"),
        ({"delivery.timeout.ms": 1_000}, r"linger\.ms \+ request\.timeout\.ms"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        SimulatedProducer(**settings)


def test_idempotence_is_off_where_other_settings_exclude_it() -> None:
    assert SimulatedProducer(acks="1").core.sequences is None
    assert SimulatedProducer(acks="all").core.sequences is not None


def test_callbacks_get_metadata_or_the_error_and_may_fail() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    seen: list[object] = []

    def note(metadata: object, error: KafkaLakeError | None) -> None:
        seen.append(metadata if error is None else type(error))
        raise RuntimeError("of the test")

    future = producer.send(b"a", done=note)
    producer.run()
    producer.fault = failures_of(1, INVALID_RECORD)
    producer.send(b"b", done=note)
    producer.run()
    assert seen == [future.get(0), InvalidRecordError]


def test_a_callback_of_a_future_that_fails_leaves_the_others_and_the_producer_alone() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    seen: list[int] = []

    def fail(future: RecordFuture) -> None:
        seen.append(future.get(0).offset)
        raise NotEnoughReplicasError("of the test")

    future = producer.send(b"a")
    for _ in range(2):
        future.add_done_callback(fail)
    producer.run()
    future.add_done_callback(fail)
    assert seen == [0, 0, 0]
    assert producer.send(b"b") and producer.run() is None
    assert producer.logs["t", 0].values == [b"a", b"b"]


def test_partitions_of_a_broker_that_takes_nothing_get_no_records_without_a_key_until_it_does() -> None:
    """partitioner.availability.timeout.ms. What the broker did not take is given up meanwhile."""
    timeouts = {"request_timeout_ms": 4_000, "delivery_timeout_ms": 5_000, "partitioner_availability_timeout_ms": 1_000}
    producer = SimulatedProducer(linger_ms=0, batch_size=1_000, **timeouts).start()

    def spread() -> set[int]:
        futures = [producer.send(bytes(900), None) for _ in range(40)]
        producer.run(200)
        return {future._batch.partition for future in futures}

    assert spread() == {0, 1}
    producer.brokers[1].is_up = False
    producer.network.cut(producer.brokers[1])
    producer.send(b"a", 1)
    producer.run(1_500)
    spread()  # some of it to the partition before
    assert [spread() for _ in range(3)] == [{0}] * 3
    producer.run(10_000)
    assert not producer.core.accumulator.has_incomplete
    producer.brokers[1].is_up = True
    producer.run(2_000)
    assert set.union(*[spread() for _ in range(3)]) == {0, 1}


def calls_for_a_record(partitions: int, partition: int | None) -> int:
    """Return how many functions are called for a record soon after another, of a producer that has sent to all partitions."""
    producer = SimulatedProducer(linger_ms=0, buffer_memory=1 << 30)
    producer.topics.leaders["t"] = [number % 2 for number in range(partitions)]
    producer.logs = {("t", number): ModelLog() for number in range(partitions)}
    producer.start()
    for number in range(partitions):
        producer.send(b"v", number)
    producer.run(1_000)
    producer.send(b"v", partition)
    producer.run()
    profile = Profile()
    profile.enable()
    future = producer.send(b"v", partition)
    producer.run()
    profile.disable()
    assert future.is_done
    return sum(each.callcount for each in profile.getstats())


@pytest.mark.exhaustive
@pytest.mark.parametrize("partition", [0, None])
def test_partitions_without_records_cost_nothing(partition: int | None) -> None:
    assert calls_for_a_record(3_000, partition) < 2 * calls_for_a_record(4, partition)


def test_an_answer_without_a_producer_id_is_asked_for_again_after_a_pause() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    asked: list[int] = []

    def none(request: object) -> InitProducerIdResponse:
        asked.append(producer.network.now_ms)
        return InitProducerIdResponse(producer_id=-1 if len(asked) < 4 else 7, producer_epoch=0)

    for broker in producer.brokers:
        broker.handlers[INIT_PRODUCER_ID] = none
    future = producer.send(b"a")
    producer.run(5_000)
    assert future.get(0).offset == 0
    assert len(asked) == 4 and min(later - earlier for earlier, later in pairwise(asked)) >= 80


@pytest.mark.exhaustive
def test_callbacks_of_very_many_records_of_a_batch_take_as_long_each_as_those_of_a_few() -> None:
    def seconds(records: int) -> float:
        batch = Batch("t", 0, 0, 0, lambda: None, is_transactional=False)
        for _ in range(records):
            batch.add_done_callback(lambda: None)
        before = time.process_time()
        batch.complete(0, LOG_APPEND_TIME_NONE)
        return time.process_time() - before

    assert seconds(200_000) < 50 * seconds(20_000)


def test_waits_that_have_no_time_leave_nothing_behind() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    futures = [producer.send(b"a", partition) for partition in (0, 1)]
    for wait in (lambda: futures[0].get(0), lambda: wait_for([future._batch for future in futures], 0)):
        for _ in range(3):
            with pytest.raises(ClientTimeoutError):
                wait()
    assert not any(future._batch._done_callbacks for future in futures)
    producer.run()
    assert offsets(futures) == [0, 0]
