"""How kafkalake compiles: numba, ahead of the first call, cached where that is possible.

Every kernel names its signature, so that it is compiled (or loaded from numba's cache) when its module is imported and
never in the middle of a request. `python -m kafkalake.warm` imports them all, which fills the cache.

Caches that cannot be written are common: a package installed by root, a read-only container, an executor with no home.
numba then either raises or compiles anew in each process. So, in this order:

1. the cache beside the source (`__pycache__`), written or only readable;
2. numba's user-wide cache directory;
3. a directory of this user's below the temporary directory;
4. no cache: correct, and slow to start.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core import caching

F = TypeVar("F", bound=Callable[..., Any])


class _ReadableCacheLocator(caching.InTreeCacheLocator):  # type: ignore[misc]
    """The cache beside the source where it can be read but not written (numba's own locator then gives up)."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        locator = cls(py_func, py_file)
        path = Path(locator.get_cache_path())
        prefix = f"{Path(py_file).stem}.{py_func.__qualname__}"
        try:
            if not os.access(path, os.W_OK) and any(path.glob(f"{prefix}-*.nbi")):
                return locator
        except OSError:
            pass
        return None

    def ensure_cache_path(self) -> None:
        """Nothing to make: the directory is there, and not ours to write."""


class _TemporaryCacheLocator(caching.UserWideCacheLocator):  # type: ignore[misc]
    """A cache of this user's below the temporary directory: last resort before compiling in each process."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        root = Path(tempfile.gettempdir()) / f"kafkalake-numba-{user}"
        self._cache_path = str(root / self.get_suitable_cache_subpath(py_file))


_locators = caching.CacheImpl._locator_classes
if _ReadableCacheLocator not in _locators:
    _locators.insert(0, _ReadableCacheLocator)
    _locators.append(_TemporaryCacheLocator)


_NAMES = {**vars(types), "view": types.Array(types.uint8, 1, "C", readonly=True)}


def compiled(*signatures: str) -> Callable[[F], F]:
    """Compile a kernel for `signatures` (numba's notation) without the interpreter lock.

    `view` in a signature is a contiguous uint8 array that the kernel only reads; it takes read-only arrays (over `bytes`)
    and writable ones. Without a signature the kernel is only called from other kernels, and is compiled into them.
    """

    def decorate(function: F) -> F:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        if not signatures:
            return cast(F, numba.njit(**options)(function))
        parsed = [eval(signature, _NAMES) for signature in signatures]
        try:
            return cast(F, numba.njit(parsed, cache=True, **options)(function))
        except (RuntimeError, OSError):
            return cast(F, numba.njit(parsed, **options)(function))

    return decorate
