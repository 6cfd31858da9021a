"""The open logs of this broker that neither lead nor follow, and the errors of those that failed.

Work on many logs, opening them or beginning an epoch, runs on the executor, several in one piece of work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.errors import KafkaError, KafkaStorageError, as_value
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

LOGS_PER_WORK = 50
"""Logs that one thread works on, one after the other."""

ROUNDS_APART_MAX = 8
"""A log that fails again and again is opened in each eighth round."""

LogWork = tuple[ReplicaId, Callable[[], Log | None]]
"""What is done for a replica. It may return its log, now open."""


@dataclass(slots=True)
class _Failed:
    """A replica has failed so many times in a row, and is opened in so many rounds."""

    times: int
    rounds: int

    @classmethod
    def after(cls, before: _Failed | None) -> _Failed:
        times = 1 if before is None else before.times + 1
        return cls(times, min(2 ** max(0, times - 2), ROUNDS_APART_MAX))


class IdleLogs:
    """See the module. Used on the event loop's thread."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._logs: dict[ReplicaId, Log | KafkaError] = {}
        self._failed: dict[ReplicaId, _Failed] = {}
        self._cut: set[ReplicaId] = set()

    @property
    def all(self) -> Mapping[ReplicaId, Log | KafkaError]:
        """The logs and the errors, by replica."""
        return self._logs

    @property
    def failed(self) -> Iterable[ReplicaId]:
        """The replicas with an error."""
        return self._failed

    @property
    def cut(self) -> Iterable[ReplicaId]:
        """The replicas with an error that have lost records for which they may be counted."""
        return self._cut

    def keep(self, replica: ReplicaId, log: Log | KafkaError, *, was_cut: bool = False) -> None:
        """Keep a log, or the error of one that failed, which is closed. `was_cut`: it has lost records, until it is kept open."""
        before, self._logs[replica] = self._logs.get(replica), log
        if isinstance(log, KafkaError):
            self._failed[replica] = _Failed.after(self._failed.get(replica))
            if was_cut:
                self._cut.add(replica)
            if isinstance(before, Log):
                before.discard()
        else:
            self._failed.pop(replica, None)
            self._cut.discard(replica)

    def find(self, replica: ReplicaId) -> Log | None:
        """Return a log, None if it leads, follows, has failed or is not here."""
        found = self._logs.get(replica)
        return found if isinstance(found, Log) else None

    def has_failed(self, replica: ReplicaId) -> bool:
        """Return whether a replica has an error."""
        return replica in self._failed

    def due(self) -> list[ReplicaId]:
        """Begin a round of opening, and return the replicas with an error that are opened in it: each less often the more often it
        has failed in a row, as that may take long.
        """
        for failed in self._failed.values():
            failed.rounds -= 1
        return [replica for replica, failed in self._failed.items() if failed.rounds <= 0]

    def take(self, replica: ReplicaId) -> Log | None:
        """Return a log that is to lead, to follow or to be removed, and forget it; None if it has failed or is not here."""
        found = self._logs.pop(replica, None)
        self._failed.pop(replica, None)
        self._cut.discard(replica)
        return found if isinstance(found, Log) else None

    def of_topic(self, topic_id: UUID) -> list[ReplicaId]:
        """Return the replicas of a topic that have a log or an error here."""
        return [replica for replica in self._logs if replica[0] == topic_id]

    def logs(self) -> list[Log]:
        """Return the open logs."""
        return [each for each in self._logs.values() if isinstance(each, Log)]

    async def work(self, works: Sequence[LogWork]) -> None:
        """Do this for replicas, and keep the logs that are open then and the errors."""
        parts = (works[first : first + LOGS_PER_WORK] for first in range(0, len(works), LOGS_PER_WORK))
        await asyncio.gather(*map(self._work_on, parts))

    async def _work_on(self, part: Sequence[LogWork]) -> None:
        for replica, result in await self._run_blocking(partial(_results, part)):
            self.keep(replica, result)


def _results(works: Iterable[LogWork]) -> list[tuple[ReplicaId, Log | KafkaError]]:
    found: list[tuple[ReplicaId, Log | KafkaError]] = []
    for replica, work in works:
        try:
            if (log := work()) is not None:
                found.append((replica, log))
        except KafkaError as error:
            found.append((replica, as_value(error)))
        except Exception as error:  # of a damaged file, such as one that became shorter: no other replica waits for it
            logger.exception("work on a log failed topic_id=%s partition=%d", *replica)
            found.append((replica, KafkaStorageError(f"its log cannot be used: {error}")))
    return found
