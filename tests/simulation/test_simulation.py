"""Brokers through faults, by seed: each run is the same again by its seed.

`SIMULATION_SEED=17` runs that seed alone, `SIMULATION_SEEDS=100000` so many of one broker from 0 on, `CLUSTER_SEEDS` of three, and
twice as many of three with three replicas. 300 together run with all tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.cluster_run import ClusterSimulation, ReplicatedSimulation
from simulation.seeded_run import Simulation, simulate

SEEDS = int(os.environ.get("SIMULATION_SEEDS", 150))
CLUSTER_SEEDS = int(os.environ.get("CLUSTER_SEEDS", 50))
SEED = os.environ.get("SIMULATION_SEED")
SEEDS_A_TEST = 5
SHARED_MEMORY = Path("/dev/shm")
DIGEST = """
import sys
from pathlib import Path
from simulation.cluster_run import ClusterSimulation, ReplicatedSimulation
from simulation.seeded_run import Simulation, simulate
for kind in (Simulation, ClusterSimulation, ReplicatedSimulation):
    print(simulate(int(sys.argv[1]), Path(sys.argv[2]) / kind.__name__, kind))
"""
KINDS: tuple[type[Simulation], ...] = (Simulation, ClusterSimulation, ReplicatedSimulation)


@pytest.fixture
def lakes() -> Iterator[Path]:
    """A directory for lakes, in memory where there is one: what is forced to the disk is known without it."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as directory:
        yield Path(directory)


def parts(count: int, in_fast_run: int = 1) -> list[object]:
    """Return the seeds of each test. `in_fast_run`: how many of the tests are none of the exhaustive ones."""
    if SEED is not None:
        return [range(int(SEED), int(SEED) + 1)]
    ranges = [range(first, min(first + SEEDS_A_TEST, count)) for first in range(0, count, SEEDS_A_TEST)]
    spread = [pytest.mark.xdist_group(f"simulation {number % 4}") for number in range(len(ranges))]
    return [
        pytest.param(seeds, marks=[spread[number], *([pytest.mark.exhaustive] if number >= in_fast_run else [])])
        for number, seeds in enumerate(ranges)
    ]


def named(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


@pytest.mark.parametrize("seeds", parts(SEEDS), ids=named)
def test_a_broker_keeps_its_promises_through_faults(seeds: range, lakes: Path) -> None:
    for seed in seeds:
        simulate(seed, lakes / str(seed))


@pytest.mark.parametrize("seeds", parts(CLUSTER_SEEDS, 0), ids=named)
def test_three_brokers_keep_their_promises_through_faults(seeds: range, lakes: Path) -> None:
    for seed in seeds:
        simulate(seed, lakes / str(seed), ClusterSimulation)


@pytest.mark.parametrize("seeds", parts(2 * CLUSTER_SEEDS, 0), ids=named)
def test_three_brokers_with_three_replicas_keep_their_promises_through_faults(seeds: range, lakes: Path) -> None:
    for seed in seeds:
        simulate(seed, lakes / str(seed), ReplicatedSimulation)


@pytest.mark.process
def test_a_seed_gives_the_same_run_in_every_process(lakes: Path) -> None:
    here = [simulate(3, lakes / "here" / kind.__name__, kind) for kind in KINDS]
    assert len({*here, simulate(4, lakes / "other")}) == len(KINDS) + 1
    command = [sys.executable, "-c", DIGEST, "3", str(lakes / "there")]
    path = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "1"}
    there = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert there.stdout.split() == here
