"""Attributes are assigned by their owner: what an object needs comes through its constructor, what changes it is one of its methods.

The owner of a component (a class with its own `__init__`) is its module, that of a dataclass its package. A class is found by the
name of the attribute, or by the annotation of the parameter that is assigned to.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kafkalake"

LATE = {
    ("broker.admin.topic_admin", "config"),
    ("broker.admin.topic_admin", "overrides"),
    ("broker.broker", "on_changed"),
    ("broker.coordination.topic_journal", "settled"),
    ("broker.groups.service", "closed"),
    ("broker.partitions.append_queue", "settled"),
    ("broker.partitions.append_queue", "syncing"),
    ("broker.partitions.purgatory", "action"),
    ("broker.publishing.partitions", "leader_epoch"),
    ("broker.publishing.partitions", "on_removed"),
    ("broker.publishing.partitions", "on_sealed"),
    ("broker.transactions.markers", "settled"),
    ("broker.transactions.service", "closed"),
    ("jobs.consume.loop", "summary"),
    ("jobs.frame", "failed"),
    ("process.node", "stable_offset"),
    ("process.node", "staged"),
    ("server.connection", "arriving"),
    ("server.connection", "began_s"),
    ("server.connection", "body"),
    ("server.connection", "body_is_kept"),
    ("server.connection", "client_id"),
    ("server.connection", "has_task"),
    ("server.connection", "size"),
    ("server.context", "on_answered"),
    ("server.handlers.api_versions", "client_software"),
    ("server.handlers.fetch", "on_abandoned"),
    ("server.handlers.fetch", "preparing"),
    ("server.handlers.fetch", "records"),
    ("server.handlers.produce", "queued"),
    ("server.produce_admission", "result"),
    ("server.produce_batches", "batch"),
    ("server.produce_batches", "original"),
    ("server.produce_batches", "queued"),
    ("server.produce_batches", "result"),
    ("storage.log", "created_ms"),
    ("storage.log", "first_timestamp"),
    ("storage.recovery", "created_ms"),
    ("wire.record_faults", "record_errors"),
    ("wire.responses", "bytes_max"),
}
"""The places left, as (module, attribute). Nothing may be added."""

FOREIGN = {
    ("cli.main", "hidden"),
    ("jobs.frame", "job"),
}
"""Objects of libraries (click, argparse) with an attribute of the same name."""

Owners = dict[str, set[str]]


def room(module: str) -> str:
    return module.rpartition(".")[0]


def declared(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes of a class: those of its body, and those that its methods assign to `self`."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and is_self(each.value):
            yield each.attr


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def owners_of(modules: Mapping[str, ast.Module]) -> tuple[Owners, Owners]:
    """Return the owners (modules or packages) by attribute, and by the name of the class."""
    attributes: Owners = defaultdict(set)
    classes: Owners = defaultdict(set)
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                is_value = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
                owner = room(module) if is_value else module
                classes[node.name].add(owner)
                for name in declared(node):
                    attributes[name].add(owner)
    return attributes, classes


def assigned_by_others(sources: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return (module, attribute) of each assignment to an attribute whose owner is elsewhere."""
    modules = {module: ast.parse(source) for module, source in sources.items()}
    attributes, classes = owners_of(modules)
    found = set()

    def look(node: ast.AST, module: str, parameters: dict[str, str]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = parameters | {each.arg: ast.unparse(each.annotation) for each in given if each.annotation}
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not is_self(node.value):
            owners = attributes.get(node.attr, set())
            if isinstance(node.value, ast.Name):
                owners = (owners and classes.get(parameters.get(node.value.id, ""))) or owners
            if owners and not owners & {module, room(module)}:
                found.add((module, node.attr))
        for child in ast.iter_child_nodes(node):
            look(child, module, parameters)

    for module, tree in modules.items():
        look(tree, module, {})
    return found


def test_attributes_are_assigned_by_their_owner() -> None:
    sources = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path.read_text() for path in PACKAGE.rglob("*.py")
    }
    assert sorted(assigned_by_others(sources) ^ LATE ^ FOREIGN) == []


COMPONENT = "class Log:\n    def __init__(self):\n        self.on_sealed = None\n        self.config = 1\n"
VALUE = "@dataclass(slots=True)\nclass Member:\n    joining: bool\n"


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("storage.roll", "log.on_sealed = sealed", {"on_sealed"}),
        ("storage.roll", "self._log.on_sealed = sealed", {"on_sealed"}),
        ("storage.roll", "log.on_sealed, x = sealed, 1", {"on_sealed"}),
        ("storage.roll", "log.config += 1", {"config"}),
        ("storage.roll", "class Roll:\n    config: int\ndef f(log: Log):\n    log.config = 2", {"config"}),
        ("storage.roll", "class Roll:\n    config: int\ndef f(roll: Roll):\n    roll.config = 2", set()),
        ("storage.roll", "log.other = 1", set()),
        ("groups.classic", "member.joining = True", set()),
        ("server.context", "member.joining = True", {"joining"}),
    ],
)
def test_an_assignment_by_another_is_found(module: str, source: str, found: set[str]) -> None:
    sources = {"storage.log": COMPONENT, "groups.state": VALUE, module: source}
    assert assigned_by_others(sources) == {(module, name) for name in found}
