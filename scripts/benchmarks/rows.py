"""What a measure hands over: a row of the table, with every round's figure behind it, and whether the promise holds.

Pure: figures in, rows out.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table. `figures` holds what was measured, round by round, by name."""

    key: str
    measure: str
    kafkalake: str
    apache_kafka: str
    ratio: str
    promise: str
    holds: bool
    figures: dict[str, Any] = field(default_factory=dict)
    measured_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Cost:
    """User and system time of the brokers' processes, in seconds a `unit` of work, by the broker's name, round by round."""

    unit: str
    seconds: dict[str, list[float]] = field(default_factory=dict)


def compare_rates(
    key: str,
    measure: str,
    ours: list[float],
    theirs: list[float],
    *,
    at_least: float,
    unit: str,
    cost: Cost | None = None,
    **figures: Any,
) -> Row:
    """More is better: the ratio is ours over theirs, round by round. The row names the `cost`, if given, beside the rate."""
    row = _compare(key, measure, ours, theirs, _ratios(ours, theirs), at_least, unit, figures)
    return row if cost is None else _with_cost(row, cost)


def compare_times(
    key: str, measure: str, ours: list[float], theirs: list[float], *, at_least: float, unit: str, **figures: Any
) -> Row:
    """Less is better: the ratio is theirs over ours, round by round."""
    return _compare(key, measure, ours, theirs, _ratios(theirs, ours), at_least, unit, figures)


def limited(row: Row, most: float) -> Row:
    """The row with another promise: our median is `most` at most, in its unit, whatever the other side's is."""
    holds = statistics.median(row.figures["kafkalake"]) <= most
    return replace(row, promise=f"{most:g} {row.figures['unit']} at most", holds=holds)


def _with_cost(row: Row, cost: Cost) -> Row:
    """Less is better: the ratio is theirs over ours, as with times."""
    ours, theirs = cost.seconds["kafkalake"], cost.seconds["apache-kafka"]
    return replace(
        row,
        kafkalake=f"{row.kafkalake}; {number(statistics.median(ours))} CPU s/{cost.unit}",
        apache_kafka=f"{row.apache_kafka}; {number(statistics.median(theirs))} CPU s/{cost.unit}",
        ratio=f"{row.ratio}; CPU {_spread(_ratios(theirs, ours))}",
        figures={**row.figures, "cpu_s": {"unit": cost.unit, "kafkalake": ours, "apache_kafka": theirs}},
    )


def _compare(
    key: str,
    measure: str,
    ours: list[float],
    theirs: list[float],
    ratios: list[float],
    at_least: float,
    unit: str,
    figures: dict[str, Any],
) -> Row:
    return Row(
        key,
        measure,
        f"{number(statistics.median(ours))} {unit}",
        f"{number(statistics.median(theirs))} {unit}",
        _spread(ratios),
        f"{at_least:g} x",
        statistics.median(ratios) >= at_least,
        {"kafkalake": ours, "apache_kafka": theirs, "unit": unit, **figures},
    )


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"


def number(value: float) -> str:
    """Three significant digits, with thousands grouped: 0.123, 4.56, 381,000."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.3g}"
