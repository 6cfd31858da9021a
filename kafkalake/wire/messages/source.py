"""The source of a function that reads or writes one version of a message: straight-line code, compiled when it is first used."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Lines of a function, and the objects that it names."""

    def __init__(self, head: str, names: dict[str, object]) -> None:
        self._lines: list[str] = []
        self._names = names
        self._indent = ""
        self.line(f"def {head}:")
        self._indent = " "

    def line(self, text: str) -> None:
        """Append a line."""
        self._lines.append(self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append `head` and, indented, the lines appended in the context."""
        self.line(f"{head}:")
        outer, self._indent = self._indent, self._indent + " "
        yield
        self._indent = outer

    def name(self, name: str, value: object) -> str:
        """Let the function use `value` as `name`. Return the name."""
        self._names[name] = value
        return name

    def layout(self, method: str, kinds: str) -> str:
        """Return the name of a method (`pack`, `unpack_from`) of the `Struct` of neighbouring numbers."""
        return self.name(f"{method}_{kinds.replace('?', 'B')}", getattr(struct.Struct(">" + kinds), method))

    def compiled(self, name: str) -> Any:
        """Return the function, whose code is found under `name` in tracebacks."""
        exec(compile("\n".join(self._lines), f"<{name}>", "exec"), self._names)
        return self._names[self._lines[0].partition("(")[0].removeprefix("def ")]
