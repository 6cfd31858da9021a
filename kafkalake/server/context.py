"""State shared by all connections and handlers of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkalake.broker.broker import Broker
from kafkalake.broker.publishing.broker_reports import BrokerReports
from kafkalake.client.peers import Peers
from kafkalake.clock import Clock
from kafkalake.config.listener import Listener
from kafkalake.server.authorizer import CLUSTER_NAME, AllowEverything, Authorizer, Operation, Resource
from kafkalake.server.heap_trimmer import HeapTrimmer
from kafkalake.server.read_ahead import ReadAhead
from kafkalake.server.report_server import ReportServer
from kafkalake.server.request_memory import RequestMemory
from kafkalake.server.throttling import ClientQuotas
from kafkalake.server.turns import FewAtATime, Turns
from kafkalake.server.unread_answers import UnreadAnswers
from kafkalake.wire.messages.cluster import ApiVersion

if TYPE_CHECKING:
    from kafkalake.server.registry import Api
    from kafkalake.server.request import Request

T = TypeVar("T")

BROKER_CLIENT_ID = "broker-"
"""The beginning of the client ids of brokers, before their ids."""
_THREADS = 2
"""Threads that decode large messages and encode records. More would take more memory, and the event loop's CPU."""
_ENCODINGS_MAX = 2
"""Responses that are encoded in turns at one time. More would take more memory."""


class ListedApis(NamedTuple):
    """The APIs that ApiVersions lists at a listener, to clients and to other nodes of the cluster."""

    clients: list[ApiVersion]
    nodes: list[ApiVersion]


class AdvertisedApis(NamedTuple):
    """The APIs that ApiVersions lists (see `registry`), at listeners of brokers and of controllers.

    forwarded: by key, those that the controller answers.
    """

    brokers: ListedApis
    controllers: ListedApis
    forwarded: Mapping[int, Api]

    def at(self, listener: Listener) -> ListedApis:
        """Return the APIs at a listener."""
        return self.controllers if listener.is_for_controllers else self.brokers


class ServerContext:
    """The broker, the clock, the authorizer, and the event loop's ways to defer work."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        advertised: AdvertisedApis,
        authorizer: Authorizer | None = None,
        *,
        peers: Peers,
        reports: BrokerReports,
        memory_bytes: int,
        trim_heap: Callable[[], None],
    ) -> None:
        """`peers`: the other brokers. `reports`: what this one has to publish. memory_bytes: memory of this machine.

        `trim_heap`: returns free heap to the system, called in a thread.
        """
        self.broker = broker
        self.clock = clock
        self.may_answer: Callable[[], bool] = broker.ownership.is_certain
        """Returns whether responses may be sent. A broker that may have lost ownership of its logs sends none."""
        self.authorizer: Authorizer = authorizer or AllowEverything()
        self.call_soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self.advertised = advertised
        topics = broker.topics
        self.quotas = ClientQuotas(lambda: topics.image.config, clock)
        self.peers = peers
        bytes_max = broker.config.queued_max_request_bytes
        unread_max = broker.config.queued_max_response_bytes
        self.unread_answers = UnreadAnswers(unread_max if unread_max >= 0 else memory_bytes // 8)
        self.request_memory = RequestMemory(bytes_max if bytes_max >= 0 else memory_bytes // 4)
        self.turns = Turns(loop.call_soon, clock)
        self.encodings = FewAtATime(self.turns, _ENCODINGS_MAX)
        """The large responses that are being encoded."""
        self.read_ahead = ReadAhead(loop.call_soon)
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="codec")
        self._tasks: set[asyncio.Task[None]] = set()
        self.reports = ReportServer(reports, self.run_in_thread)
        self.heap = HeapTrimmer(loop.call_later, lambda: self._threads.submit(trim_heap))

    @property
    def is_collecting(self) -> bool:
        """Return whether more responses are about to follow, so that sending them together is cheaper. See `send_later`."""
        return self.broker.append_queue.is_answering

    def send_later(self, send: Callable[[], None]) -> None:
        """Call `send` once all responses of this group commit are ready."""
        self.broker.append_queue.when_answered(send)

    def is_brokers(self, request: Request[object]) -> bool:
        """Return whether a request is that of another node of the cluster, as far as its name and what it may do tell."""
        name = request.client_id or ""
        return (
            name.startswith(BROKER_CLIENT_ID)
            and name.removeprefix(BROKER_CLIENT_ID) in map(str, self.broker.cluster.nodes)
            and self.authorizer.allows(
                request.connection.principal, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
            )
        )

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread beside the event loop. It must compute only, never block."""
        return await self._loop.run_in_executor(self._threads, work)

    def start_task(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` concurrently as a task."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def tasks(self) -> int:
        """The number of requests in progress that have a task of their own."""
        return len(self._tasks)
