"""Metrics of a client: totals, and rates, averages and maxima over the last half minute. No clock.

Names are Kafka's where Kafka has them. `Metrics.snapshot` returns all as a dictionary, `PrometheusCollector` is for
`prometheus-client`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

WINDOW_S = 30
"""What rates, averages and maxima are taken over, in slots of a second."""


class _Window:
    """Counts, sums and maxima of the last seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self._slots: deque[tuple[int, int, float, float]] = deque(maxlen=WINDOW_S)

    def add(self, value: float, now_ms: int) -> None:
        self.total += value
        second = now_ms // 1_000
        if self._slots and self._slots[-1][0] == second:
            _, count, total, most = self._slots.pop()
            self._slots.append((second, count + 1, total + value, max(most, value)))
        else:
            self._slots.append((second, 1, value, value))

    def recent(self, now_ms: int) -> tuple[int, float, float]:
        """Return (number, sum, maximum) of the values of the window."""
        first = now_ms // 1_000 - WINDOW_S + 1
        slots = [slot for slot in tuple(self._slots) if slot[0] >= first]
        return (
            sum(slot[1] for slot in slots),
            sum(slot[2] for slot in slots),
            max((slot[3] for slot in slots), default=0),
        )


class Metrics:
    """See the module. Written by one thread, read by any."""

    def __init__(self, began_ms: int = 0) -> None:
        self._began_ms = began_ms
        self._counted: dict[str, _Window] = {}
        self._observed: dict[str, _Window] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, number: float, now_ms: int) -> None:
        """Add to what `NAME-total` and `NAME-rate` (a second) show."""
        self._counted.setdefault(name, _Window()).add(number, now_ms)

    def observe(self, name: str, value: float, now_ms: int) -> None:
        """Add a value of which `NAME-avg` and `NAME-max` are shown."""
        self._observed.setdefault(name, _Window()).add(value, now_ms)

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Show what `read` returns as `NAME`."""
        self._gauges[name] = read

    def snapshot(self, now_ms: int) -> dict[str, float]:
        """Return all metrics by name."""
        found: dict[str, float] = {}
        seconds = min(max(now_ms - self._began_ms, 1_000) / 1_000, WINDOW_S)
        for name, window in tuple(self._counted.items()):
            found[f"{name}-total"] = window.total
            found[f"{name}-rate"] = window.recent(now_ms)[1] / seconds
        for name, window in tuple(self._observed.items()):
            count, total, most = window.recent(now_ms)
            found[f"{name}-avg"] = total / count if count else 0.0
            found[f"{name}-max"] = most
        return found | {name: read() for name, read in tuple(self._gauges.items())}


class PrometheusCollector:
    """Metrics of a client for `prometheus_client.REGISTRY.register(PrometheusCollector("producer", producer.metrics))`."""

    def __init__(
        self, prefix: str, read: Callable[[], Mapping[str, float]], labels: Mapping[str, str] | None = None
    ) -> None:
        """`read` returns the metrics. labels: of all of them, as `{"client_id": "orders"}`."""
        self._prefix = prefix
        self._read = read
        self._labels = dict(labels or {})

    def collect(self) -> Iterator[Any]:
        """Yield a gauge for each metric, as `prometheus-client` asks for them. Needs that package."""
        from prometheus_client.core import GaugeMetricFamily

        for name, value in sorted(self._read().items()):
            text = f"{self._prefix}_{name}".replace("-", "_")
            family = GaugeMetricFamily(text, f"{name} of the {self._prefix}", labels=list(self._labels))
            family.add_metric(list(self._labels.values()), value)
            yield family
