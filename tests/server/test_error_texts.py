"""What clients are told of errors: no handler shows where the lake lies."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkalake.errors import KafkaStorageError
from kafkalake.server import handlers
from kafkalake.server.registry import APIS
from kafkalake.server.request import Request

SHOWN = re.compile(r"str\((error|result|raised|problem)\)|f\"[^\"]*\{(error|result|raised|problem)\}")


def request_on(lake: Path) -> Request:
    broker = SimpleNamespace(logs=SimpleNamespace(root=lake / "logs" / "0"))
    context, connection = SimpleNamespace(broker=broker), SimpleNamespace(logs_requests=False)
    return Request(connection, context, APIS[0], 9, 1, None, None, 0, body_is_kept=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("lake", ["/data/my lake: it's", "/lake"])
def test_paths_are_relative_to_the_lake(lake: str) -> None:
    error = KafkaStorageError(f"{lake}/logs/0/t-0: open: [Errno 5] EIO: '{lake}/logs/0/t-0/state'")
    text = request_on(Path(lake)).error_text(error)
    assert text == "logs/0/t-0: open: [Errno 5] EIO: 'logs/0/t-0/state'"


def test_a_lake_that_is_named_relatively_is_not_shown_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("lake/logs/0/t-0: no", f"{tmp_path}/lake/logs/0/t-0: no"):
        assert request_on(Path("lake")).error_text(KafkaStorageError(text)) == "logs/0/t-0: no"


def test_every_handler_asks_for_that_text() -> None:
    """The texts of errors have paths in them; `Request.error_text` takes them out."""
    directory = Path(next(iter(handlers.__path__)))
    sources = sorted(directory.glob("*.py"))
    assert len(sources) > 30
    wrong = [
        f"{source.name}:{number}"
        for source in sources
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if SHOWN.search(line) and "error_text" not in line and "logger" not in line
    ]
    assert wrong == []
