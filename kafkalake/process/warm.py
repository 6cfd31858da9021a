"""Fills numba's cache: imports every module that has compiled kernels. `python -m kafkalake.process.warm` prints one line.

Set-up runs it, so that the first record of a fresh installation does not wait for compilation. So does an image build, whose
result may then be read-only (`record/compiled.py` describes the search path of caches).
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import time
from types import ModuleType
from typing import Any

from numba.core.registry import CPUDispatcher

import kafkalake

_MARK = b"from kafkalake.record.compiled import"


def modules() -> list[ModuleType]:
    """Import and return every module of kafkalake that has kernels."""
    found = []
    for module in pkgutil.walk_packages(kafkalake.__path__, "kafkalake."):
        specification = module.module_finder.find_spec(module.name, None)
        assert specification is not None
        source = specification.loader.get_data(specification.origin)  # type: ignore[union-attr]
        if _MARK in source and module.name != __name__:
            found.append(importlib.import_module(module.name))
    return found


def kernels() -> list[Any]:
    """Return every kernel called from Python (numba dispatchers). The others are compiled into these."""
    functions = {id(each): each for module in modules() for each in vars(module).values()}
    return [each for each in functions.values() if isinstance(each, CPUDispatcher) and not each._can_compile]


def main() -> None:
    """Compile the kernels missing from the cache and print a summary."""
    logging.getLogger("kafkalake.record.compiled").setLevel(logging.ERROR)  # compiling is the purpose here
    start = time.monotonic()
    ready = kernels()
    compiled = sum(1 for kernel in ready if kernel.stats.cache_misses)
    print(
        f"compiled codec: {len(ready)} kernels ready in {time.monotonic() - start:.1f} s, {compiled} of them compiled now"
    )


if __name__ == "__main__":
    main()
