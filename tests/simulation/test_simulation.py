"""A broker through faults, by seed: each run is the same again by its seed.

`SIMULATION_SEED=17` runs that seed alone, `SIMULATION_SEEDS=100000` so many from 0 on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.seeded_run import simulate

SEEDS = int(os.environ.get("SIMULATION_SEEDS", 200))
SEED = os.environ.get("SIMULATION_SEED")
SEEDS_A_TEST = 5
SHARED_MEMORY = Path("/dev/shm")
DIGEST = """
import sys
from pathlib import Path
from simulation.seeded_run import simulate
print(simulate(int(sys.argv[1]), Path(sys.argv[2])))
"""


@pytest.fixture
def lakes() -> Iterator[Path]:
    """A directory for lakes, in memory where there is one: what is forced to the disk is known without it."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as directory:
        yield Path(directory)


def parts() -> list[object]:
    if SEED is not None:
        return [range(int(SEED), int(SEED) + 1)]
    ranges = [range(first, min(first + SEEDS_A_TEST, SEEDS)) for first in range(0, SEEDS, SEEDS_A_TEST)]
    spread = [pytest.mark.xdist_group(f"simulation {number % 4}") for number in range(len(ranges))]
    return [
        pytest.param(seeds, marks=[spread[number], *([pytest.mark.exhaustive] if number > 1 else [])])
        for number, seeds in enumerate(ranges)
    ]


@pytest.mark.parametrize("seeds", parts(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_a_broker_keeps_its_promises_through_faults(seeds: range, lakes: Path) -> None:
    for seed in seeds:
        simulate(seed, lakes / str(seed))


@pytest.mark.process
def test_a_seed_gives_the_same_run(lakes: Path) -> None:
    here = simulate(3, lakes / "here")
    assert simulate(3, lakes / "again") == here
    assert simulate(4, lakes / "other") != here
    command = [sys.executable, "-c", DIGEST, "3", str(lakes / "there")]
    path = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "1"}
    there = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert there.stdout.strip() == here
