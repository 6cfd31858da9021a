"""Compiles kernels with numba at import, with a cache if possible.

Every kernel declares its signature, so that it is compiled (or loaded from numba's cache) when its module is imported and
never during a request. `python -m kafkalake.process.warm` imports them all, which fills the cache.

**Location.** Read-only caches are common: a package installed by root, a read-only container, an executor without a home
directory. numba then either raises or compiles again in each process. So the locations are, in this order:

1. the directory in NUMBA_CACHE_DIR, if set and writable;
2. the cache beside the source (`__pycache__`), if it is filled, even if read-only;
3. the cache beside the source, if writable;
4. numba's cache directory of this user;
5. a directory of this user below the temporary directory;
6. no cache: correct, but slow to start.

**Staleness.** A kernel has its constants and the kernels that it calls compiled in, so numba's own check, whether the
kernel's file has changed, is not enough. The stamp here is a digest of that file and of every file of kafkalake that it imports,
directly or not. It is part of the cache files' names, so that versions of the source never share a file.
"""

from __future__ import annotations

import getpass
import hashlib
import logging
import os
import pickle
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core import caching

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(r"^from (kafkalake(?:\.\w+)*) import (\([^)]*\)|.*)$", re.MULTILINE)


@cache
def _imported(source: Path) -> frozenset[Path]:
    """Return the files of kafkalake that a file imports, directly or not, including itself."""
    found = {source}
    waiting = [source]
    while waiting:
        for module, names in _IMPORT.findall(waiting.pop().read_text(encoding="utf-8")):
            path = _PACKAGE.parent.joinpath(*module.split("."))
            candidates = [path.with_suffix(".py"), *(path / f"{name}.py" for name in re.findall(r"\w+", names))]
            fresh = [each for each in candidates if each not in found and each.is_file()]
            found.update(fresh)
            waiting += fresh
    return frozenset(found)


@cache
def source_stamp(source: Path) -> str:
    """Return 16 hex digits: a digest of a kernel's file and of all files of kafkalake that it imports."""
    digest = hashlib.sha256()
    for path in sorted(_imported(source)):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class _Stamped:
    """The base of all locators here: uses the stamp and serves only kafkalake's own files."""

    _py_file: str
    _lineno: int

    def get_source_stamp(self) -> str:
        return source_stamp(Path(self._py_file))

    def get_disambiguator(self) -> str:
        return f"{self._lineno}-{self.get_source_stamp()}"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        if not Path(py_file).is_relative_to(_PACKAGE) or not Path(py_file).is_file():
            return None
        return super().from_function(py_func, py_file)  # type: ignore[misc]


class _Provided(_Stamped, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The directory in NUMBA_CACHE_DIR."""


class _Shipped(_Stamped, caching.InTreeCacheLocator):  # type: ignore[misc]
    """The cache beside the source, if it is filled for this version of the source. Read-only."""

    def ensure_cache_path(self) -> None:
        name = f"{Path(self._py_file).stem}.*-{self.get_disambiguator()}.*.nbi"
        if not any(Path(self.get_cache_path()).glob(name)):
            raise OSError("not filled")


class _Beside(_Stamped, caching.InTreeCacheLocator):  # type: ignore[misc]
    """The cache beside the source, if writable."""


class _UserWide(_Stamped, caching.UserWideCacheLocator):  # type: ignore[misc]
    """numba's cache directory of this user."""

    def ensure_cache_path(self) -> None:
        if not Path(self.get_cache_path()).is_absolute():
            raise OSError("this user has no home")
        super().ensure_cache_path()


class _Temporary(_Stamped, caching.UserWideCacheLocator):  # type: ignore[misc]
    """A directory of this user below the temporary directory: the last resort before compiling in each process."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        self._root = Path(tempfile.gettempdir()) / f"kafkalake-numba-{user}"
        self._cache_path = str(self._root / self.get_suitable_cache_subpath(py_file))

    def ensure_cache_path(self) -> None:
        self._root.mkdir(mode=0o700, exist_ok=True)
        status = self._root.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise OSError("somebody else could write here: what is loaded from a cache is run")
        super().ensure_cache_path()


_LOCATORS: list[Any] = [_Provided, _Shipped, _Beside, _UserWide, _Temporary]
_WRITABLE = [each for each in _LOCATORS if each is not _Shipped]
_known = caching.CacheImpl._locator_classes

_NAMES = {**vars(types), "view": types.Array(types.uint8, 1, "C", readonly=True)}
_CACHE_ERRORS = (RuntimeError, OSError, EOFError, pickle.UnpicklingError)


@cache
def _say_that_it_takes_time() -> None:
    logger.warning("compiling what this command needs of the codec: once on this machine, for up to a minute")


def compiled(*signatures: str, allocates: bool = False) -> Callable[[F], F]:
    """Return a decorator that compiles a kernel for `signatures` (numba's notation) without the interpreter lock.

    `view` in a signature is a contiguous uint8 array that the kernel only reads. It accepts read-only arrays (over `bytes`)
    and writable ones. Without a signature the kernel is only called from other kernels and is compiled into them.

    `allocates`: it makes arrays, or assigns a slice of one. Any other kernel does not count its references to arrays, which its
    caller keeps alive: that is an atomic instruction at each call of a kernel, 60 % of the time of `batch_writer.write_batches`.
    """

    def decorate(function: F) -> F:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
        if not signatures:
            return cast(F, numba.njit(**options)(function))
        parsed = [eval(signature, _NAMES) for signature in signatures]
        for locators in (_LOCATORS, _WRITABLE):  # a shipped cache may be for another processor
            try:
                caching.CacheImpl._locator_classes = locators
                kernel = numba.njit(parsed, cache=True, **options)(function)
                if kernel.stats.cache_misses:
                    _say_that_it_takes_time()
                return cast(F, kernel)
            except _CACHE_ERRORS:
                continue
            finally:
                caching.CacheImpl._locator_classes = _known
        return cast(F, numba.njit(parsed, **options)(function))

    return decorate
