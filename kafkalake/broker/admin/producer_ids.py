"""Producer ids for idempotent producers, each assigned once in the life of a lake.

A broker takes ids from its own block, which the controller has allocated and committed to the control store before. A crash wastes
the rest of a block. The next block is asked for before the last one is used up, so that no producer waits, as in Kafka.

Releases before 0.2 kept the end of a broker's ids in a file beside its logs. `first_unused` reads these files: the first block
begins behind them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator

from kafkalake.cluster.producer_ids import BLOCK
from kafkalake.errors import CoordinatorLoadInProgressError, KafkaLakeError, LakeError
from kafkalake.storage.files import Files, read_file

logger = logging.getLogger(__name__)

FILE_NAME = "producer-ids.json"
_IDS_PER_BROKER = 1 << 40
"""In the files, each broker began at its id times this."""
_ASK_BELOW = BLOCK // 10


class ProducerIds:
    """The ids of one broker. `allocate` returns a block from the controller. Runs on the event loop's thread."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._ids: Iterator[int] = iter(())
        self._left = 0
        self._next: range | None = None
        self._asking: asyncio.Future[None] | None = None

    @property
    def are_there(self) -> bool:
        """Return whether there is an unused id now."""
        return bool(self._left) or self._next is not None

    def next_id(self) -> int:
        """Return an unused id. Raise `CoordinatorLoadInProgressError`, as Kafka, if the controller has not allocated any yet."""
        if not self._left and self._next is not None:
            self._ids, self._left, self._next = iter(self._next), len(self._next), None
        if self._left <= _ASK_BELOW and self._next is None:
            self._ask()
        if not self._left:
            raise CoordinatorLoadInProgressError("the controller has yet to allocate producer ids")
        self._left -= 1
        return next(self._ids)

    async def have_some(self, timeout_ms: int) -> None:
        """Return when there are ids, when the controller could not be asked, or after `timeout_ms`."""
        if self.are_there:
            return
        await asyncio.wait([self._ask()], timeout=timeout_ms / 1000)

    def _ask(self) -> asyncio.Future[None]:
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._fetch())
        return self._asking

    async def _fetch(self) -> None:
        try:
            self._next = await self._allocate()
        except KafkaLakeError as error:
            logger.warning("no producer ids from the controller error=%s", error)
        finally:
            self._asking = None

    def stop(self) -> None:
        """Wait for no more ids."""
        if self._asking is not None:
            self._asking.cancel()


def first_unused(paths: Iterable[tuple[int, str]], files: Files) -> int:
    """Return the first id behind all that brokers reserved in files, 0 without any. `paths`: of the files, by broker id.

    Raise `LakeError` if a file cannot be read: an id could be assigned twice.
    """
    return max((_end_of_reserved(broker_id, path, files) for broker_id, path in paths), default=0)


def _end_of_reserved(broker_id: int, path: str, files: Files) -> int:
    try:
        reserved = json.loads(read_file(files, path))["reserved"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LakeError(f"{path} cannot be read: {error}") from error
    if not isinstance(reserved, int) or reserved < 0:
        raise LakeError(f"{path} does not hold a number of producer ids")
    return broker_id * _IDS_PER_BROKER + reserved if reserved else 0
