"""Metrics of clients: totals stay, rates and averages forget."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from simulated_producer import SimulatedProducer

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


def test_every_error_has_a_code_and_says_whether_it_may_pass() -> None:
    def below(kind: type[KafkaLakeError]) -> list[type[KafkaLakeError]]:
        return [each for child in kind.__subclasses__() for each in (child, *below(child))]

    assert all(isinstance(each.code, int) and isinstance(each.retriable, bool) for each in below(KafkaLakeError))
    may_pass = {each for each in below(KafkaLakeError) if each.retriable and not issubclass(each, KafkaError)}
    assert may_pass == {
        *below(BrokerUnavailableError),
        BrokerUnavailableError,
        ClientTimeoutError,
        BufferExhaustedError,
    }


class Family:
    def __init__(self, name: str, text: str, labels: list[str]) -> None:
        self.shown: tuple[Any, ...] = (name, labels)

    def add_metric(self, labels: list[str], value: float) -> None:
        self.shown += (labels, value)


def test_prometheus_gets_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("prometheus_client.core")
    monkeypatch.setattr(module, "GaugeMetricFamily", Family, raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", ModuleType("prometheus_client"))
    monkeypatch.setitem(sys.modules, "prometheus_client.core", module)
    collector = PrometheusCollector("producer", lambda: {"record-send-total": 3.0}, {"client_id": "a"})
    assert [each.shown for each in collector.collect()] == [("producer_record_send_total", ["client_id"], ["a"], 3.0)]
