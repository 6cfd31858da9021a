"""The lag report as one self-contained HTML file: plots of lag over time, and a table per group.

Plots (`plot`) are SVG in data URIs, so that their ids cannot collide. Their legends are text beside them. The
groups furthest behind come first and have plots. The last table lists all others, up to a limit. Wide elements scroll
sideways, so that the page fits a phone. It follows the reader's dark mode.
"""

from __future__ import annotations

import base64
import html
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.counted import counted
from kafkalake.jobs.lag.plot import LINES_MAX, Line, plot, shown
from kafkalake.jobs.lag.report import Alert, Lag, catching_up, duration
from kafkalake.metadata import paths
from kafkalake.metadata.disk import DISK
from kafkalake.metadata.tables.job_tables import JobTable, exists

GROUPS_PLOTTED = 20
ROWS_MAX = 2_000
ALERTS_SHOWN = 10
ALERTS_MAX = 1_000
DAYS = 7

_DAY_MS = 86_400_000
_STYLE = """
:root { color-scheme: light dark; --text: #1b2733; --soft: #5c6b7a; --rule: #e3e8ed; --alert: #fdecee; --behind: #fffaf0; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, p, li { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
h2 a { color: inherit; text-decoration: none; }
h3 { font-size: .95rem; font-weight: 600; margin: .8rem 0 .2rem; }
p.when, p.more { color: var(--soft); margin: .2rem 0 1rem; }
.alerts { background: var(--alert); border-left: 4px solid #d1495b; padding: .5rem 1rem; }
.alerts ul { margin: .2rem 0; padding-left: 1.2rem; } .alerts summary { cursor: pointer; }
figure { margin: .3rem 0 .8rem; } .wide { overflow-x: auto; } figure img { width: 100%; min-width: 38rem; display: block; }
figcaption { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; font-size: .85rem; }
figcaption span { overflow-wrap: anywhere; }
figcaption i { display: inline-block; width: 1rem; height: .25rem; margin-right: .4rem; vertical-align: middle; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th.text, td.text { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; } tr.behind td { background: var(--behind); }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e9ee; --soft: #9fb0bf; --rule: #33404d; --alert: #43222a; --behind: #2c2a20; }
  body { background: #161c22; } figure img, figcaption i { filter: invert(.92) hue-rotate(180deg); }
}
"""

History = Mapping[tuple[str, str], Line]
"""The lag over time, by group and topic."""


def write_page(path: Path, lake: Path, now_ms: int, rows: Sequence[Lag], raised: Sequence[Alert]) -> None:
    """Write the page for the current measurements, with plots of the last days from `lag`.

    Raise `OSError` on failure, which keeps the last page.
    """
    history = _history(lake, now_ms)
    content = page(lake, now_ms, rows, raised, history)
    try:
        _replace(path, content.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, content: bytes) -> None:
    """Replace a file and keep its mode: a web server that may read the last page may read this one.

    What is another kind of file, such as `/dev/stdout`, is written in place.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(content)
        return
    mode = path.stat().st_mode if path.exists() else None
    DISK.replace(path, content, 0o666)
    if mode is not None:
        path.chmod(mode)


def page(lake: Path, now_ms: int, rows: Sequence[Lag], raised: Sequence[Alert], history: History) -> str:
    """Return the page as text."""
    by_group: dict[str, list[Lag]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row)
    behind = {group: sum(row.lag for row in members) for group, members in by_group.items()}
    order = sorted(behind, key=lambda group: (-behind[group], group))
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'><title>Lag of consumer groups</title>",
        f"<style>{_STYLE}</style></head><body><h1>Lag of consumer groups</h1>",
        f"<p class='when'>{html.escape(str(lake))}, {moment:%Y-%m-%d %H:%M:%S} UTC: {counted(len(order), 'group')}, "
        f"{sum(1 for group in order if behind[group])} behind, by {counted(sum(behind.values()), 'record')} in all</p>",
        _alerts(raised),
    ]
    if not order:
        parts.append("<p>No group has committed offsets in these topics.</p>")
    overview = _overview(order, history)
    if len(overview) > 1:
        parts.append(_figure("The groups that are furthest behind: records, UTC", overview))
    for group in order[:GROUPS_PLOTTED]:
        parts.append(_heading(group))
        parts.append(
            _figure("Lag over time: records, UTC", [line for (name, _), line in history.items() if name == group])
        )
        parts.append(_table(by_group[group][:ROWS_MAX], with_group=False))
        parts.append(_more_rows(len(by_group[group])))
    rest = [row for group in order[GROUPS_PLOTTED:] for row in by_group[group]]
    if rest:
        parts.append("<h2>All other groups</h2>")
        parts.append(_table(rest[:ROWS_MAX], with_group=True))
        parts.append(_more_rows(len(rest)))
    return "".join([*parts, "</body></html>\n"])


def _heading(group: str) -> str:
    """Return the heading of a group, which is a link to itself."""
    name = f"group-{quote(group, safe='')}"
    return f"<h2 id='{name}'><a href='#{name}'>{html.escape(group)}</a></h2>"


def _alerts(raised: Sequence[Alert]) -> str:
    if not raised:
        return ""
    items = [f"<li>{html.escape(alert.text)}</li>" for alert in raised[:ALERTS_MAX]]
    text = f"<div class='alerts'><b>{counted(len(raised), 'alert')}</b><ul>{''.join(items[:ALERTS_SHOWN])}</ul>"
    if len(items) > ALERTS_SHOWN:
        hidden = f"<p>and {len(raised) - ALERTS_MAX:,} more in job_runs</p>" if len(raised) > ALERTS_MAX else ""
        text += f"<details><summary>all others</summary><ul>{''.join(items[ALERTS_SHOWN:])}</ul>{hidden}</details>"
    return text + "</div>"


def _figure(title: str, lines: Sequence[Line]) -> str:
    """Return a plot with its title and legend, or a sentence if there are fewer than two points."""
    if max((len(line.times) for line in lines), default=0) < 2:
        return "<p class='more'>Measured once so far: a plot comes with the next run.</p>"
    drawn = list(shown(lines))
    encoded = base64.b64encode(plot(drawn)).decode()
    names = [f"<span><i style='background:{colour}'></i>{html.escape(line.name)}</span>" for line, colour in drawn]
    if len(lines) > len(drawn):
        names.append(f"<span>{len(lines) - len(drawn)} more are not drawn</span>")
    picture = f"<img alt='{html.escape(title)}' src='data:image/svg+xml;base64,{encoded}'>"
    return (
        f"<figure><h3>{html.escape(title)}</h3><div class='wide'>{picture}</div>"
        f"<figcaption>{''.join(names)}</figcaption></figure>"
    )


def _overview(order: Sequence[str], history: History) -> list[Line]:
    """Return the total lag of each of the groups furthest behind, over all its topics."""
    sums: dict[str, dict[datetime, float]] = defaultdict(lambda: defaultdict(float))
    for (group, _), line in history.items():
        for time, value in zip(line.times, line.values, strict=True):
            sums[group][time] += value
    ordered = {group: sorted(sums[group].items()) for group in order[:LINES_MAX] if group in sums}
    return [Line(group, [at for at, _ in points], [lag for _, lag in points]) for group, points in ordered.items()]


def _history(lake: Path, now_ms: int) -> dict[tuple[str, str], Line]:
    """Return the lag over time by group and topic, from the Delta table `lag`."""
    if not exists(lake, paths.LAG):
        return {}
    columns = ["measured_at", "group", "topic", "lag"]
    table = JobTable(lake, paths.LAG).rows(now_ms - DAYS * _DAY_MS, columns)
    summed: pa.Table = table.group_by(["group", "topic", "measured_at"]).aggregate([("lag", "sum")])
    summed = summed.take(pc.sort_indices(summed, sort_keys=[("measured_at", "ascending")]))
    lines: dict[tuple[str, str], Line] = {}
    for row in summed.to_pylist():
        line = lines.setdefault((row["group"], row["topic"]), Line(row["topic"], [], []))
        line.times.append(row["measured_at"])
        line.values.append(float(row["lag_sum"]))
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
    "catches up in": catching_up,
    "lost": lambda row: f"{row.lost:,}" if row.lost else "",
}


def _table(rows: Sequence[Lag], *, with_group: bool) -> str:
    columns = {"group": lambda row: row.group, **_COLUMNS} if with_group else _COLUMNS
    head = "".join(f"<th{_class(name)}>{name}</th>" for name in columns)
    lines = []
    for row in rows:
        cells = "".join(f"<td{_class(name)}>{html.escape(str(of(row)))}</td>" for name, of in columns.items())
        lines.append(f"<tr{' class=behind' if row.lag else ''}>{cells}</tr>")
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"


def _more_rows(rows: int) -> str:
    if rows <= ROWS_MAX:
        return ""
    return f"<p class='more'>and {counted(rows - ROWS_MAX, 'more row')} in the Delta table lag</p>"


def _class(name: str) -> str:
    return " class=text" if name in ("group", "topic") else ""
