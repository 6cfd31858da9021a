"""Producer ids for idempotent producers: each is given once in the life of a lake.

Ids are taken from a block that is reserved on disk before the first of it is given: one fsync per `BLOCK` producers, and a
crash only wastes the rest of a block. Each broker has ids of its own, so that no two brokers have to agree: the broker id stands in
the upper bits.
"""

from __future__ import annotations

import json
import logging

from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.storage.files import Files, read_file, replace_file

logger = logging.getLogger(__name__)

BLOCK = 1000
FILE_NAME = "producer-ids.json"
_IDS_PER_BROKER = 1 << 40
BROKER_ID_MAX = (1 << 22) - 1


class ProducerIds:
    """Gives ids. `path`: the file that says up to where ids are reserved."""

    def __init__(self, path: str, broker_id: int, files: Files) -> None:
        """Raises `LakeError` where the file is there but cannot be read: to guess would be to give an id twice."""
        assert 0 <= broker_id <= BROKER_ID_MAX
        self._path = path
        self._files = files
        self._first = broker_id * _IDS_PER_BROKER
        self._next = self._reserved = self._read()

    def next_id(self) -> int:
        """An id that was never given. Raises `KafkaStorageError` where none can be reserved."""
        if self._next == self._reserved:
            self._reserve()
        producer_id = self._first + self._next
        self._next += 1
        return producer_id

    def _read(self) -> int:
        try:
            reserved = json.loads(read_file(self._files, self._path))["reserved"]
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LakeError(f"{self._path} cannot be read: {error}") from error
        if not isinstance(reserved, int) or reserved < 0:
            raise LakeError(f"{self._path} does not hold a number of producer ids")
        return reserved

    def _reserve(self) -> None:
        reserved = self._reserved + BLOCK
        try:
            replace_file(self._files, self._path, json.dumps({"reserved": reserved}).encode(), sync=True)
        except OSError as error:
            logger.error("cannot reserve producer ids path=%s error=%s", self._path, error)
            raise KafkaStorageError(f"cannot reserve producer ids: {error}") from error
        self._reserved = reserved
