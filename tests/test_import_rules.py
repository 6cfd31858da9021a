"""The one direction of imports between kafkalake's packages, held by reading the sources."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kafkalake"

LEAVES = {
    "errors",
    "clock",
    "config",
    "config_definitions",
    "config_providers",
    "config_setting",
    "config_accepted",
    "config_groups",
    "config_stored",
    "error_sentences",
    "config_topics",
    "internal_topics",
    "printable",
    "uuid_text",
    "machine",
    "descriptors",
    "ownership",
    "__init__",
    "__version__",
}
ROOT = {
    "node",
    "publishing",
    "journal_publishing",
    "logs",
    "log_limits",
    "memory",
    "supervision",
    "watchdog",
    "jobs_process",
    "warm",
    "dataset",
    "topic_scanner",
    "__main__",
}
MAY_IMPORT = {
    "record": {"errors"},
    "storage": {"record", "errors", "clock", "machine", "ownership", "uuid_text"},
    "metadata": {"errors", "clock", "machine", "ownership", "uuid_text"},
    "broker": {"record", "storage", "metadata", *LEAVES},
    "wire": {"record", "errors"},
    "server": {"broker", "wire", "record", *LEAVES},
    "client": {"wire", "record", *LEAVES},
    "spark": {"record", "storage", "metadata", "client", "wire", *LEAVES},
    "cli": {"client", "wire", "record", "storage", "metadata", "spark", *LEAVES, *ROOT},
}
"""Package -> what of kafkalake it may import besides itself. `broker` and `wire` meet only in `server`."""


def sources(package: str) -> list[Path]:
    return sorted((PACKAGE / package).rglob("*.py"))


def imported(path: Path) -> set[tuple[str, int]]:
    """(first part below `kafkalake`, line) of every import in a file, wherever in the file it stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "kafkalake" else [module]
        for name in names:
            if name.startswith("kafkalake."):
                found.add((name.split(".")[1], node.lineno))
    return found


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_package_imports_only_what_it_may(package: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: imports kafkalake.{target}"
        for path in sources(package)
        for target, line in sorted(imported(path))
        if target != package and target not in MAY_IMPORT[package]
    ]
    assert wrong == []


def test_leaves_import_only_leaves() -> None:
    wrong = [
        f"{leaf}.py:{line}: imports kafkalake.{target}"
        for leaf in sorted(LEAVES - {"__version__"})
        for target, line in sorted(imported(PACKAGE / f"{leaf}.py"))
        if target not in LEAVES
    ]
    assert wrong == []


def test_every_package_has_a_rule() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    assert packages <= MAY_IMPORT.keys()
    assert modules <= LEAVES | ROOT


VERSION_FREE = ("broker", "storage", "record")


@pytest.mark.parametrize("package", VERSION_FREE)
def test_wire_versions_end_at_the_edge(package: str) -> None:
    """No function of these packages takes an `api_version`."""
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
                assert "api_version" not in arguments, f"{path}:{node.lineno}"


@pytest.mark.parametrize("package", ("broker", "storage", "metadata", "record"))
def test_no_wire_library_behind_the_edge(package: str) -> None:
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not any(module.split(".")[0] == "kio" for module in modules), f"{path}:{node.lineno}"
