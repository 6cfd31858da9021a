"""The network side of a client, as Kafka's `NetworkClient`: connections, requests, metadata. No socket, no clock, no thread.

Requests to a node wait for its connection, which is opened when the first one comes, after the pause that its last failure asks
for. A request without a response in its time ends its connection, since responses come in order. Nothing is sent again: who
sent a request decides on that. Metadata is refreshed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from kafkalake.client.address import Address, parse_addresses
from kafkalake.client.network.backoff import ExponentialBackoff
from kafkalake.client.network.machine import Action, Connect, Disconnect, Write
from kafkalake.client.network.metadata import Metadata
from kafkalake.client.network.node_connection import NodeConnection, State
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.network.settings import NetworkSettings
from kafkalake.client.requests import METADATA, A, ClientApi, Q
from kafkalake.errors import BrokerUnavailableError, ConfigurationError, ConnectionLostError, as_value
from kafkalake.wire.messages.cluster import MetadataResponse

FIRST_CONTACT_MS = 5_000
"""How long all addresses may fail before the client says so, if no broker was ever reached."""

_SECOND_CONNECTION = 1 << 32
"""What the id of a second connection to a node is larger by: than all ids of nodes."""


def second_connection(node_id: int) -> int:
    """Return the id of a second connection to a node, for requests that must not wait behind others.

    A broker answers those of a connection in order, one after the other.
    """
    return node_id + _SECOND_CONNECTION


class NetworkClient:
    """See the module. Bootstrap addresses are nodes -1, -2 and so on."""

    def __init__(
        self,
        settings: NetworkSettings,
        random: Random,
        *,
        first_contact_ms: int = FIRST_CONTACT_MS,
        metadata_max_idle_ms: int | None = None,
    ) -> None:
        """first_contact_ms: how long addresses that all refuse are tried again. metadata_max_idle_ms: see `Metadata`.

        Raise `ConfigurationError` for no address.
        """
        try:
            self._bootstrap = parse_addresses(settings.bootstrap_servers)
        except ValueError as error:
            raise ConfigurationError(f"bootstrap.servers: {error}") from None
        self._settings = settings
        self._random = random
        self._first_contact_ms = first_contact_ms
        self._connections: dict[int, NodeConnection] = {}
        self._actions: list[Action] = []
        self._was_reached = False
        self.takes_columns = False
        """Whether any broker took batches of columns when the last connection was opened. Any thread may read it."""
        self._began_ms: int | None = None
        retry = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random)
        self.metadata = Metadata(
            settings.metadata_max_age_ms,
            retry,
            create_topics=settings.allow_auto_create_topics,
            max_idle_ms=metadata_max_idle_ms,
        )
        self._reconnect = ExponentialBackoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, random)
        self._setup = ExponentialBackoff(
            settings.socket_connection_setup_timeout_ms, settings.socket_connection_setup_timeout_max_ms, random
        )

    # Requests

    def send(
        self,
        node_id: int,
        api: ClientApi[Q, A],
        message: Q,
        now_ms: int,
        *,
        timeout_ms: int | None = None,
        done: Callable[[PendingRequest[A]], None] | None = None,
        is_answered: bool = True,
    ) -> PendingRequest[A]:
        """Send a request once the node is connected. `done` is called with it at its end, never from here.

        timeout_ms: `request.timeout.ms` without one. Ends in an error: `BrokerUnavailableError` without a connection,
        `ConnectionLostError`, `ResponseTimedOutError`, `UnsupportedVersionError`.
        """
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        request = PendingRequest(
            node_id, api, message, now_ms=now_ms, timeout_ms=timeout_ms, is_answered=is_answered, done=done
        )
        self._connection(node_id).waiting.append(request)
        return request

    def prepare(self, node_id: int, now_ms: int) -> bool:
        """Return whether a request would be sent at once. If the node is not connected, open its connection."""
        connection = self._connection(node_id)
        if connection.state is State.READY:
            return self._has_room(connection)
        if connection.state is State.CLOSED:
            connection.want()
        return False

    def is_full(self, node_id: int) -> bool:
        """Return whether a connection is open and has as many requests without a response as it may have."""
        connection = self._connections.get(node_id)
        return connection is not None and connection.state is State.READY and not self._has_room(connection)

    def can_send(self, node_id: int, now_ms: int) -> bool:
        """Return whether the node has room for a request and is, or can be, connected."""
        connection = self._connection(node_id)
        return self._has_room(connection) and (connection.state is not State.CLOSED or connection.retry_at_ms <= now_ms)

    def in_flight(self, node_id: int) -> int:
        """Return the number of requests to a node without a response."""
        connection = self._connections.get(node_id)
        return 0 if connection is None else connection.requests

    def any_node(self, now_ms: int) -> int | None:
        """Return the node to ask what any broker knows: the least loaded one. None: all wait before they are tried again.

        Nodes of the cluster come before bootstrap addresses.
        """
        bootstrap = [-1 - index for index in range(len(self._bootstrap))]
        found = self._least_loaded(list(self.metadata.cluster.nodes), now_ms)
        return self._least_loaded(bootstrap, now_ms) if found is None else found

    @property
    def is_busy(self) -> bool:
        """Return whether `any_node` may return None for want of room: a connection is there, or is about to be opened."""
        return any(each.requests or each.state is not State.CLOSED for each in self._connections.values())

    def chance_ms(self, now_ms: int) -> int:
        """Return when to call `any_node` again after it has returned None."""
        pauses = (each.retry_at_ms for each in self._connections.values() if each.retry_at_ms > now_ms)
        return min(pauses, default=now_ms + self._settings.retry_backoff_ms)

    def version(self, node_id: int, api: ClientApi[Q, A]) -> int | None:
        """Return the version of an API for a node, None before it is connected. Raise `UnsupportedVersionError`."""
        connection = self._connection(node_id)
        return connection.exchange.version(api) if connection.state is State.READY else None

    def offers(self, node_id: int, api: ClientApi[Q, A]) -> bool:
        """Return whether a node has versions of an API in common with the client, or while it is not connected, any other node."""
        own = self._connection(node_id)
        known = [own] if own.state is State.READY else self._connections.values()
        return any(each.state is State.READY and each.exchange.offers(api) for each in known)

    def node_takes_columns(self, node_id: int) -> bool:
        """Return whether a node takes batches of columns on its connection, False before it is connected."""
        return self._connection(node_id).exchange.takes_columns

    def features(self, node_id: int) -> Mapping[str, int]:
        """Return the finalized features of the cluster as a node named them, none before it is connected."""
        return self._connection(node_id).exchange.features

    @property
    def was_reached(self) -> bool:
        """Return whether any broker was ever reached."""
        return self._was_reached

    def unreachable(self, now_ms: int) -> BrokerUnavailableError | None:
        """Return the error of a client that has reached no broker at all, None for any other.

        No address is given up before it has failed once, or `FIRST_CONTACT_MS` are over.
        """
        if self._was_reached or self._began_ms is None:
            return None
        have_failed = all(each is not None for each in self._bootstrap_errors())
        wait_ms = self._first_contact_ms if have_failed else FIRST_CONTACT_MS
        return None if now_ms < self._began_ms + wait_ms else self.failure()

    def failure(self) -> BrokerUnavailableError:
        """Return why no broker can be asked: the last error of each address."""
        reasons = "; ".join(str(each) for each in self._bootstrap_errors() if each is not None)
        return BrokerUnavailableError(reasons or f"no broker answers at {', '.join(map(str, self._bootstrap))}")

    def _bootstrap_errors(self) -> list[BrokerUnavailableError | None]:
        return [self._connection(-1 - index).last_error for index in range(len(self._bootstrap))]

    def close(self, reason: str = "the client is closed") -> list[Action]:
        """Fail all requests, and return what closes the connections."""
        for node_id, connection in self._connections.items():
            if connection.state is not State.CLOSED:
                self._actions.append(Disconnect(node_id))
            waiting = list(connection.waiting)
            connection.waiting.clear()
            connection.close(ConnectionLostError(reason), 0, is_failure=False)
            for request in waiting:
                request.fail(BrokerUnavailableError(reason))
        actions, self._actions = self._actions, []
        return actions

    # The machine

    def poll(self, now_ms: int) -> list[Action]:
        """Return what is to be done now: see `Machine`."""
        if self._began_ms is None:
            self._began_ms = now_ms
        self._end_overdue(now_ms)
        self._refresh_metadata(now_ms)
        actions, self._actions = self._actions, []
        for node_id in list(self._connections):
            actions += self._turn(node_id, now_ms)
        return actions

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return when `poll` is due although nothing happened: see `Machine`."""
        deadlines = [deadline for each in self._connections.values() for deadline in self._deadlines(each)]
        if not self.metadata.is_asked:
            due_ms = self.metadata.due_ms()
            deadlines += [due_ms] if due_ms > now_ms else self._chances(now_ms)
        return min(deadlines, default=None)

    def connected(self, node_id: int, now_ms: int) -> None:
        """Take the news that a connection is open."""
        connection = self._connection(node_id)
        if connection.state is State.CONNECTING:
            self._actions.append(Write(node_id, [connection.negotiate()]))

    def buffer(self, node_id: int) -> memoryview:
        """Return where the next bytes of a connection belong: see `Machine`."""
        return self._connection(node_id).buffer()

    def received(self, node_id: int, count: int, now_ms: int) -> bool:
        """Take over bytes of a connection: see `Machine`."""
        connection = self._connection(node_id)
        if connection.state in (State.CLOSED, State.CONNECTING):
            return True
        was_ready = connection.state is State.READY
        try:
            out, is_whole = connection.take(count)
        except BrokerUnavailableError as error:
            self._close(node_id, as_value(error), now_ms, is_failure=True)
            return True
        if connection.state is State.READY and not was_ready:
            self._was_reached = True
            ready = [each for each in self._connections.values() if each.state is State.READY]
            self.takes_columns = any(each.exchange.takes_columns for each in ready)
        if out:
            self._actions.append(Write(node_id, [out]))
        return is_whole

    def disconnected(self, node_id: int, error: BrokerUnavailableError, now_ms: int) -> None:
        """Take the news that a connection could not be opened, or has ended."""
        connection = self._connection(node_id)
        if connection.state is State.CLOSED:
            return
        self._end(connection, error, now_ms, is_failure=connection.state is not State.READY)

    # Parts

    def _connection(self, node_id: int) -> NodeConnection:
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connections[node_id] = NodeConnection(self._settings.client_id)
        return connection

    def _has_room(self, connection: NodeConnection) -> bool:
        return connection.requests < self._settings.max_in_flight_requests_per_connection

    def _address(self, node_id: int) -> Address | None:
        if node_id < 0:
            return self._bootstrap[-1 - node_id] if -1 - node_id < len(self._bootstrap) else None
        node = self.metadata.cluster.nodes.get(node_id % _SECOND_CONNECTION)
        return None if node is None else Address(node.host, node.port)

    def _least_loaded(self, nodes: list[int], now_ms: int) -> int | None:
        """Return a ready node with few requests, else one that is being connected, else one that may be."""
        self._random.shuffle(nodes)
        usable = [node_id for node_id in nodes if self.can_send(node_id, now_ms)]
        order = {State.READY: 0, State.NEGOTIATING: 1, State.CONNECTING: 2, State.CLOSED: 3}

        def load(node_id: int) -> tuple[int, int, int]:
            connection = self._connection(node_id)
            return order[connection.state], connection.failures, connection.requests

        return min(usable, key=load, default=None)

    def _turn(self, node_id: int, now_ms: int) -> Iterable[Action]:
        connection = self._connection(node_id)
        if connection.state is State.READY:
            return [Write(node_id, frame) for frame in connection.write_waiting()]
        is_wanted = connection.is_wanted or connection.waiting
        if connection.state is not State.CLOSED or not is_wanted or connection.retry_at_ms > now_ms:
            return []
        address = self._address(node_id)
        if address is None:
            error = BrokerUnavailableError(f"broker {node_id % _SECOND_CONNECTION} is not part of the cluster now")
            self._end(connection, error, now_ms, is_failure=True)
            return []
        connection.begin(address, now_ms + self._setup.delay_ms(connection.failures))
        return [Connect(node_id, address)]

    def _end_overdue(self, now_ms: int) -> None:
        for node_id, connection in list(self._connections.items()):
            connection.fail_waiting(now_ms)
            overdue = connection.overdue(now_ms)
            if overdue is not None:
                self._close(node_id, connection.timed_out(overdue), now_ms, is_failure=True)
            elif connection.state in (State.CONNECTING, State.NEGOTIATING) and connection.setup_deadline_ms <= now_ms:
                text = f"no broker answers at {self._address(node_id)}: no connection in time"
                self._close(node_id, BrokerUnavailableError(text), now_ms, is_failure=True)

    def _close(self, node_id: int, error: BrokerUnavailableError, now_ms: int, *, is_failure: bool) -> None:
        connection = self._connection(node_id)
        if connection.state is not State.CLOSED:
            self._actions.append(Disconnect(node_id))
            self._end(connection, error, now_ms, is_failure=is_failure)

    def _end(self, connection: NodeConnection, error: BrokerUnavailableError, now_ms: int, *, is_failure: bool) -> None:
        retry_at_ms = now_ms + self._reconnect.delay_ms(connection.failures)
        connection.close(error, retry_at_ms, is_failure=is_failure)
        self.metadata.request_update()

    def _deadlines(self, connection: NodeConnection) -> Iterable[int]:
        yield from (request.deadline_ms for request in (*connection.waiting, *connection.in_flight))
        if connection.state in (State.CONNECTING, State.NEGOTIATING):
            yield connection.setup_deadline_ms
        elif connection.state is State.CLOSED and (connection.waiting or connection.is_wanted):
            yield connection.retry_at_ms

    def _chances(self, now_ms: int) -> Iterable[int]:
        """Yield when a refresh that is due may find a broker, if it is not for a connection's progress to decide."""
        node_id = self.any_node(now_ms)
        if node_id is None:
            yield self.chance_ms(now_ms)
        elif self._connection(node_id).state in (State.READY, State.CLOSED):
            yield now_ms

    def _refresh_metadata(self, now_ms: int) -> None:
        metadata = self.metadata
        if metadata.is_asked or metadata.due_ms() > now_ms:
            return
        node_id = self.any_node(now_ms)
        if node_id is None or not self.prepare(node_id, now_ms):
            return

        def done(request: PendingRequest[MetadataResponse]) -> None:
            # The time of the answer is not known here: that of the question is early enough.
            if request.error is not None:
                metadata.fail(request.error, now_ms)
            else:
                metadata.take(request.result(), now_ms)

        self.send(node_id, METADATA, metadata.request(now_ms), now_ms, done=done)
