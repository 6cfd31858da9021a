"""The page of the lag report: every name as it is written, long histories, and what it says where there is nothing to draw."""

from __future__ import annotations

import base64
import html
import os
import re
import resource
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafkalake.jobs.lag.page import page, write_page
from kafkalake.jobs.lag.plot import LINES_MAX, POINTS_MAX, Line, plot, shown, thinned
from kafkalake.jobs.lag.report import Alert, Lag, catching_up

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def line(name: str, values: list[float]) -> Line:
    times = [NOW - timedelta(minutes=len(values) - number) for number in range(len(values))]
    return Line(name, times, values)


def lag(group: str, topic: str = "clicks", behind: int = 5, rate_out: float | None = None) -> Lag:
    return Lag(group, topic, 0, 10, NOW_MS, 0, 10 + behind, behind, 1.0, None, rate_out, None, 0)


def text_of(content: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", content.partition("</style>")[2]))


@pytest.mark.process
@pytest.mark.parametrize("name", ["$x_1$", "$broken", "_hidden", "a" * 249, "<b>&'\"", "日本"])
def test_names_are_text_whatever_is_in_them(name: str) -> None:
    history = {(name, topic): line(topic, [1.0, 2.0]) for topic in (name, "other")} | {
        ("b", "c"): line("c", [1.0, 1.0])
    }
    content = page(
        Path("/lake"), NOW_MS, [lag(name, name), lag("b", "c")], [Alert(name, name, "max-lag", 5, 1)], history
    )
    # Heading, alert, legends of two plots, table.
    assert text_of(content).count(name) >= 5
    pictures = re.findall(r"src='data:image/svg\+xml;base64,([^']*)'", content)
    assert len(pictures) == 3
    assert all(name.encode() not in base64.b64decode(picture) for picture in pictures)
    assert "<b>&" not in content


def test_a_group_has_a_link() -> None:
    content = page(Path("/lake"), NOW_MS, [lag("a b'<"), lag("etl")], [], {})
    assert "<h2 id='group-etl'><a href='#group-etl'>etl</a></h2>" in content
    assert "<h2 id='group-a%20b%27%3C'><a href='#group-a%20b%27%3C'>" in content


@pytest.mark.process
def test_ticks_are_whole_times_also_where_seconds_are_between_them() -> None:
    times = [NOW + timedelta(seconds=10 * number) for number in range(6)]
    picture = plot([(Line("etl", times, [1.0] * 6), "#000000")]).decode()
    assert "12:00:10" in picture
    assert not re.search(r">\s*\d\d\s*</text>", picture)


def test_what_cannot_be_drawn_is_said() -> None:
    assert "No group has committed offsets in these topics" in page(Path("/lake"), NOW_MS, [], [], {})
    once = page(Path("/lake"), NOW_MS, [lag("etl")], [], {("etl", "clicks"): line("clicks", [5.0])})
    assert "1 group, 1 behind, by 5 records in all" in text_of(once)
    assert "Measured once so far: a plot comes with the next run." in once
    assert "<img" not in once
    never = page(Path("/lake"), NOW_MS, [lag("etl", behind=0)], [], {})
    assert "Measured once so far" in never


@pytest.mark.process
def test_a_plot_has_a_bounded_number_of_lines_and_points_and_keeps_the_peaks() -> None:
    values = [float(number % 7) for number in range(10_000)]
    values[4_321], values[-1] = 1e6, 3.0
    week = line("clicks", values)
    thin = thinned(week)
    assert len(thin.times) == len(thin.values) == POINTS_MAX
    assert (max(thin.values), thin.values[-1], thin.times[-1]) == (1e6, 3.0, week.times[-1])
    assert thin.times == sorted(thin.times)
    assert thinned(line("few", [1.0, 2.0])).values == [1.0, 2.0]
    many = [line(f"topic-{number:02}", [float(number), float(number)]) for number in range(30)]
    drawn = list(shown(many))
    assert [each.name for each, _ in drawn] == [f"topic-{number:02}" for number in range(29, 29 - LINES_MAX, -1)]
    assert len(plot([(each, colour) for each, colour in [(week, "#000000"), *drawn]])) < 100_000
    content = page(
        Path("/lake"), NOW_MS, [lag("etl", each.name) for each in many], [], {("etl", x.name): x for x in many}
    )
    assert "22 more are not drawn" in content


@pytest.mark.exhaustive
def test_many_alerts_are_folded_up_and_none_is_left_out() -> None:
    raised = [Alert(f"group-{number:03}", "clicks", "max-lag", 5, 1) for number in range(200)]
    content = page(Path("/lake"), NOW_MS, [lag("group-000")], raised, {})
    assert "200 alerts" in content
    assert all(alert.text in text_of(content) for alert in raised)
    assert content.index("<details>") > content.index("group-009") < content.index("group-010")


def test_no_rate_is_not_never() -> None:
    assert catching_up(lag("etl", rate_out=None)) == ""
    assert catching_up(lag("etl", rate_out=0.0)) == "never"


@pytest.mark.process
def test_a_page_that_cannot_be_written_leaves_the_last_one(tmp_path: Path) -> None:
    file = tmp_path / "lag.html"
    write_page(file, tmp_path, NOW_MS, [lag("a")], [])
    file.chmod(0o604)
    last = file.read_text()
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))  # as a full disk
    try:
        for _ in range(2):
            with pytest.raises(OSError, match=r"File too large: .*lag\.html'"):
                write_page(file, tmp_path, NOW_MS, [lag("b")], [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_text() == last
    write_page(file, tmp_path, NOW_MS, [lag("b")], [])
    assert "<h2 id='group-b'>" in file.read_text()
    assert [(each.name, each.stat().st_mode & 0o777) for each in tmp_path.iterdir()] == [("lag.html", 0o604)]


def test_a_page_goes_into_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_page(pipe, tmp_path, NOW_MS, [lag("a")], [])
    reader.join(20)
    assert read[0].startswith("<!doctype html>")
    assert pipe.is_fifo()
