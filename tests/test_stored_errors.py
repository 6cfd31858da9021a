"""An exception that becomes a value keeps no traceback: its frames hold the request's buffers, and an error that one of those
frames holds in turn is freed by a full collection only, gigabytes later.

The rule is `errors.as_value`; here the package is read for places that store, return or pass on what they have caught without it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from sources import ON_ONE_WORKER, parsed, sources

from kafkalake.errors import KafkaError, KafkaStorageError, as_value

pytestmark = ON_ONE_WORKER

READS = {"as_value", "str", "repr", "type", "isinstance", "print", "getattr", "error_text"}
"""Functions that take an error and keep nothing of it."""
READ_BY = {
    "client/network/event_loop.py": {"unreachable"},
    "client/network/selector.py": {"unreachable", "reason"},
    "broker/partitions/fetch.py": {"corrupt"},
    "broker/partitions/replica_fetch.py": {"corrupt"},
    "broker/partitions/scheduler.py": {"_failed"},
    "broker/groups/consumer.py": {"refusal"},
    "client/consuming/aio.py": {"partial"},  # thrown into a script at once
    "client/consuming/calls.py": {"append"},  # raised at the end of the same call, with the application's traceback
    "client/consuming/consumer.py": {"partial"},
    "client/producing/aio.py": {"note_refusal"},  # raised at once
    "client/producing/producer.py": {"note_refusal"},
    "metadata/tables/delta_table.py": {"_after_failure", "first_line"},
    "metadata/tables/opening.py": {"first_line"},
    "metadata/lease.py": {"_renew_in_lock_file"},
    "server/connection.py": {"fail"},
    "server/handlers/envelope.py": {"fail"},
    "server/handlers/fetch_segment.py": {"corrupt"},
    "server/handlers/offset_fetch.py": {"_refused"},
    "server/request.py": {"fail"},
    "server/turns.py": {"failed"},
    "storage/log.py": {"storage_error"},
}
"""More of them, private to a module."""
_PASSES_ON = (ast.IfExp, ast.BoolOp, ast.Starred, ast.Await, ast.keyword)


def stored(tree: ast.AST, reads: set[str]) -> Iterator[int]:
    """Lines where an error that was caught becomes a value as it is."""
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        for node in ast.walk(handler):
            if isinstance(node, ast.Name) and node.id == handler.name and isinstance(node.ctx, ast.Load):
                above = parents[node]
                while isinstance(above, _PASSES_ON):
                    above = parents[above]
                if not _only_reads(above, parents[above], reads):
                    yield node.lineno


def _only_reads(above: ast.AST, parent: ast.AST, reads: set[str]) -> bool:
    if isinstance(above, ast.Call):
        if isinstance(parent, ast.Raise | ast.FormattedValue):
            return True  # a text, or another error, which is caught in its turn
        called = above.func
        if isinstance(called, ast.Attribute):
            logs = isinstance(called.value, ast.Name) and called.value.id in ("logger", "logging")
            return logs or called.attr in reads
        return isinstance(called, ast.Name) and called.id in reads
    return isinstance(above, ast.Raise | ast.Attribute | ast.FormattedValue | ast.Compare | ast.If | ast.Expr)


@pytest.mark.parametrize("part", ["broker", "client", "metadata", "record", "server", "storage", "wire", "."])
def test_what_is_caught_is_stored_without_its_traceback(part: str) -> None:
    found = []
    for name, source in sources().items():
        if (name.partition("/")[0] if "/" in name else ".") == part:
            reads = READS | READ_BY.get(name, set())
            found += [f"{name}:{line}" for line in stored(parsed(source), reads)]
    assert not found, "wrap these in errors.as_value: " + ", ".join(found)


@pytest.mark.parametrize(
    "bad",
    [
        "x = error",
        "return error",
        "f(error)",
        "x.append(error)",
        "x = {1: error}",
        "x = [error]",
        "f(a=error)",
        "x = error or 1",
    ],
)
def test_the_search_finds(bad: str) -> None:
    tree = ast.parse(f"def f():\n    try: pass\n    except OSError as error:\n        {bad}\n")
    assert list(stored(tree, READS)) == [4]


def test_an_error_as_a_value_holds_no_frame() -> None:
    try:
        try:
            raise OSError("no space")
        except OSError as cause:
            raise KafkaStorageError("not written") from cause
    except KafkaError as error:
        value = as_value(error)
    assert value.__traceback__ is value.__cause__ is value.__context__ is None
    assert str(value) == "not written"
    assert value.code == KafkaStorageError.code
