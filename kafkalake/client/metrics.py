"""Metrics of a client: totals, and rates, averages and maxima over the last half minute. No clock.

Names are Kafka's where Kafka has them. `Metrics.snapshot` returns all as a dictionary, `PrometheusCollector` is for
`prometheus-client`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

WINDOW_S = 30
"""What rates, averages and maxima are taken over, in slots of a second."""


class _Slot:
    """The number, the sum and the maximum of the values of a second."""

    __slots__ = ("count", "most", "second", "total")

    def __init__(self, second: int, value: float) -> None:
        self.second = second
        self.count = 1
        self.total = self.most = value

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        if value > self.most:
            self.most = value


class _Window:
    """Counts, sums and maxima of the last seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self._slots: deque[_Slot] = deque(maxlen=WINDOW_S)

    def add(self, value: float, now_ms: int) -> None:
        self.total += value
        second = now_ms // 1_000
        slots = self._slots
        if not slots or slots[-1].second != second:
            slots.append(_Slot(second, value))
        else:
            slots[-1].add(value)

    def recent(self, now_ms: int) -> tuple[int, float, float]:
        """Return (number, sum, maximum) of the values of the window."""
        first = now_ms // 1_000 - WINDOW_S + 1
        slots = [slot for slot in tuple(self._slots) if slot.second >= first]
        return (
            sum(slot.count for slot in slots),
            sum(slot.total for slot in slots),
            max((slot.most for slot in slots), default=0),
        )


class Metrics:
    """See the module. Written by one thread, read by any."""

    def __init__(self, began_ms: int = 0) -> None:
        self._began_ms = began_ms
        self._counted: defaultdict[str, _Window] = defaultdict(_Window)
        self._observed: defaultdict[str, _Window] = defaultdict(_Window)
        self._gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, number: float, now_ms: int) -> None:
        """Add to what `NAME-total` and `NAME-rate` (a second) show."""
        self._counted[name].add(number, now_ms)

    def observe(self, name: str, value: float, now_ms: int) -> None:
        """Add a value of which `NAME-avg` and `NAME-max` are shown."""
        self._observed[name].add(value, now_ms)

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


Read = Callable[[], Mapping[str, float]]
"""Returns the metrics of a client, as its method `metrics`."""


class PrometheusCollector:
    """Metrics of clients for `prometheus_client.REGISTRY.register(PrometheusCollector("producer", producer.metrics))`.

    Clients of one prefix share a collector: `add`. Totals are counters, all others gauges.
    """

    def __init__(self, prefix: str, read: Read, labels: Mapping[str, str] | None = None) -> None:
        """labels: of all metrics of this client, as `{"client_id": "orders"}`."""
        self._prefix = prefix
        self._names = sorted(labels or {})
        self._clients: list[tuple[Read, list[str]]] = []
        self.add(read, labels)

    def add(self, read: Read, labels: Mapping[str, str] | None = None) -> None:
        """Show another client too. Raise `ValueError` if it has not the same names of labels, or the labels of another one."""
        given = labels or {}
        values = [given[name] for name in sorted(given)]
        if sorted(given) != self._names or any(values == known for _, known in self._clients):
            raise ValueError(f"clients of one collector differ by the labels {self._names}, and have no others")
        self._clients.append((read, values))

    def collect(self) -> Iterator[Any]:
        """Yield a family for each metric, as `prometheus-client` asks for them. Needs that package."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for read, values in tuple(self._clients):
            for name, value in read().items():
                if name not in families:
                    kind = CounterMetricFamily if name.endswith("-total") else GaugeMetricFamily
                    text = f"{self._prefix}_{name}".replace("-", "_")
                    families[name] = kind(text, f"{name} of the {self._prefix}", labels=self._names)
                families[name].add_metric(values, value)
        yield from (families[name] for name in sorted(families))
