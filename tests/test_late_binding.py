"""Attributes are assigned by their owner: what an object needs comes through its constructor, its methods change it.

The owner of a component (a class with its own `__init__`) is its module, that of a dataclass its package. The class of what is
assigned to is found by the annotation of a parameter, by the call that made it, or by its name if the module has a class of that
name (`identity`: `Identity`); else it may be any class with such an attribute.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

import pytest
from sources import ON_ONE_WORKER, modules, nodes

pytestmark = ON_ONE_WORKER

FOREIGN = {
    ("cli.main", "hidden"),
    ("jobs.frame", "job"),
}
"""Objects of libraries (click, argparse) with an attribute of the same name."""

READ = (ast.ClassDef, ast.Attribute, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef)
Nodes = dict[str, list[ast.AST]]
Owners = dict[str, set[str]]


def room(module: str) -> str:
    return module.rpartition(".")[0]


def stored(node: ast.AST, *, to_self: bool) -> bool:
    """Return whether `node` is the target of an assignment, to an attribute of `self` or to one of something else."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
        return False
    return (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")) == to_self


def owners_of(modules: Nodes) -> tuple[Owners, Owners]:
    """Return the owners (modules or packages) by attribute, and by the name of the class."""
    attributes: Owners = defaultdict(set)
    classes: Owners = defaultdict(set)
    for module, read in modules.items():
        for node in read:
            if isinstance(node, ast.ClassDef):
                is_value = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
                owner = room(module) if is_value else module
                classes[node.name].add(owner)
                names = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
                for name in names:
                    attributes[ast.unparse(name)].add(owner)
                for each in ast.walk(node):
                    if stored(each, to_self=True):
                        attributes[each.attr].add(owner)  # type: ignore[attr-defined]
    return attributes, classes


def classes_around(place: ast.AST, around: list[ast.AST]) -> dict[str, str]:
    """Return the classes of parameters and local values of the functions around `place`, as far as they are written there."""
    names: dict[str, str] = {}
    for node in around:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= place.lineno <= node.end_lineno:  # type: ignore
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names.update({each.arg: ast.unparse(each.annotation) for each in given if each.annotation})
            for each in ast.walk(node):
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call):
                    names.update(dict.fromkeys(map(ast.unparse, each.targets), ast.unparse(each.value.func)))
    return names


def assigned_by_others(sources: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return (module, attribute) of each assignment to an attribute whose owner is elsewhere."""
    nodes_of: Nodes = {module: nodes(source, *READ) for module, source in sources.items()}
    attributes, classes = owners_of(nodes_of)
    found = set()
    for module, read in nodes_of.items():
        known = {node.name for node in read if isinstance(node, ast.ClassDef)}
        known |= {each.name for node in read if isinstance(node, ast.ImportFrom) for each in node.names}
        for node in read:
            if not stored(node, to_self=False):
                continue
            assert isinstance(node, ast.Attribute)
            owners = attributes.get(node.attr, set())
            if owners:
                base = ast.unparse(node.value)
                written = classes_around(node, read).get(base, "")
                named = base.rpartition(".")[2].strip("_").title().replace("_", "")
                owners = classes.get(written) or (named in known and classes.get(named)) or owners
            if owners and not owners & {module, room(module)}:
                found.add((module, node.attr))
    return found


def test_attributes_are_assigned_by_their_owner() -> None:
    assert sorted(assigned_by_others(modules()) ^ FOREIGN) == []


COMPONENT = "class Log:\n    def __init__(self):\n        self.on_sealed = None\n        self.config = 1\n"
IMPORT = "from storage.log import Log\n"
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
        ("storage.roll", "class Roll:\n    config: int\ndef f():\n    each = Log()\n    each.config = 2", {"config"}),
        ("storage.roll", f"{IMPORT}class Roll:\n    config: int\ndef f(roll):\n    roll.log.config = 2", {"config"}),
        ("storage.roll", f"{IMPORT}class Roll:\n    config: int\ndef f(self):\n    self._log.config = 2", {"config"}),
        ("storage.roll", "class Roll:\n    config: int\ndef f(self):\n    self._log.config = 2", set()),
        ("storage.roll", "log.other = 1", set()),
        ("groups.classic", "member.joining = True", set()),
        ("server.context", "member.joining = True", {"joining"}),
    ],
)
def test_an_assignment_by_another_is_found(module: str, source: str, found: set[str]) -> None:
    sources = {"storage.log": COMPONENT, "groups.state": VALUE, module: source}
    assert assigned_by_others(sources) == {(module, name) for name in found}
