"""The one direction of imports between kafkalake's packages, held by reading the sources.

A room is a package or a package in a package; modules of `kafkalake` itself are rooms of their own. Each rule is a function of
sources, so that each is also seen to find what breaks it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache

import pytest
from sources import ON_ONE_WORKER, modules, nodes, sources

pytestmark = ON_ONE_WORKER

LEAVES = {
    "__version__",
    "assignment",
    "buffers",
    "clock",
    "close_names",
    "closed_streams",
    "codecs",
    "config",
    "counted",
    "delayed_headers",
    "descriptors",
    "error_sentences",
    "errors",
    "extras",
    "internal_topics",
    "log_starts",
    "machine",
    "made_array",
    "offset_range",
    "ownership",
    "printable",
    "run_blocking",
    "timestamp_range",
    "topic_names",
    "topic_partition",
    "unsigned_varint",
    "uuid_text",
}
COORDINATION = {"broker.admin", "broker.callbacks", "broker.coordination", "broker.partitions"}
BROKER = {"cluster", "record", "storage", "delayed_journal", "world", "metadata", "metadata.tables", *LEAVES}
READER = {
    "cluster",
    "delayed_journal",
    "record",
    "storage",
    "metadata",
    "metadata.tables",
    "client",
    "client.administration",
    *LEAVES,
}
JOBS = {"jobs", "spark", "spark.source", *READER, "reader"}

MAY_IMPORT: dict[str, set[str]] = {
    # The log, and the tables beside it
    "record": {"buffers", "errors", "timestamp_range"},
    "storage": {"buffers", "record", "codecs", "errors", "clock", "log_starts", "machine", "uuid_text"}
    | {"offset_range", "ownership"},
    "delayed_journal": {"record", "topic_partition"},
    "world": {"storage", "clock"},
    "cluster": {"errors"},
    "metadata": {"cluster", "metadata.tables", "errors", "clock", "log_starts", "machine", "ownership"}
    | {"topic_partition", "uuid_text"},
    "metadata.tables": {
        "cluster",
        *("metadata." + name for name in ("paths", "disk", "damaged_log", "delta_checkpoint", "changes", "store")),
        "errors",
        "ownership",
        "timestamp_range",
        "topic_partition",
    },
    # The broker: what it does, without the protocol's bytes
    "broker": {
        *(
            f"broker.{room}"
            for room in ("partitions", "admin", "controller", "delayed", "groups", "staged", "transactions")
        ),
        *BROKER,
    },
    "broker.controller": {"broker.callbacks", "broker.partitions", *BROKER},
    "broker.partitions": {"broker.callbacks", "broker.broker", *BROKER},
    "broker.admin": {"broker.controller", "broker.callbacks", "broker.partitions", *BROKER},
    "broker.coordination": {"broker.callbacks", "broker.partitions", "broker.admin", *BROKER},
    "broker.groups": {*COORDINATION, *BROKER},
    "broker.transactions": {*COORDINATION, *BROKER},
    "broker.staged": {"broker.delayed", "broker.transactions", *COORDINATION, *BROKER},
    "broker.delayed": {"broker.transactions", *COORDINATION, *BROKER},
    "broker.publishing": {"broker.coordination", "broker.partitions", "broker.groups", "broker.transactions", *BROKER},
    # The protocol: `broker` and `wire` meet only in `server`
    "wire": {
        "buffers",
        "wire.messages",
        "record",
        "codecs",
        "errors",
        "timestamp_range",
        "topic_partition",
        "unsigned_varint",
    },
    "wire.messages": {"buffers", "errors", "extras", "unsigned_varint"},
    "server": {
        "cluster",
        "broker",
        *(
            f"broker.{room}"
            for room in ("admin", "controller", "coordination", "delayed", "groups", "partitions", "publishing")
        ),
        "broker.transactions",
    }
    | {
        "client.address",
        "client.peers",
        "client.requests",
        "server.handlers",
        "wire",
        "wire.messages",
        "record",
        *LEAVES,
    },
    "server.handlers": {
        "cluster",
        "server",
        *(f"broker.{room}" for room in ("admin", "callbacks", "coordination", "delayed", "groups", "partitions")),
    }
    | {"broker.staged", "broker.transactions", "wire", "wire.messages", "record", *LEAVES},
    "client": {"wire", "wire.messages", "record", *LEAVES},
    "client.network": {"client", "wire.messages", *LEAVES},
    "client.producing": {"client", "client.network", "wire", "wire.messages", "record", *LEAVES},
    "client.consuming": {"client", "client.network", "wire", "wire.messages", "record", *LEAVES},
    "client.administration": {"client", "client.network", "wire", "wire.messages", *LEAVES},
    "aio": {"client.administration", "client.consuming", "client.producing"},
    # Reading a lake: without an engine, by Spark, by jobs
    "reader": READER,
    "dataset": {"reader", "metadata", "config", "errors", "timestamp_range"},
    "spark": {"reader", "errors"},
    "spark.planner": {
        "reader",
        "spark.source",
        "spark.sink",
        "spark.stream",
        "client",
        "client.administration",
        "metadata",
        "metadata.tables",
        "record",
        "storage",
    }
    | {"spark.metadata_tables", "jobs", "jobs.compaction", "jobs.lag"}
    | LEAVES,
    "spark.metadata_tables": {
        "cluster",
        "reader",
        "client",
        "jobs.lag",
        "storage",
        "metadata",
        "metadata.tables",
        *LEAVES,
    },
    "spark.source": {"spark", "reader", "spark.stream", "spark.sink", "record", "errors"},
    "spark.stream": {"reader", "spark.source", "metadata", "errors", "extras", "topic_partition"},
    "spark.sink": {"reader", "spark.source", "client", "config", "metadata", "record", "storage", "wire", "errors"}
    | {"topic_names"},
    "jobs": JOBS,
    "jobs.compaction": JOBS,
    "jobs.consume": JOBS,
    "jobs.lag": JOBS,
    # What is started
    "config": {"close_names", "codecs", "errors"},
    "process": {"client.peers", "broker", "broker.admin", "broker.controller", "broker.partitions", "broker.publishing"}
    | {"broker.transactions", "server"}
    | BROKER,
    "cli": {
        "client",
        *(f"client.{room}" for room in ("administration", "consuming", "producing")),
        *("cluster.image", "cluster.placement"),
        "wire",
        "record",
        "storage",
        "metadata",
        "metadata.tables",
        "jobs",
        "dataset",
        "reader",
        "process",
    }
    | LEAVES,
    "__main__": {"cli"},
    **dict.fromkeys(LEAVES - {"__version__", "config"}, LEAVES),
}
"""Room -> what of kafkalake it may import besides itself: rooms, or single modules of one."""

WITHOUT_SPARK = (
    "cluster",
    "record",
    "storage",
    "metadata",
    "broker",
    "wire",
    "server",
    "client",
    "reader",
    "config",
    "process",
)
VERSION_FREE = ("cluster", "broker", "storage", "record")
PURE = (
    "cluster.controller_election",
    "server.connection_state",
    "broker.groups.classic",
    "broker.groups.consumer",
    "broker.partitions.fetch_sessions",
    *(f"client.network.{name}" for name in ("metadata", "node_connection", "pending_request")),
    *(f"client.producing.{name}" for name in ("idempotence", "identities", "transaction_errors", "transactions")),
    *(
        f"client.consuming.{name}"
        for name in ("assignors", "subscriptions", "fetch_sessions", "fetched", "fetcher", "offset_lookups")
    ),
    *(
        f"client.consuming.{name}"
        for name in ("classic_membership", "consumer_membership", "coordinator", "commits", "operation")
    ),
)
"""Modules that decide: bytes, events and times are their arguments."""
PURE_BUT_FOR_CHANCE = (
    *(f"client.network.{name}" for name in ("backoff", "client")),
    *(f"client.producing.{name}" for name in ("accumulator", "partitioners", "queues", "sender")),
)
"""Modules that decide, and get a `Random` to do so."""
WITHOUT_KIO = ("cluster", "broker", "storage", "metadata", "record")


@cache
def rooms() -> set[str]:
    packages = {path.rpartition("/")[0].replace("/", ".") for path in sources() if "/" in path}
    return packages | modules().keys() & {path.removesuffix(".py") for path in sources()} - {"__init__"}


@cache
def room_of(module: str) -> str:
    """Return the innermost room that a module, or what is imported of it, stands in."""
    parts = module.split(".")
    return next((room for end in range(len(parts), 0, -1) if (room := ".".join(parts[:end])) in rooms()), module)


@cache
def imports(source: str) -> list[tuple[str, int]]:
    """Return (what is imported, line) of every import of a file, wherever in the file it stands."""
    found: list[tuple[str, int]] = []
    for node in nodes(source, ast.Import):
        found += ((alias.name, node.lineno) for alias in node.names)
    for node in nodes(source, ast.ImportFrom):
        assert node.level == 0, f"relative import in line {node.lineno}"
        found += ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
    return found


def forbidden_imports(of: Mapping[str, str]) -> list[str]:
    found = []
    for module, source in of.items():
        room = room_of(module)
        for target, line in imports(source):
            top, _, inner = target.partition(".")
            if top != "kafkalake" or not inner or module == "__init__":
                continue
            allowed = MAY_IMPORT[room]
            within = ".".join(inner.split(".")[:2])
            if room_of(inner) != room and room_of(inner) not in allowed and within not in allowed:
                found.append(f"{module}:{line}: imports kafkalake.{inner}")
    return found


def known_versions(of: Mapping[str, str]) -> list[str]:
    """Return where code asks for the API version of a request: an argument of that name, or a comparison with a number."""
    found = []
    for module, source in of.items():
        found += [f"{module}:{node.lineno}" for node in nodes(source, ast.arg) if node.arg == "api_version"]
        for node in nodes(source, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {getattr(side, "attr", getattr(side, "id", "")) for side in sides}
            requests = any(getattr(getattr(side, "value", None), "id", "") == "request" for side in sides)
            numbers = any(isinstance(side, ast.Constant) for side in sides)
            if "api_version" in names or ("version" in names and requests and numbers):
                found.append(f"{module}:{node.lineno}")
    return found


def libraries(of: Mapping[str, str], *names: str) -> list[str]:
    return [
        f"{module}:{line}: imports {target}"
        for module, source in of.items()
        for target, line in imports(source)
        if target.split(".")[0] in names
    ]


def below(*packages: str) -> dict[str, str]:
    return {module: source for module, source in modules().items() if module.split(".")[0] in packages}


def test_rooms_import_only_what_they_may() -> None:
    assert forbidden_imports(modules()) == []


def test_every_room_has_a_rule() -> None:
    assert rooms() == MAY_IMPORT.keys() - {"__version__"}


def test_wire_versions_end_at_the_edge() -> None:
    assert known_versions(below(*VERSION_FREE)) == []


def test_no_wire_library_behind_the_edge() -> None:
    assert libraries(below(*WITHOUT_KIO), "kio") == []


def test_topics_are_read_without_spark() -> None:
    assert libraries(below(*WITHOUT_SPARK), "pyspark", "delta", "py4j") == []


def test_what_decides_has_no_socket_clock_or_loop() -> None:
    assert libraries({module: modules()[module] for module in PURE}, "asyncio", "socket", "time", "os", "random") == []
    deciding = {module: modules()[module] for module in PURE_BUT_FOR_CHANCE}
    assert libraries(deciding, "asyncio", "socket", "time", "os") == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("storage.log", "from kafkalake.broker.partitions.topics import Topics"),
        ("broker.groups.service", "def late():\n    from kafkalake.broker.transactions import service"),
        ("broker.partitions.fetch", "import kafkalake.wire.messages.codec"),
        ("metadata.tables.schemas", "from kafkalake.metadata.delta import DeltaMetadataStore"),
        ("metadata.tables.schemas", "from kafkalake.metadata import delta"),
        ("reader.plan", "from kafkalake.spark.source.tasks import tasks_of"),
        ("errors", "from kafkalake.record import layout"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str) -> None:
    assert len(forbidden_imports({module: source})) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def fetch(self, *, api_version): ...",
        "if request.version >= 12: ...",
        "full = 3 < api_version",
    ],
)
def test_a_known_version_is_found(source: str) -> None:
    assert len(known_versions({"broker.partitions.fetch": source})) == 1


def test_a_wrong_library_is_found() -> None:
    assert len(libraries({"broker.broker": "import os\nfrom kio.index import load_request_schema"}, "kio")) == 1
    assert len(libraries({"reader.plan": "def late():\n    import pyspark.sql"}, "pyspark")) == 1
