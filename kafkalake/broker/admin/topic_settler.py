"""Brings `topics` and the cluster's versions together after a change that failed between them, at once and later."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from kafkalake.broker.admin.changes_in_turn import ChangesInTurn
from kafkalake.broker.admin.topic_tables import TopicTables
from kafkalake.errors import (
    InvalidPartitionsError,
    KafkaError,
    KafkaStorageError,
    NotControllerError,
    TopicAlreadyExistsError,
)

logger = logging.getLogger(__name__)

_DELAY_MS = 250
_DELAY_MS_MAX = 30_000


class TopicSettler:
    """Brings both tables together, and then has the topics of delays followed."""

    def __init__(
        self,
        tables: TopicTables,
        changes: ChangesInTurn,
        is_active: Callable[[], bool],
        follow_levels: Callable[[], Awaitable[None]],
        later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """Create it. `is_active` tells whether this broker is the controller, `later(delay_ms, action)` acts later."""
        self._tables = tables
        self._changes = changes
        self._is_active = is_active
        self._follow_levels = follow_levels
        self._later = later
        self._is_settling = False
        self._again: list[int] | None = None
        """The pause in ms before the next call of `settle`, if one is to come."""

    @contextlib.asynccontextmanager
    async def change_both(self, is_done: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
        """Have both tables changed. If that fails they are brought together; the error is raised unless the change `is_done` then.

        Raise `KafkaStorageError` too where a change before has yet to be finished or undone.
        """
        try:
            with self._tables.changing():
                yield
        except NotControllerError:
            raise  # the next controller brings them together
        except KafkaError as error:
            await self.settle()
            if is_done():
                return
            if isinstance(error, TopicAlreadyExistsError | InvalidPartitionsError):  # in `topics`, not in the cluster
                raise KafkaStorageError(f"an earlier change has yet to be finished or undone: {error}") from error
            raise

    @property
    def is_to_come(self) -> bool:
        """Return whether they will be brought together again, because they could not be."""
        return self._again is not None

    def settle_soon(self) -> None:
        """Bring them together: the controller before this one may have been killed."""
        self._changes.begin(self.settle())

    async def settle(self, delay_ms: int = _DELAY_MS) -> None:
        """Bring them together after a change with an unknown outcome, or later while Delta cannot be used.

        A topic in Delta but not in the cluster is removed from Delta, because its creation was not acknowledged. A topic in the
        cluster but not in Delta is deleted, because its records would be lost at the next start.
        """
        if self._is_settling or not self._is_active():
            return
        self._is_settling = True
        try:
            is_whole = await self._tables.bring_together()
            await self._follow_levels()
            self._again = None
            if not is_whole:
                self._settle_later(delay_ms)
        except Exception as error:
            logger.warning("topics not brought together error=%r", error)
            self._settle_later(delay_ms)
        finally:
            self._is_settling = False

    def _settle_later(self, delay_ms: int) -> None:
        if self._again is not None and self._again[0] <= delay_ms:
            return
        again = self._again = [delay_ms]

        def settle_again() -> None:
            if self._again is again:  # else they are together since, or a new failure has its own pause
                self._again = None
                self._changes.begin(self.settle(min(2 * delay_ms, _DELAY_MS_MAX)))

        self._later(delay_ms, settle_again)
