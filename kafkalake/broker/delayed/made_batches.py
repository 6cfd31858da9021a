"""Appends to the journal of batches that are made when it is their turn."""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.broker.callbacks import Done
from kafkalake.errors import KafkaStorageError
from kafkalake.record.batch import ProducerBatch

Append = Callable[[ProducerBatch, Done], None]
"""Append a batch to the journal, and call back once when the state has followed it, or with the error."""


def append_made(append: Append, make: Callable[[], ProducerBatch], done: Done) -> None:
    """Append what `make` returns. If it raises, because the memory is used up, `done` gets the error: what waits goes on."""
    try:
        batch = make()
    except Exception as error:
        done(KafkaStorageError(f"not appended: {error!r}"))
        return
    append(batch, done)
