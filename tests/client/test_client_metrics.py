"""Metrics of clients: totals stay, rates and averages forget."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from simulated_producer import SimulatedProducer

import kafkalake
from kafkalake import aio
from kafkalake.client import errors
from kafkalake.client.errors import BufferExhaustedError, ClientTimeoutError
from kafkalake.client.metrics import Metrics, PrometheusCollector
from kafkalake.errors import BrokerUnavailableError, KafkaError, KafkaLakeError


def test_rates_and_averages_are_of_the_last_half_minute() -> None:
    metrics = Metrics()
    for second in range(40):
        metrics.count("sent", 10, second * 1_000)
        metrics.observe("size", second, second * 1_000)
    shown = metrics.snapshot(39_500)
    assert shown == {"sent-total": 400, "sent-rate": 10, "size-avg": 24.5, "size-max": 39}
    assert metrics.snapshot(100_000) == {"sent-total": 400, "sent-rate": 0, "size-avg": 0, "size-max": 0}


def test_a_producer_counts_what_it_sends() -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    for _ in range(3):
        producer.send(bytes(100))
        producer.run(200)
    producer.fault = lambda topic, partition: 87
    producer.send(b"bad")
    producer.run(200)
    shown = producer.core.metrics()
    assert (shown["record-send-total"], shown["record-error-total"]) == (3, 1)
    assert shown["batch-size-max"] > 100
    assert shown["buffer-available-bytes"] == shown["buffer-total-bytes"]


def below(kind: type[KafkaLakeError]) -> list[type[KafkaLakeError]]:
    return [each for child in kind.__subclasses__() for each in (child, *below(child))]


def test_every_error_has_a_code_and_says_whether_it_may_pass() -> None:
    assert all(isinstance(each.code, int) and isinstance(each.retriable, bool) for each in below(KafkaLakeError))
    may_pass = {each for each in below(KafkaLakeError) if each.retriable and not issubclass(each, KafkaError)}
    assert may_pass == {
        *below(BrokerUnavailableError),
        BrokerUnavailableError,
        ClientTimeoutError,
        BufferExhaustedError,
    }


def test_errors_that_clients_raise_are_in_two_modules() -> None:
    """As the README says. Those of a staged append are Spark's."""
    for package in (kafkalake, aio):
        assert all(getattr(package, name) for name in package.__all__)
    own = [each for each in below(KafkaLakeError) if each.__module__.startswith("kafkalake.client.")]
    assert {each.__module__ for each in own} - {"kafkalake.client.staged_append"} == {"kafkalake.client.errors"}
    assert all(f" {each.__name__} " in str(errors.__doc__) for each in own if each.__module__ == errors.__name__)


def test_prometheus_scrapes_the_metrics_of_several_clients() -> None:
    registry = CollectorRegistry(auto_describe=True)
    numbers = {"record-send-total": 3.0, "batch-size-avg": 2.5, "buffer-total-bytes": 7}
    collector = PrometheusCollector("producer", lambda: numbers, {"client_id": 'a"b', "team": "x"})
    registry.register(collector)
    collector.add(lambda: {"record-send-total": 4.0}, {"team": "x", "client_id": "c"})
    for labels in ({"team": "x", "client_id": "c"}, {"client_id": "d"}, None):
        with pytest.raises(ValueError, match="client_id"):
            collector.add(dict, labels)
    shown = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert {name: family.type for name, family in shown.items()} == {
        "producer_batch_size_avg": "gauge",
        "producer_buffer_total_bytes": "gauge",
        "producer_record_send": "counter",
    }
    samples = [(each.name, each.labels["client_id"], each.value) for each in shown["producer_record_send"].samples]
    assert samples == [("producer_record_send_total", 'a"b', 3.0), ("producer_record_send_total", "c", 4.0)]


def test_metrics_of_a_consumer_are_for_any_thread_and_outlive_it() -> None:
    reader = kafkalake.Consumer(bootstrap_servers="127.0.0.1:1")
    reader.assign([("t", 0)])
    found: list[dict[str, float]] = []
    with reader._using():
        thread = threading.Thread(target=lambda: found.append(reader.metrics()))
        thread.start()
        thread.join(10)
    reader.close()
    assert found[0]["assigned-partitions"] == 1
    assert reader.metrics().keys() == found[0].keys()
