"""The lakes that were asked about, with their Delta tables kept open: a table that is open is refreshed in a millisecond.

A lake that was removed and made anew at the same path is another one, with another cluster id.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.identity import known_cluster_id
from kafkalake.metadata.paths import require_lake
from kafkalake.reader.read_options import lake_option

LAKES_MAX = 16

_stores: OrderedDict[tuple[Path, str | None], DeltaMetadataStore] = OrderedDict()
_opening = threading.Lock()


def open_lake(lake: str) -> DeltaMetadataStore:
    """Return the tables of the lake at this path. Raise `LakeError` if there is none."""
    path = require_lake(lake_path(lake))
    identity = path, known_cluster_id(path)
    with _opening:
        store = _stores.pop(identity, None) or DeltaMetadataStore(path, create=False)
        _stores[identity] = store
        if len(_stores) > LAKES_MAX:
            _stores.popitem(last=False)
    return store


def lake_path(lake: str) -> Path:
    """Return the directory of a lake that was named as in the option `lake`."""
    return Path(lake_option({"lake": lake})).absolute()
