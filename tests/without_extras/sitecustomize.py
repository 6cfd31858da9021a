"""Where this directory comes first in `PYTHONPATH`, the modules named in `REFUSED_IMPORTS` seem not to be installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

REFUSED = frozenset(os.environ["REFUSED_IMPORTS"].split(","))


class Refusing(MetaPathFinder):
    """Finds none of `REFUSED`, and leaves all others to the finders behind it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


sys.meta_path.insert(0, Refusing())
