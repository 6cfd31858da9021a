"""franz-go, Go's client of Kafka, as a process that does what it is asked (`franz_go/main.go`)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from types import TracebackType

import pytest

SOURCE = Path(__file__).parent / "franz_go"
CACHE = Path(__file__).parents[2] / ".cache" / "franz-go"
BUILD_TIMEOUT_S, ANSWER_TIMEOUT_S = 300, 90


def program() -> Path:
    """Return the program, compiled if it is not there. Skip the test where there is no Go."""
    digest = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    built = CACHE / digest.hexdigest()[:16]
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = built.with_suffix(f".{os.getpid()}")
    command = [go, "build", "-mod=readonly", "-o", str(partial), "."]
    building = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    assert building.returncode == 0, building.stderr
    partial.replace(built)
    return built


class GoClient:
    """The program with the addresses of brokers; use as a context manager."""

    def __init__(self, servers: str) -> None:
        self._command = [str(program()), servers]

    def __enter__(self) -> GoClient:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            self._process.kill()

    def ask(self, *words: object) -> list[str]:
        """Return what it has found."""
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            print(*words, file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline() or "{}")
        finally:
            timer.cancel()
        assert "found" in answer, (words, answer)
        found: list[str] = answer["found"]
        return found
