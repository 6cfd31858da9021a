"""Results on disk: JSON with every round, a Markdown table made from it, and the same table in the README."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil
from quick_jvm import java

from benchmarks.measures import place_of
from benchmarks.rows import Row

MARKERS = re.compile(r"(<!-- benchmark -->\n).*?(<!-- /?benchmark -->)", re.DOTALL)


def write(results: Path, rows: list[Row]) -> str:
    """Put new rows among the earlier ones of `results` (.json), write the table beside it (.md), and return the table."""
    known: dict[str, Any] = {}
    if results.exists():
        known = json.loads(results.read_text())["rows"]
    known |= {row.key: row.as_dict() for row in rows}
    ordered = {key: known[key] for key in sorted(known, key=place_of)}
    results.write_text(json.dumps({"machine": machine(), "rows": ordered}, indent=1) + "\n")
    text = table(list(ordered.values()))
    results.with_suffix(".md").write_text(text)
    return text


def table(rows: list[dict[str, Any]]) -> str:
    """The Markdown table with a line on where and how it was measured."""
    lines = [
        "| measure | kafkalake | Apache Kafka 4.1.1 | ratio (rounds) | promised | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = (row["measure"], row["kafkalake"], row["apache_kafka"], row["ratio"], row["promise"])
        lines.append(f"| {' | '.join(cells)} | {'holds' if row['holds'] else '**missed**'} |")
    dates = sorted({row["measured_at"][:10] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else ""
    lines += ["", f"Medians of alternating rounds, brokers and clients on one machine: {describe(machine())}; {when}."]
    return "\n".join(lines) + "\n"


def write_readme(readme: Path, text: str) -> None:
    """Replace what stands between the `<!-- benchmark -->` markers. Raises `ValueError` where they are missing."""
    before = readme.read_text()
    after, count = MARKERS.subn(lambda found: found[1] + text + found[2], before)
    if count != 1:
        raise ValueError(f"{readme} has {count} pairs of <!-- benchmark --> markers, one is needed")
    readme.write_text(after)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=30).stderr
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": said.splitlines()[0] if said else "unknown",
    }


def describe(found: dict[str, Any]) -> str:
    runtime = re.search(r'"([^"]+)"', found["java"])
    return (
        f"{found['cores']} cores ({found['processor']}), {found['memory_gib']} GiB, Python {found['python']}, "
        f"Java {runtime[1] if runtime else found['java']}"
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.machine()
