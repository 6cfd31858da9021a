"""Appends staged files to topics: all files of a request or none, exactly once, despite crashes.

    check the committed version                             (commits.py) nothing is appended twice
    init the producer of the application's transactional id an older open transaction is aborted
    write "under way" durably, with that producer
    add partitions, append files                            (appending.py) invisible to read_committed readers
    commit at the coordinator                               durable: will become visible even after a crash
    markers are written                                     all records visible to every reader
    write "committed" durably, answer the job

After a crash at any step, a repeated request is decided by the coordinator's outcome for the producer under way. While a decision
is being written to the journal (a disk may take minutes) the version stays under way and the job gets a retriable error. One
request per application runs at a time. The same request sent again waits for the running one.

Where a user has named application and version, as for Delta tables, they count for each topic: the records of topics that have the
version are passed over, those of the others are appended. All topics of a request get them in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Protocol
from uuid import UUID

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.coordination.journal_lifecycle import JournalHost
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.staged.appending import AppendHost, StagedFileAppender, Target
from kafkalake.broker.staged.commits import CommitFiles, Committed, UnderWay
from kafkalake.broker.staged.request import AppendRequest
from kafkalake.broker.staged.transaction import ApplicationTransaction, Outcome
from kafkalake.broker.transactions.fault_points import kill_as_asked
from kafkalake.broker.transactions.service import TransactionService
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    KafkaLakeError,
    MessageTooLargeError,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
    with_retriable,
)
from kafkalake.internal_topics import INTERNAL
from kafkalake.storage.files import Files
from kafkalake.storage.staging import commits_path, staging_path

logger = logging.getLogger(__name__)

TRANSACTIONAL_ID_PREFIX = "kafkalake-staged-"
RUNS_MAX = 2
"""The maximum number of concurrent appends. Further requests wait."""
TIMEOUT_MS = 900_000
RECOVERY_INTERVAL_MS = 3_600_000


class StagedFaultPoint(Enum):
    """Crash points for tests, in addition to those of the transaction coordinator."""

    BEGUN = "staged-append-begun"
    APPENDED_SOME = "staged-append-some"
    APPENDED_ALL = "staged-append-all"
    COMMITTED = "staged-append-committed"


@dataclass(frozen=True, slots=True)
class StagedAppendResult:
    """The response: the number of records, the newest committed `version`.

    again: an earlier request has appended them; their number is 0 then if it is not known.
    """

    records: int
    again: bool
    version: int


class StagedHost(JournalHost, AppendHost, Protocol):
    """The parts of a broker that staged appends need."""

    transactions: TransactionService


class StagedAppends:
    """The service that appends staged files of the directory `lake`. Runs on the event loop's thread."""

    def __init__(self, host: StagedHost, lake: Path, files: Files) -> None:
        self.lake = lake.absolute()
        self._host = host
        self._staging = staging_path(lake)
        self._files = CommitFiles(commits_path(lake), files)
        self._reached = kill_as_asked(os.environ)
        self._runs: dict[str, tuple[tuple[int, tuple[str, ...]], asyncio.Task[StagedAppendResult]]] = {}
        self._turns = asyncio.Semaphore(RUNS_MAX)
        self._recovery: asyncio.Task[None] | None = None
        self._recovers_again = False
        self._settling: tuple[str, asyncio.Task[None]] | None = None
        """The application that the recovery is at."""
        self._stopped = False

    @property
    def bytes_max(self) -> int:
        """The limit on bytes appended by one request."""
        return self._host.config.staged_append_max_bytes

    def start(self, scheduler: Scheduler) -> None:
        """Settle what is left under way, now and again where that fails."""
        self.recover()
        scheduler.every("staged appends", lambda: RECOVERY_INTERVAL_MS, self.recover)

    def recover(self) -> None:
        """Settle versions left under way by an earlier process or coordinator, in the background.

        Otherwise their transactions could stay open, and would be forgotten before the job asks again.
        """
        if self._stopped:
            return
        self._recovers_again = True
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.ensure_future(self._recover())

    def stop(self) -> None:
        """Cancel running appends when the broker stops. Their jobs get a retriable error."""
        self._stopped = True
        settling = [] if self._settling is None else [self._settling[1]]
        for task in [self._recovery, *settling, *(task for _, task in self._runs.values())]:
            if task is not None:
                task.cancel()

    async def append(self, request: AppendRequest) -> StagedAppendResult:
        """Append the files of a request, see the module. A started append is completed even if the caller is cancelled.

        Raise `CorruptSegmentError` if a staged file is damaged (nothing becomes visible), `KafkaError` if the append fails. Repeat
        the request if the error is retriable: it may have been committed.
        """
        running = self._runs.get(request.application)
        if running is None:
            if self._stopped:
                raise CoordinatorNotAvailableError("the broker is stopping")
            task = asyncio.ensure_future(self._run(request))
            self._runs[request.application] = (request.version, request.topic_ids), task
            task.add_done_callback(lambda done: self._runs.pop(request.application, None))
        elif running[0] == (request.version, request.topic_ids):
            task = running[1]
        else:
            raise ConcurrentTransactionsError(
                f"version {running[0][0]} of {request.application} is being appended just now"
            )
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise CoordinatorNotAvailableError("the broker is stopping") from None
            raise
        finally:
            del running, task  # breaks the reference cycle of the task's error and this frame

    async def _run(self, request: AppendRequest) -> StagedAppendResult:
        if self._settling is not None and self._settling[0] == request.application:
            await asyncio.wait([self._settling[1]])
        elsewhere = self.coordinator_elsewhere(request.application)
        if elsewhere is not None:
            raise NotCoordinatorError(f"broker {elsewhere} appends what {request.application} has staged")
        async with self._turns:
            if request.files:
                await self._host.transactions.journal.make_ready()
            epoch = self._epoch_of(request.application)
            committed = await self._host.run_blocking(lambda: self._files.load(request.application))
            if not request.is_done(committed):
                committed = await self._settle(committed, epoch)
            if request.is_done(committed):
                if request.version < committed.version:
                    logger.warning(
                        "staged append not done, a newer version is committed application=%r version=%d committed=%d",
                        request.application,
                        request.version,
                        committed.version,
                    )
                is_of_it = request.version == committed.version and not request.is_named
                records = committed.records if is_of_it else 0
                return StagedAppendResult(records, again=True, version=committed.version)
            request = request.rest(committed)
            partitions = self._check(request)
            if not request.files:
                # Without files there is no state to record: repeating the request or an older version is harmless.
                return StagedAppendResult(0, again=False, version=committed.version)
            return await self._append(request, committed, partitions, epoch)

    def coordinator_elsewhere(self, application: str) -> int | None:
        """Return the id of the broker to which an application's requests must go, None if that is this one.

        It coordinates the application's transactions, and it alone keeps the application's commits.
        """
        return self._host.transactions.coordinator_elsewhere(TRANSACTIONAL_ID_PREFIX + application)

    def _epoch_of(self, application: str) -> int:
        """Return the epoch in which this broker coordinates an application's transactions.

        Raise `CoordinatorLoadInProgressError` if it does not yet.
        """
        return self._host.transactions.epoch_of(TRANSACTIONAL_ID_PREFIX + application)

    async def _append(
        self, request: AppendRequest, committed: Committed, partitions: dict[tuple[int, int], Target], epoch: int
    ) -> StagedAppendResult:
        transaction = self._transaction(request.application)
        producer = await transaction.begin(min(TIMEOUT_MS, self._host.config.transaction_max_timeout_ms))
        under_way = UnderWay(request.version, producer.producer_id, producer.epoch, request.records, request.topic_ids)
        begun = replace(committed.keep_topics(self._is_there), under_way=under_way)
        await self._save(begun, epoch)
        await transaction.add(producer, [target.name for target in partitions.values()])
        self._reached(StagedFaultPoint.BEGUN)
        appending = StagedFileAppender(
            self._host,
            TRANSACTIONAL_ID_PREFIX + request.application,
            producer,
            partitions,
            lambda: self._reached(StagedFaultPoint.APPENDED_SOME),
            request.topics_done,
        )
        directory = self._staging / request.directory
        try:
            for file in request.files:
                await appending.append_file(directory, file)
        except KafkaLakeError as error:
            logger.error("staged append aborted application=%r error=%s", request.application, error)
            with contextlib.suppress(KafkaError):  # the coordinator then aborts it on timeout
                await transaction.end(producer, committed=False)
                await self._save(replace(committed, under_way=None), epoch)
            raise
        self._reached(StagedFaultPoint.APPENDED_ALL)
        await transaction.end(producer, committed=True)
        outcome = await transaction.settled(producer)
        if outcome is not Outcome.COMMITTED:
            raise ConcurrentTransactionsError(f"the transaction of {request.application} is {outcome.value}")
        self._reached(StagedFaultPoint.COMMITTED)
        await self._save(begun.complete(), epoch)
        logger.info(
            "staged append committed application=%r version=%d records=%d bytes=%d",
            request.application,
            request.version,
            appending.records,
            request.bytes,
        )
        return StagedAppendResult(appending.records, again=False, version=request.version)

    async def _settle(self, committed: Committed, epoch: int) -> Committed:
        """Resolve a version left under way and return the new state. Raise `KafkaError` if the outcome cannot be determined."""
        under_way = committed.under_way
        if under_way is None:
            return committed
        transaction = self._transaction(committed.application)
        outcome = await transaction.settled(ProducerIdAndEpoch(under_way.producer_id, under_way.epoch))
        settled = replace(committed, under_way=None)
        if outcome is Outcome.COMMITTED:
            settled = committed.complete()
        elif outcome is Outcome.OPEN:
            # Nothing is in progress and nothing ran since: a new producer aborts it, unless an abort has begun already.
            await transaction.begin(self._host.config.transaction_max_timeout_ms)
        await self._save(settled, epoch)
        return settled

    async def _recover(self) -> None:
        while self._recovers_again:
            self._recovers_again = False
            for application in await self._host.run_blocking(self._files.unfinished):
                # A request that is running settles what is under way itself, or has it under way.
                if application not in self._runs and self.coordinator_elsewhere(application) is None:
                    self._settling = application, asyncio.ensure_future(self._recover_one(application))
                    await asyncio.wait([self._settling[1]])
                    self._settling = None

    async def _recover_one(self, application: str) -> None:
        try:
            epoch = self._epoch_of(application)
            await self._settle(await self._host.run_blocking(lambda: self._files.load(application)), epoch)
        except KafkaLakeError as error:
            logger.error("staged append not settled application=%r error=%s", application, error)

    def _transaction(self, application: str) -> ApplicationTransaction:
        return ApplicationTransaction(self._host.transactions.coordinator, TRANSACTIONAL_ID_PREFIX + application)

    async def _save(self, committed: Committed, epoch: int) -> None:
        await self._host.run_blocking(lambda: self._files.save(committed, epoch))

    def _is_there(self, topic_id: str) -> bool:
        return self._host.topics.find_id(UUID(topic_id)) is not None

    def _check(self, request: AppendRequest) -> dict[tuple[int, int], Target]:
        """Return the partitions to write to. Raise `KafkaError` if one has changed since the job ran or a limit is exceeded."""
        if request.bytes > self.bytes_max:
            raise MessageTooLargeError(
                f"{request.bytes} staged bytes in one request, staged.append.max.bytes is {self.bytes_max}"
            )
        if bool(request.partitions) != bool(request.files):
            raise InvalidRequestError("malformed AppendStaged request: files without partitions")
        found: dict[tuple[int, int], Target] = {}
        for number, index in request.partitions:
            name, topic_id = request.topics[number]
            if name in INTERNAL:
                raise InvalidTopicError(f"Cannot append to internal topic {name}")
            topic = self._host.topics.find(name)
            if topic is None or str(topic.topic_id) != topic_id or index >= len(topic.registrations):
                what = "is not there" if topic is None or index < len(topic.registrations) else "lacks that partition"
                sentence = f"topic {name} {what} any more (partition {index}): it was deleted while the job ran"
                raise with_retriable(UnknownTopicOrPartitionError(sentence), False)
            found[number, index] = Target(topic, index)
        return found
