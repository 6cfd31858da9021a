"""Libraries that a broker and its clients do without, and that `pip install 'kafkalake[EXTRA]'` brings, as pyproject.toml says.

They are imported where they are used. One that is missing ends a command with a sentence that names its extra.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

EXTRA_OF = {
    "duckdb": "sql",
    "pyspark": "spark",
    "py4j": "spark",
    "delta": "spark",
    "pandas": "spark",
    "croniter": "jobs",
    "matplotlib": "jobs",
}
"""Top-level module -> the smallest extra with it."""


def missing_extra(error: BaseException) -> str | None:
    """Return a sentence if `error` is that a module of an extra is not installed, else None.

    The wheel brings `pyspark/jars`, so where pyspark is not installed the import of `pyspark` finds that directory, without a file.
    """
    module = (error.name or "").split(".")[0] if isinstance(error, ImportError) else ""
    if module not in EXTRA_OF or getattr(sys.modules.get(module), "__file__", None) is not None:
        return None
    return f"this needs {module}, which is not installed: pip install 'kafkalake[{EXTRA_OF[module]}]'"


class Without:
    """A finder that makes the import of a module fail as if it were not installed, which those that look for it handle."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == self._module:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)


class WithoutPandas(Without):
    """See `Without`. pyarrow and pyspark look for pandas."""

    def __init__(self) -> None:
        super().__init__("pandas")


def find_pandas_again() -> None:
    """Undo `WithoutPandas` for imports from now on."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, WithoutPandas)]


def import_arrow_without_pandas() -> None:
    """Import pyarrow so that it takes pandas for absent, unless that is imported. `pa.array` imports it otherwise: 0.7 s."""
    finder = WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow

        pyarrow.array([None])  # looks for pandas, once
    finally:
        sys.meta_path.remove(finder)


def import_kio_without_hypothesis() -> None:
    """Import kio so that it takes hypothesis for absent, unless that is imported.

    kio registers strategies with it: half a second, or three in a directory in which hypothesis keeps nothing yet in `.hypothesis`.
    """
    finder = Without("hypothesis")
    sys.meta_path.insert(0, finder)
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        sys.meta_path.remove(finder)
