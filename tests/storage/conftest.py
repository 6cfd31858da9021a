"""A directory in memory for the tests that make thousands of files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """As `tmp_path`, in memory where this machine has /dev/shm."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="kafkalake-test-", dir=shared))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
