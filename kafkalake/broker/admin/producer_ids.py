"""Producer ids for idempotent producers, each assigned once in the life of a lake.

Ids are taken from a block reserved on disk before its first id is assigned: one fsync per `BLOCK` producers, and a crash wastes
only the rest of a block. The broker id is in the upper bits, so brokers need no coordination.
"""

from __future__ import annotations

import json
import logging

from kafkalake.cluster.producer_ids import BLOCK
from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.storage.files import Files, read_file, replace_file

logger = logging.getLogger(__name__)

FILE_NAME = "producer-ids.json"
_IDS_PER_BROKER = 1 << 40
BROKER_ID_MAX = (1 << 22) - 1


class ProducerIds:
    """The allocator of producer ids. `path`: the file with the end of the reserved ids."""

    def __init__(self, path: str, broker_id: int, files: Files) -> None:
        """Raise `LakeError` if the file exists but cannot be read. Guessing could assign an id twice."""
        assert 0 <= broker_id <= BROKER_ID_MAX
        self._path = path
        self._files = files
        self._first = broker_id * _IDS_PER_BROKER
        self._next = self._reserved = self._read()

    def next_id(self) -> int:
        """Return an unused id. Raise `KafkaStorageError` if none can be reserved."""
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
