"""What other processes do to the table `cluster`: started with `spawn`, so they share nothing with the test."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from random_images import following

from kafkalake.errors import StaleImageError
from kafkalake.metadata.delta import DeltaMetadataStore


def commit_often(lake: Path, broker_id: int, until: int, pipe: Connection) -> None:
    """Commit on top of the newest version until there are enough; answer which versions this writer made."""
    store = DeltaMetadataStore(lake).control_store
    pipe.send("ready")
    pipe.recv()
    made = []
    while (image := store.load()).version < until:
        try:
            store.commit(following(image, controller_id=broker_id, controller_epoch=image.controller_epoch + 1))
            made.append(image.version + 1)
        except StaleImageError:
            continue
    pipe.send(made)
