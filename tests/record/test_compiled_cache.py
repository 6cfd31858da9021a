"""Compiled kernels in installations that cannot be written, have no cache, no home, or another version's cache.

Each case is a copy of the package in a process of its own. Where the tests run as root, that process gives up root's right to write
where permissions forbid it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.errors import NumbaError

import kafkalake
from kafkalake.record.compiled import compiled

pytestmark = pytest.mark.process

_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH, _CAP_FOWNER, _PR_CAPBSET_DROP = 1, 2, 3, 24

_CHILD = """
import json
from kafkalake.record import crc32c
import numpy as np
stats = crc32c.checksum.stats
print(json.dumps({
    "file": crc32c.__file__,
    "right": int(crc32c.checksum(np.frombuffer(b"123456789", dtype=np.uint8), 0, 9)) == 0xE3069283,
    "from_cache": sum(stats.cache_hits.values()),
    "compiled": int(stats.cache_path is None or sum(stats.cache_misses.values())),
    "cache": stats.cache_path,
}))
"""


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Path]:
    """A copy of the package without caches; below it `home` and `tmp`."""
    install(tmp_path)
    yield tmp_path
    make_writable(tmp_path)


def install(directory: Path) -> None:
    package = directory / "site" / "kafkalake"
    (package / "record").mkdir(parents=True)
    source = Path(kafkalake.__file__).parent
    for path in [*source.glob("*.py"), *source.glob("record/*.py")]:
        shutil.copy2(path, package / path.relative_to(source))
    (directory / "home").mkdir()
    (directory / "tmp").mkdir()


def make_writable(installation: Path) -> None:
    for path in [installation, *installation.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation of which a process has filled the package's cache, to be copied."""
    directory = tmp_path_factory.mktemp("shipped") / "installation"
    install(directory)
    run(directory)
    return directory


@pytest.fixture
def filled(shipped: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of that installation, with its cache."""
    copy = tmp_path / "installation"
    shutil.copytree(shipped, copy)
    yield copy
    make_writable(copy)


def _give_up_root() -> None:
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH, _CAP_FOWNER):
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability)


def run(installation: Path, **environment: str) -> dict[str, Any]:
    """Import the kernels of the copy in a fresh process."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(installation / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(installation / "home"),
        "TMPDIR": str(installation / "tmp"),
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        cwd=installation,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=_give_up_root,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["file"].startswith(str(installation))
    assert found["right"]
    found["said"] = done.stderr
    return found


def make_read_only(*directories: Path) -> None:
    for directory in directories:
        for path in [directory, *directory.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)


def packaged_cache(installation: Path) -> Path:
    return installation / "site" / "kafkalake" / "record" / "__pycache__"


def test_the_first_process_compiles_and_the_next_one_does_not(installation: Path) -> None:
    first = run(installation)
    assert (first["compiled"], first["cache"]) == (1, str(packaged_cache(installation)))
    second = run(installation)
    assert (second["from_cache"], second["compiled"]) == (1, 0)
    said = "compiling what this command needs of the codec: once on this machine, "
    assert (first["said"].count(said), first["said"].count("\n"), second["said"]) == (1, 1, "")


def test_a_filled_cache_is_used_where_nothing_can_be_written(filled: Path) -> None:
    make_read_only(filled)
    found = run(filled)
    assert (found["from_cache"], found["compiled"]) == (1, 0)
    assert found["cache"] == str(packaged_cache(filled))


def test_a_filled_cache_is_used_by_a_copy_with_other_times(filled: Path) -> None:
    """As in an image layer or a wheel: what counts is what the files say."""
    for path in (filled / "site").rglob("*.py"):
        os.utime(path, (1, 1))
    make_read_only(filled / "site")
    assert run(filled)["compiled"] == 0


@pytest.mark.long
def test_a_read_only_package_without_a_cache_uses_the_home(installation: Path) -> None:
    make_read_only(installation / "site")
    first = run(installation)
    assert first["compiled"] == 1
    assert first["cache"].startswith(str(installation / "home"))
    assert run(installation)["compiled"] == 0


def test_without_a_home_the_temporary_directory_is_used(installation: Path) -> None:
    make_read_only(installation / "site", installation / "home")
    first = run(installation)
    assert first["compiled"] == 1
    assert first["cache"].startswith(str(installation / "tmp"))
    assert run(installation)["compiled"] == 0


def test_a_home_that_is_no_path_is_not_used(installation: Path) -> None:
    """A user id without an account: `~` stays `~`, and no directory of that name is made."""
    make_read_only(installation / "site")
    assert run(installation, HOME="~")["cache"].startswith(str(installation / "tmp"))
    assert not (installation / "~").exists()


@pytest.mark.long
def test_without_any_cache_it_works(installation: Path) -> None:
    """The temporary directory holds a cache that others could write: what is loaded from a cache is run, so it is not used."""
    make_read_only(installation / "site", installation / "home")
    cache = Path(run(installation)["cache"])
    cache.parent.chmod(0o777)
    for _ in range(2):
        found = run(installation)
        assert (found["compiled"], found["cache"]) == (1, None)


def test_a_change_in_what_a_kernel_calls_makes_its_cache_stale(filled: Path) -> None:
    called = filled / "site" / "kafkalake" / "record" / "memory.py"
    before = called.read_text()
    called.write_text(before + "\n# another version\n")
    assert run(filled)["compiled"] == 1
    assert run(filled)["compiled"] == 0
    called.write_text(before)
    assert run(filled)["compiled"] == 0


def test_a_shipped_cache_that_cannot_be_read_is_passed_over(filled: Path) -> None:
    for path in packaged_cache(filled).glob("*.nbc"):
        path.write_bytes(path.read_bytes()[:100])
    make_read_only(filled / "site")
    assert run(filled)["cache"].startswith(str(filled / "home"))
    assert run(filled)["compiled"] == 0


def test_a_directory_that_the_user_names_comes_first(filled: Path) -> None:
    named = filled / "named"
    found = run(filled, NUMBA_CACHE_DIR=str(named))
    assert found["cache"].startswith(str(named))


def test_warm_says_what_is_ready() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(kafkalake.__file__).parents[1])}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "kafkalake.process.warm"],
            capture_output=True,
            text=True,
            timeout=250,
            env=environment,
            check=True,
        )
    assert "kernels ready" in done.stdout
    assert done.stdout.count("\n") == 1
    assert "0 of them compiled now" in done.stdout


def test_a_kernel_says_that_it_makes_arrays() -> None:
    def count(size: int) -> int:
        return len(np.empty(size, dtype=np.int64))

    assert compiled("int64(int64)", allocates=True)(count)(3) == 3
    with pytest.raises(NumbaError, match="np_empty"):
        compiled("int64(int64)")(count)
