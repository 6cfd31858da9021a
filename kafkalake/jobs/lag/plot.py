"""Plots lag over time as SVG, with a limited number of points.

A plot contains no names. The page shows them beside it as text, where long ones wrap, all scripts are supported, and
no character of a name (`$`, a leading `_`) is special to matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

LINES_MAX = 8
POINTS_MAX = 400
"""Maximum of one line: a lake measured every minute has 10,000 points per week."""
COLOURS = ("#0b6e99", "#d1495b", "#4f8f6b", "#c98a12", "#7b5ea7", "#8d6a4f", "#3f88c5", "#555555")
_DOTS_MAX = 60
_DATES = ["%Y", "%b", "%d", "%H:%M", "%H:%M", "%H:%M:%S"]
_ROUND_DATES = ["", "%Y", "%b", "%b-%d", "%H:%M", "%H:%M:%S"]
"""Labels of years, months, days, hours, minutes, seconds, and of those that begin the next larger unit: a time is a whole one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plot: its name, times (UTC, ascending) and as many values, at least one."""

    name: str
    times: list[datetime]
    values: list[float]


def thinned(line: Line, points_max: int = POINTS_MAX) -> Line:
    """Return at most `points_max` points: the largest of each stretch, so that no peak is lost, and the last one.

    >>> thinned(Line("clicks", [1, 2, 3, 4, 5, 6, 7], [0, 9, 0, 0, 4, 5, 1]), 3).values
    [9, 5, 1]
    """
    count = len(line.times)
    if count <= points_max:
        return line
    stretches = points_max - 1
    bounds = [number * (count - 1) // stretches for number in range(stretches + 1)]
    kept = [max(range(a, b), key=line.values.__getitem__) for a, b in pairwise(bounds)]
    kept.append(count - 1)
    return Line(line.name, [line.times[number] for number in kept], [line.values[number] for number in kept])


def shown(lines: Sequence[Line]) -> Iterator[tuple[Line, str]]:
    """Return the lines with the largest last values, up to the limit of a plot, with their colours."""
    largest = sorted(lines, key=lambda line: (-line.values[-1], line.name))
    return zip(largest, COLOURS[:LINES_MAX], strict=False)


def plot(lines: Sequence[tuple[Line, str]]) -> bytes:
    """Return an SVG picture of lines in their colours, with a transparent background."""
    from matplotlib import rc_context
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    with rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}):
        figure = Figure(figsize=(9, 2.4), layout="constrained")
        axes = figure.subplots()
        for whole, colour in lines:
            line = thinned(whole)
            axes.plot(
                line.times,  # type: ignore[arg-type]
                line.values,
                color=colour,
                linewidth=1.6,
                marker="o" if len(line.times) <= _DOTS_MAX else None,
                markersize=3,
            )
        axes.set_ylim(0, max(1.0, *(value for line, _ in lines for value in line.values)) * 1.05)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(locator, formats=_DATES, zero_formats=_ROUND_DATES)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(dates)
        axes.grid(axis="y", color="#e3e8ed")
        axes.spines[["top", "right"]].set_visible(False)
        written = io.BytesIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return written.getvalue()
