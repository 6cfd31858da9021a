"""JVMs of tests take their classes from an archive, and say nothing of it where they cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jars
import pytest
import quick_jvm

pytestmark = pytest.mark.peer

MAIN = ["kafka.tools.StorageTool", "random-uuid"]


def lines_of(command: list[str]) -> int:
    run = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=quick_jvm.MAKING_S, check=True
    )
    return len((run.stdout + run.stderr).splitlines())


def test_classes_come_from_the_archive(tmp_path: Path) -> None:
    quick_jvm.make()
    loaded = tmp_path / "loaded"
    quick_jvm.options.cache_clear()
    assert lines_of([*quick_jvm.kafka_command("-Xmx128m", f"-Xlog:class+load:file={loaded}"), *MAIN]) == 1
    assert "org.apache.kafka.common.Uuid source: shared objects file (top)" in loaded.read_text()


def test_an_archive_of_other_jars_is_passed_over_in_silence() -> None:
    others = ":".join(reversed(jars.jars("kafka")))
    assert lines_of([quick_jvm.java(), *quick_jvm.options("kafka"), "-Xmx128m", "-cp", others, *MAIN]) == 1
