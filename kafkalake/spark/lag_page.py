"""The lag report as one HTML file: plots of lag over time, a table a group, nothing fetched from anywhere.

Plots are SVG made by matplotlib, each in a data URI, so that ids inside them cannot meet. The groups that are furthest behind come
first and get plots; the table below has them all, up to a bound.
"""

from __future__ import annotations

import base64
import html
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.metadata import paths
from kafkalake.metadata.job_tables import JobTable, exists
from kafkalake.spark.lag_report import Alert, Lag, duration

GROUPS_PLOTTED = 20
LINES_MAX = 8
ROWS_MAX = 2_000
DAYS = 7

_DAY_MS = 86_400_000
_COLOURS = ("#0b6e99", "#d1495b", "#66a182", "#edae49", "#7b5ea7", "#8d6a4f", "#3f88c5", "#555555")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b2733; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
p.when, p.more { color: #5c6b7a; margin: .2rem 0 1rem; }
ul.alerts { background: #fdecee; border-left: 4px solid #d1495b; padding: .7rem 1rem .7rem 2rem; }
figure { margin: .5rem 0; } figure img { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e3e8ed; white-space: nowrap; }
th { color: #5c6b7a; font-weight: 600; } .text { text-align: left; } tr.behind td { background: #fffaf0; }
"""

Line = tuple[str, list[datetime], list[float]]
"""A line of a plot: its name, times (UTC) and values."""


def write_page(path: Path, lake: Path, now_ms: int, rows: Sequence[Lag], raised: Sequence[Alert]) -> None:
    """Write the page for what was measured now, with the plots of what `lag` has of the last days. Raises `OSError`."""
    history = _history(lake, now_ms)
    content = page(lake, now_ms, rows, raised, history)
    path.write_text(content, encoding="utf-8")


def page(
    lake: Path, now_ms: int, rows: Sequence[Lag], raised: Sequence[Alert], history: Mapping[tuple[str, str], Line]
) -> str:
    """The page as text. history: by group and topic, as `_history` makes it."""
    by_group: dict[str, list[Lag]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row)
    behind = {group: sum(row.lag for row in members) for group, members in by_group.items()}
    order = sorted(behind, key=lambda group: (-behind[group], group))
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Lag of consumer groups</title>",
        f"<style>{_STYLE}</style></head><body><h1>Lag of consumer groups</h1>",
        f"<p class='when'>{html.escape(str(lake))}, {moment:%Y-%m-%d %H:%M:%S} UTC: {len(order)} groups, "
        f"{sum(1 for group in order if behind[group])} behind, by {sum(behind.values()):,} records in all</p>",
    ]
    if raised:
        items = "".join(f"<li>{html.escape(alert.text)}</li>" for alert in raised)
        parts.append(f"<ul class='alerts'>{items}</ul>")
    overview = _overview(order, history)
    if overview:
        parts.append(_figure("The groups that are furthest behind", overview))
    for group in order[:GROUPS_PLOTTED]:
        parts.append(f"<h2>{html.escape(group)}</h2>")
        lines = [(topic, *line[1:]) for (name, topic), line in sorted(history.items()) if name == group]
        if lines:
            parts.append(_figure("Lag over time, records", lines))
        parts.append(_table(by_group[group][:ROWS_MAX], with_group=False))
    rest = [row for group in order[GROUPS_PLOTTED:] for row in by_group[group]]
    if rest:
        parts.append("<h2>All other groups</h2>")
        parts.append(_table(rest[:ROWS_MAX], with_group=True))
        if len(rest) > ROWS_MAX:
            parts.append(f"<p class='more'>and {len(rest) - ROWS_MAX:,} more rows in the Delta table lag</p>")
    return "".join([*parts, "</body></html>\n"])


def plot(title: str, lines: Sequence[Line], *, image_format: str = "svg") -> bytes:
    """A plot of lag over time, one line each, at most `LINES_MAX` of them: those with the largest last value."""
    from matplotlib import rc_context
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    shown = sorted(lines, key=lambda line: (-line[2][-1], line[0]))[:LINES_MAX]
    with rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}):
        figure = Figure(figsize=(9, 2.6), layout="constrained")
        axes = figure.subplots()
        for (name, times, values), colour in zip(shown, _COLOURS, strict=False):
            axes.plot(
                times,  # type: ignore[arg-type]
                values,
                color=colour,
                label=name,
                linewidth=1.6,
                marker="o",
                markersize=3,
            )
        left = len(lines) - len(shown)
        axes.set_title(title + (f" ({left} more not shown)" if left else ""), loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.grid(axis="y", color="#e3e8ed")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        written = io.BytesIO()
        figure.savefig(
            written, format=image_format, dpi=110, metadata={"Date": None} if image_format == "svg" else None
        )
    return written.getvalue()


def _figure(title: str, lines: Sequence[Line]) -> str:
    encoded = base64.b64encode(plot(title, lines)).decode()
    return f"<figure><img alt='{html.escape(title)}' src='data:image/svg+xml;base64,{encoded}'></figure>"


def _overview(order: Sequence[str], history: Mapping[tuple[str, str], Line]) -> list[Line]:
    """The lag of each group over all its topics, of the groups that are furthest behind."""
    sums: dict[str, dict[datetime, float]] = defaultdict(lambda: defaultdict(float))
    for (group, _), (_, times, values) in history.items():
        for time, value in zip(times, values, strict=True):
            sums[group][time] += value
    ordered = {group: sorted(sums[group].items()) for group in order[:LINES_MAX] if group in sums}
    return [(group, [at for at, _ in points], [lag for _, lag in points]) for group, points in ordered.items()]


def _history(lake: Path, now_ms: int) -> dict[tuple[str, str], Line]:
    """The lag over time by group and topic, from the Delta table `lag`."""
    if not exists(lake, paths.LAG):
        return {}
    columns = ["measured_at", "group", "topic", "lag"]
    table = JobTable(lake, paths.LAG).rows(now_ms - DAYS * _DAY_MS, columns)
    summed: pa.Table = table.group_by(["group", "topic", "measured_at"]).aggregate([("lag", "sum")])
    summed = summed.take(pc.sort_indices(summed, sort_keys=[("measured_at", "ascending")]))
    lines: dict[tuple[str, str], Line] = {}
    for row in summed.to_pylist():
        _, times, values = lines.setdefault((row["group"], row["topic"]), (row["topic"], [], []))
        times.append(row["measured_at"])
        values.append(float(row["lag_sum"]))
    return lines


_COLUMNS: dict[str, Any] = {
    "topic": lambda row: row.topic,
    "partition": lambda row: row.partition,
    "committed": lambda row: f"{row.committed_offset:,}",
    "log end": lambda row: f"{row.log_end_offset:,}",
    "lag": lambda row: f"{row.lag:,}",
    "age of next": lambda row: "" if row.lag_seconds is None else duration(row.lag_seconds),
    "in/s": lambda row: "" if row.rate_in is None else f"{row.rate_in:,.1f}",
    "out/s": lambda row: "" if row.rate_out is None else f"{row.rate_out:,.1f}",
    "catches up in": lambda row: duration(row.catch_up_seconds),
    "lost": lambda row: f"{row.lost:,}" if row.lost else "",
}


def _table(rows: Sequence[Lag], *, with_group: bool) -> str:
    columns = {"group": lambda row: row.group, **_COLUMNS} if with_group else _COLUMNS
    head = "".join(f"<th{_class(name)}>{name}</th>" for name in columns)
    lines = []
    for row in rows:
        cells = "".join(f"<td{_class(name)}>{html.escape(str(of(row)))}</td>" for name, of in columns.items())
        lines.append(f"<tr{' class=behind' if row.lag else ''}>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _class(name: str) -> str:
    return " class=text" if name in ("group", "topic") else ""
