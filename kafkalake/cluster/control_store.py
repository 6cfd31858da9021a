"""The store of the cluster's image: a log of versions, to which a commit adds exactly the next one.

This is the cluster's consensus. Two brokers may act as its controller at once, but of two commits of one version one is refused, so
what was decided on an outdated image never comes into force. `metadata.tables.cluster` implements it on Delta.
"""

from __future__ import annotations

from typing import Protocol

from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import StaleImageError


class ControlStore(Protocol):
    """The versions of the image. All calls block and are safe in any thread.

    Before the first commit the image is empty and of version 0.
    """

    def load(self) -> ClusterImage:
        """Return the newest image. It outlives a power loss. Raise `KafkaStorageError` if it cannot be read."""
        ...

    def load_newer(self, version: int) -> ClusterImage | None:
        """Return the newest image, or None, at the cost of a look at the file system, if none is newer than `version`.

        It outlives a power loss. Raise `KafkaStorageError` if it cannot be read.
        """
        ...

    def commit(self, image: ClusterImage) -> None:
        """Write an image as version `image.version`, durably.

        Raise `StaleImageError` if the newest version is not the one before it: another commit came first, and nothing is written.
        Raise `KafkaStorageError` if it is not written, or if that cannot be found out. After that error `commit` of the same object
        finds it out: it returns if the first commit succeeded after all, else writes it. Another image is refused in that case.
        """
        ...


def require_next(image: ClusterImage, newest: int) -> None:
    """Raise `StaleImageError` unless the image is of the version after the newest."""
    if image.version != newest + 1:
        raise StaleImageError(f"version {image.version} of the cluster cannot follow version {newest}, the newest")
