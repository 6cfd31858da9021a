"""The lakes that were asked about, with their Delta tables kept open: a table that is open is refreshed in a millisecond."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import require_lake

LAKES_MAX = 16

_stores: OrderedDict[Path, DeltaMetadataStore] = OrderedDict()
_opening = threading.Lock()


def open_lake(lake: str) -> DeltaMetadataStore:
    """Return the tables of the lake at this path. Raise `LakeError` if there is none."""
    path = require_lake(Path(lake).absolute())
    with _opening:
        store = _stores.pop(path, None) or DeltaMetadataStore(path, create=False)
        _stores[path] = store
        if len(_stores) > LAKES_MAX:
            _stores.popitem(last=False)
    return store
