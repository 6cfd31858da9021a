"""What a broker takes from its machine it takes from its `World`: nothing in its rooms asks for time, chance or the disk itself."""

from __future__ import annotations

import ast

import pytest
from sources import ON_ONE_WORKER, nodes, sources

pytestmark = ON_ONE_WORKER

ROOMS = ("broker/", "server/", "storage/", "process/node.py", "process/opening.py", "process/upkeep.py")
TAKEN = {
    *("uuid.uuid1", "uuid.uuid4", "os.urandom", "random.*", "secrets.*"),
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns"),
    *("time.sleep", "time.clock_gettime", "time.clock_gettime_ns", "datetime.datetime.now", "datetime.datetime.utcnow"),
    *("kafkalake.storage.files.REAL_FILES", "kafkalake.storage.files.RealFiles", "kafkalake.clock.SystemClock"),
    "kafkalake.storage.segment_reader.SEGMENTS",
}
ALLOWED = {
    "storage/files.py": "defines the machine's files",
    "storage/open_files.py": "the default of readers, which are no broker",
    "storage/log.py": "the default of readers, which are no broker",
    "storage/partition_metadata.py": "the default of readers, which are no broker",
    "storage/segment_reader.py": "the default of readers, which are no broker",
    "storage/segment_hints.py": "read by planners of reads and by compaction, which are no broker",
    "storage/lost_records.py": "looked for by readers and compaction, which are no broker",
    "storage/staged_file.py": "the default of tasks that write staged files",
    "storage/state.py": "read by other processes than the owner",
    "storage/rewrite.py": "run by compaction, a process of its own",
    "storage/rewritten_files.py": "run by compaction, a process of its own",
    "storage/dump.py": "run by the command line",
    "storage/verify.py": "run by the command line",
    "storage/verify_segment.py": "run by the command line",
    "storage/replica_comparison.py": "run by the command line",
}


def taken(source: str) -> list[str]:
    """Return what a module takes from the machine itself, however it is imported, as `line: name`."""
    names: dict[str, str] = {}
    for node in nodes(source, ast.Import):
        names |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in nodes(source, ast.ImportFrom):
        names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found = []
    for node in nodes(source, ast.Name, ast.Attribute):
        if first_name(node) in names:
            head, dot, rest = ast.unparse(node).partition(".")
            full = names[head] + dot + rest
            if full in TAKEN or f"{full.rpartition('.')[0]}.*" in TAKEN:
                found.append(f"{node.lineno}: {full}")
    return sorted(set(found))


def first_name(node: ast.AST) -> str | None:
    """Return the name that an expression such as `a.b.c` begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def test_a_broker_takes_time_chance_and_disk_from_its_world() -> None:
    found = {name: of for name, source in sources().items() if name.startswith(ROOMS) and (of := taken(source))}
    assert {name: of for name, of in found.items() if name not in ALLOWED} == {}
    assert ALLOWED.keys() - found.keys() == {"storage/files.py"}, "these need no exception any more"


@pytest.mark.parametrize(
    "source",
    [
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4 as new_id\nnew_id()",
        "import time\nnow = time.monotonic",
        "import random\nrandom.Random()",
        "from random import Random\nRandom(3)",
        "from datetime import datetime\ndatetime.now()",
        "from kafkalake.storage.files import REAL_FILES\nOpenFiles(REAL_FILES)",
        "from kafkalake.storage.segment_reader import SEGMENTS\nSEGMENTS.open(path)",
        "def late():\n    import os\n    return os.urandom(4)",
    ],
)
def test_what_is_taken_from_the_machine_is_found(source: str) -> None:
    assert len(taken(source)) == 1


def test_what_is_taken_from_the_world_is_not_found() -> None:
    assert (
        taken(
            "import time\nimport uuid\nworld.clock.now_ms()\nworld.random.randrange(3)\nuuid.UUID(text)\ntime.struct_time"
        )
        == []
    )
