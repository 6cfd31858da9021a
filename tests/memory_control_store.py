"""The store of the cluster's image in memory, for tests and for the simulation."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkalake.cluster.control_store import require_next
from kafkalake.cluster.image import ClusterImage


def _nothing() -> None:
    return


class MemoryControlStore:
    """`ControlStore` in memory, which keeps all versions.

    before_load, before_commit, after_commit: called around the calls, without a lock. One that waits makes the store slow. One that
    raises `KafkaStorageError` refuses the call, or after the commit leaves its outcome unknown.
    """

    def __init__(
        self,
        image: ClusterImage | None = None,
        *,
        before_load: Callable[[], None] = _nothing,
        before_commit: Callable[[], None] = _nothing,
        after_commit: Callable[[], None] = _nothing,
    ) -> None:
        self._images = [ClusterImage("") if image is None else image]
        self._lock = threading.Lock()
        self._before_load, self._before_commit, self._after_commit = before_load, before_commit, after_commit

    @property
    def images(self) -> tuple[ClusterImage, ...]:
        """All versions, the oldest first."""
        with self._lock:
            return tuple(self._images)

    def load(self) -> ClusterImage:
        self._before_load()
        with self._lock:
            return self._images[-1]

    def load_newer(self, version: int) -> ClusterImage | None:
        newest = self.load()
        return newest if newest.version > version else None

    def commit(self, image: ClusterImage) -> None:
        self._before_commit()
        with self._lock:
            if not any(each is image for each in reversed(self._images)):
                require_next(image, self._images[-1].version)
                self._images.append(image)
        self._after_commit()
