"""Files of a log are accessed through `storage.files`, its segments through `storage.segment_reader`, held by reading the sources.

Each other module that reads, writes, lists or removes files stands in `ALLOWED` with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest
from sources import ON_ONE_WORKER, modules, nodes

pytestmark = ON_ONE_WORKER

FUNCTIONS = {
    "os": {
        *("open", "fdopen", "read", "pread", "preadv", "readv", "write", "pwrite", "pwritev", "writev", "truncate"),
        *("ftruncate", "fsync", "fdatasync", "sendfile", "copy_file_range", "unlink", "remove", "rename", "renames"),
        *("replace", "link", "symlink", "mkdir", "makedirs", "rmdir", "removedirs", "listdir", "scandir", "walk"),
    },
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree"},
    "np": {"fromfile", "memmap", "load", "save"},
    "mmap": {"mmap"},
    "io": {"open", "FileIO"},
    "pa": {"memory_map", "OSFile", "input_stream", "output_stream"},
}
METHODS = {
    *("read_bytes", "read_text", "write_bytes", "write_text", "unlink", "mkdir", "rmdir", "iterdir", "glob", "rglob"),
    *("touch", "tofile", "hardlink_to", "symlink_to"),
}
OF_STORAGE = {"_files", "files", "_open_files", "open_files"}
"""Names that hold a `Files` or the `OpenFiles` before it: its calls are what this is for."""

ALLOWED: dict[str, str] = {
    # The disk of the log
    "storage.files": "the operating system's files, behind `Files`",
    "storage.staged_file": "opens relative to a directory and without following links, which `Files` does not",
    "storage.staging": "whole directories of jobs of writers, no files of a log",
    "storage.retired_directories": "whole directories of partitions, of deleted topics",
    "storage.rewritten_files": "whole directories of runs of jobs, in those of partitions",
    "broker.partitions.log_directory": "whole directories of partitions: renamed and removed with their topic",
    # Files of other formats
    "metadata": "Delta's tables, above `metadata.disk`, which tests replace, and the lake's small files and locks",
    "reader.topic_settings": "settings beside the logs",
    "jobs.consume.forced_output": "Delta's log of the user's table",
    "jobs.consume.output": "the user's directory of Parquet files",
    "jobs.lag.page": "the page",
    "jobs.lock": "the lock of a job",
    "jobs.webhook": "the user's secret",
    "spark.sink.sink": "the directory of a job that writes",
    "spark.sink.driver": "the mark of a job whose broker has been asked",
    "spark.source.installed_pyspark": "the sources of PySpark",
    # What the user, the machine and the installation have
    "cli": "files that the user names, standard input and output",
    "broker.transactions.fault_points": "the step at which a test kills the broker",
    "closed_streams": "the null device",
    "config.properties": "the user's files of settings and secrets",
    "machine": "the boot id and the mounts",
    "process.cluster_lock": "the lock of `cluster start`, beside those of brokers and jobs",
    "process.allocator": "the memory limit of the container",
    "record.compiled": "the cache of compiled code",
}
"""Module, or package -> why it accesses files itself."""


def file_calls(source: str) -> list[tuple[int, str]]:
    """Return (line, call) of each direct access to a file or directory."""
    found = []
    for node in nodes(source, ast.Call):
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            found.append((node.lineno, "open"))
        if not isinstance(called, ast.Attribute):
            continue
        owner = called.value
        if isinstance(owner, ast.Name) and called.attr in FUNCTIONS.get(owner.id, ()):
            found.append((node.lineno, f"{owner.id}.{called.attr}"))
        is_path_open = called.attr == "open" and any(
            isinstance(value, ast.Constant) and value.value in ("r", "rb", "w", "wb", "a", "ab", "a+", "r+b", "x")
            for value in [*node.args, *(keyword.value for keyword in node.keywords)]
        )
        of_storage = isinstance(owner, ast.Name | ast.Attribute) and (
            owner.id if isinstance(owner, ast.Name) else owner.attr
        ) in {*OF_STORAGE, "REAL_FILES", "SEGMENTS"}
        is_of_segment = called.attr == "read_bytes" and node.args  # a path's has no argument
        if (called.attr in METHODS or is_path_open) and not of_storage and not is_of_segment:
            found.append((node.lineno, f"{ast.unparse(owner)}.{called.attr}"))
    return found


def direct_access(of: Mapping[str, str]) -> dict[str, list[tuple[int, str]]]:
    found = {module: file_calls(source) for module, source in of.items()}
    return {module: calls for module, calls in found.items() if calls}


def reason_of(module: str) -> str | None:
    """Return the entry of `ALLOWED` for a module or a package around it."""
    parts = module.split(".")
    return next((name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in ALLOWED), None)


def unheld_descriptors(source: str) -> list[int]:
    """Return the lines with the descriptor of an `OpenFile` that nothing holds, so that it is closed before it is used."""
    return [
        node.lineno
        for node in nodes(source, ast.Attribute)
        if node.attr == "descriptor" and isinstance(node.value, ast.Call)
    ]


def test_an_open_file_is_held_while_its_descriptor_is_used() -> None:
    assert unheld_descriptors("files.sync(open_files.get(path, write=True).descriptor)") == [1]
    assert unheld_descriptors("file = open_files.get(path)\nfiles.sync(file.descriptor)") == []
    found = {module: unheld_descriptors(source) for module, source in modules().items()}
    assert {module: lines for module, lines in found.items() if lines} == {}


def test_files_are_accessed_through_storage() -> None:
    found = direct_access(modules())
    assert {module: calls for module, calls in found.items() if reason_of(module) is None} == {}
    assert ALLOWED.keys() - set(map(reason_of, found)) == set(), "these need no reason any more"


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.open(path, os.O_RDONLY)",
        "def read(path):\n    with open(path) as file:\n        return file.read()",
        "Path(path).read_bytes()",
        "(directory / name).unlink(missing_ok=True)",
        "path.open('rb')",
        "path.open(mode='a')",
        "np.fromfile(path, dtype=entry)",
        "shutil.rmtree(directory)",
        "pa.memory_map(path)",
    ],
)
def test_direct_access_is_found(source: str) -> None:
    assert list(direct_access({"reader.plan": source})) == ["reader.plan"]


@pytest.mark.parametrize(
    "source",
    [
        "files.unlink(path)",
        "self._files.unlink(path)",
        "SEGMENTS.open(path)",
        "segment.read_bytes(0, 8)",
        "Log.open(path)",
    ],
)
def test_access_through_storage_is_none(source: str) -> None:
    assert direct_access({"reader.plan": source}) == {}
