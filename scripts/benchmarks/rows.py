"""What a measure hands over: a row of the table, with every round's figure behind it, and whether the promise holds.

Pure: figures in, rows out.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
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


def compare_rates(
    key: str, measure: str, ours: list[float], theirs: list[float], *, at_least: float, unit: str, **figures: Any
) -> Row:
    """More is better: the ratio is ours over theirs, round by round."""
    return _compare(
        key, measure, ours, theirs, [a / b for a, b in zip(ours, theirs, strict=True)], at_least, unit, figures
    )


def compare_times(
    key: str, measure: str, ours: list[float], theirs: list[float], *, at_least: float, unit: str, **figures: Any
) -> Row:
    """Less is better: the ratio is theirs over ours, round by round."""
    return _compare(
        key, measure, ours, theirs, [b / a for a, b in zip(ours, theirs, strict=True)], at_least, unit, figures
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
    ratio = statistics.median(ratios)
    return Row(
        key,
        measure,
        f"{number(statistics.median(ours))} {unit}",
        f"{number(statistics.median(theirs))} {unit}",
        f"{ratio:.2f} x ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{at_least:g} x",
        ratio >= at_least,
        {"kafkalake": ours, "apache_kafka": theirs, "unit": unit, **figures},
    )


def number(value: float) -> str:
    """Three significant digits, with thousands grouped: 0.123, 4.56, 381,000."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.3g}"
