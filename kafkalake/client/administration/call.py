"""One operation of an administration client: which brokers it asks, what it asks again, and until when.

Operations (`topics`, `configs`, `groups` and so on) are scripts: functions of an `AdminCall` that send requests by it and wait.
What Kafka calls retriable is asked again, with growing pauses, until `default.api.timeout.ms`. No request is sent without a time
by which its response must have come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from kafkalake.client.administration.answers import Result, raise_error
from kafkalake.client.administration.settings import AdminSettings
from kafkalake.client.cluster import BrokerNode
from kafkalake.client.errors import ClientTimeoutError
from kafkalake.client.network.backoff import ExponentialBackoff
from kafkalake.client.network.client import FIRST_CONTACT_MS, NetworkClient
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.network.script import Script, T
from kafkalake.client.requests import FIND_COORDINATOR, GROUP, TRANSACTION, A, ClientApi, Q
from kafkalake.clock import Clock
from kafkalake.errors import (
    BrokerUnavailableError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotControllerError,
    ThrottlingQuotaExceededError,
    as_value,
)
from kafkalake.wire.messages.groups import FindCoordinatorRequest

_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}
_LOOK_AGAIN_MS = 1_000
_QUOTA_PAUSE_MS_MIN = 10
"""The shortest pause after a request that a quota has refused, whatever its response says."""
_ANSWER_MS = 5_000
"""How much longer a response may take than the work that the broker does in the time that the request gives it."""


def _always() -> bool:
    return True


class AdminCore:
    """The parts that the operations of one client share: connections, settings, the clock."""

    def __init__(
        self, settings: AdminSettings, clock: Clock, random: Random, first_contact_ms: int = FIRST_CONTACT_MS
    ) -> None:
        """first_contact_ms: see `NetworkClient`. Raise `ConfigurationError` for an address that is none."""
        self.settings = settings
        self.clock = clock
        self.network = NetworkClient(settings, random, first_contact_ms=first_contact_ms)
        self.backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random)
        self.line: deque[AdminCall] = deque()
        """Operations that wait for a broker with room for a request, in order."""

    def begin(self) -> AdminCall:
        """Return an operation whose time begins now."""
        return AdminCall(self)


class AdminCall:
    """See the module. Its methods are used by one operation."""

    def __init__(self, core: AdminCore) -> None:
        self._network = core.network
        self._settings = core.settings
        self._clock = core.clock
        self._backoff = core.backoff
        self._line = core.line
        self.is_in_line = False
        """Whether the operation waits behind others: no turn of the network concerns it, but `wake`, and the time."""
        self._woken: Callable[[], object] = _always
        self._is_due = _always
        self._deadline_ms = self.now_ms + core.settings.default_api_timeout_ms

    @property
    def now_ms(self) -> int:
        """The monotonic clock."""
        return self._clock.monotonic_ms()

    def listen(self, woken: Callable[[], object]) -> None:
        """Have `woken` called by `wake`, once."""
        self._woken = woken

    def wake(self) -> None:
        """Have the operation, which is in line, look again, as far as what runs it listens."""
        woken, self._woken = self._woken, _always
        woken()

    def is_due(self) -> bool:
        """Return whether the operation is to go on before the time that it has yielded: what it waits for has come."""
        return self._is_due()

    @property
    def work_ms(self) -> int:
        """The time that a request gives the broker for its work."""
        return max(min(self._settings.request_timeout_ms, self._deadline_ms - self.now_ms), 1)

    # Brokers

    def any_broker(self) -> Script[int]:
        """Return a broker to ask what each of them knows, once one has room for a request: operations take turns.

        Raise `BrokerUnavailableError` if none can be connected to now, `ClientTimeoutError` if none has room in time.
        """
        line = self._line
        line.append(self)
        try:
            while (is_behind := line[0] is not self) or (node_id := self._network.any_node(self.now_ms)) is None:
                if not is_behind and not self._network.is_busy:
                    raise self._network.failure()
                if self.now_ms >= self._deadline_ms:
                    raise ClientTimeoutError("the brokers had no room for one more request in time")
                self.is_in_line = is_behind
                yield self._deadline_ms
            return node_id
        finally:
            self.is_in_line = False
            line.remove(self)
            if line:
                line[0].wake()

    def find_brokers(self) -> Script[None]:
        """Return once the addresses of brokers are known, which may be outdated."""
        metadata = self._network.metadata
        while not metadata.cluster.nodes:
            self._raise_unreachable()
            if self.now_ms >= self._deadline_ms:
                raise metadata.error or ClientTimeoutError("no metadata of the cluster came in time")
            yield self._look_at(self._deadline_ms)

    def broker(self, broker_id: int) -> BrokerNode:
        """Return a broker that was asked. Raise `BrokerUnavailableError` if it is no longer part of the cluster."""
        node = self._network.metadata.cluster.nodes.get(broker_id)
        if node is None:
            raise BrokerUnavailableError(f"broker {broker_id} is not part of the cluster now")
        return node

    def _controller(self) -> Script[int]:
        yield from self.find_brokers()
        cluster = self._network.metadata.cluster
        return cluster.controller_id if cluster.controller_id in cluster.nodes else (yield from self.any_broker())

    def coordinator(self, key_type: int, key: str) -> Script[int]:
        """Return the coordinator of `key`. Raise the broker's error, mostly `CoordinatorNotAvailableError`."""
        message = FindCoordinatorRequest(key=key, key_type=key_type)
        answer = yield from self.request((yield from self.any_broker()), FIND_COORDINATOR, message)
        subject = f"the coordinator of {_NAMES[key_type]} '{key}'"
        raise_error(answer.error_code, subject)
        if answer.node_id < 0:
            raise CoordinatorNotAvailableError(f"{subject}: the broker's response names none")
        yield from self.find_brokers()
        return answer.node_id

    # Requests

    def version(self, node_id: int, api: ClientApi[Q, A]) -> Script[int]:
        """Return the version of an API for a node, once it is connected. Raise `UnsupportedVersionError`."""
        while (version := self._network.version(node_id, api)) is None:
            self._raise_unreachable()
            if self.now_ms >= self._deadline_ms:
                raise self._network.failure()
            self._network.prepare(node_id, self.now_ms)
            yield self._look_at(self._deadline_ms)
        return version

    def request(self, node_id: int, api: ClientApi[Q, A], message: Q, *, work_ms: int = 0) -> Script[A]:
        """Send one request to a node and return its response. work_ms: the time that the request itself gives the broker."""
        answers = yield from self.request_all(api, {node_id: message}, work_ms=work_ms)
        return answers[node_id]

    def request_all(self, api: ClientApi[Q, A], messages: Mapping[int, Q], *, work_ms: int = 0) -> Script[dict[int, A]]:
        """Send a request to each of several nodes, at once, and return their responses. Raise the first error."""
        now_ms = self.now_ms
        longest_ms = work_ms + _ANSWER_MS if work_ms else self._settings.request_timeout_ms
        timeout_ms = max(min(longest_ms, self._deadline_ms - now_ms), 1)
        sent = {
            node_id: self._network.send(node_id, api, message, now_ms, timeout_ms=timeout_ms)
            for node_id, message in messages.items()
        }
        for pending in sent.values():
            while not pending.is_done:
                self._raise_unreachable()
                yield from self._wait(self._look_at(pending.deadline_ms), partial(self._is_answered, pending))
        return {node_id: pending.result() for node_id, pending in sent.items()}

    def ask(self, api: ClientApi[Q, A], message: Q, check: Callable[[A], None] = lambda _: None) -> Script[A]:
        """Ask any broker, again on retriable errors. check: raises the errors in a response."""

        def attempt() -> Script[A]:
            answer = yield from self.request((yield from self.any_broker()), api, message)
            check(answer)
            return answer

        return (yield from self.retrying(attempt))

    def ask_broker(self, broker_id: int, api: ClientApi[Q, A], message: Q) -> Script[A]:
        """Ask one broker, again if it cannot be reached. Raise `BrokerUnavailableError` if it is unknown or does not answer."""

        def attempt() -> Script[A]:
            yield from self.find_brokers()
            return (yield from self.request(broker_id, api, message))

        return (yield from self.retrying(attempt))

    def ask_controller(self, api: ClientApi[Q, A], message: Q, results: Callable[[A], Sequence[Result]]) -> Script[A]:
        """Ask the controller, again if it cannot be reached or all results are NOT_CONTROLLER.

        Also again if a quota has refused all that is asked, after the time that the response says.
        """

        def attempt() -> Script[A]:
            while True:
                controller = yield from self._controller()
                answer = yield from self.request(controller, api, message, work_ms=self.work_ms)
                codes = {result.error_code for result in results(answer)}
                if codes == {NotControllerError.code}:
                    raise NotControllerError(f"{api.name}: the controller has moved")
                pause_ms = max(int(getattr(answer, "throttle_time", 0)), _QUOTA_PAUSE_MS_MIN)
                if codes != {ThrottlingQuotaExceededError.code} or self.now_ms + pause_ms >= self._deadline_ms:
                    return answer
                yield from self.pause(pause_ms)

        return (yield from self.retrying(attempt))

    def ask_coordinator(
        self, key_type: int, key: str, api: ClientApi[Q, A], message: Q, check: Callable[[A], None] | None = None
    ) -> Script[A]:
        """Ask the coordinator of `key`, again on retriable errors.

        check: raises the errors in a response. None: raise its top-level error code.
        """

        def attempt() -> Script[A]:
            node_id = yield from self.coordinator(key_type, key)
            answer = yield from self.request(node_id, api, message)
            if check is None:
                raise_error(getattr(answer, "error_code", 0), f"{_NAMES[key_type]} '{key}'")
            else:
                check(answer)
            return answer

        return (yield from self.retrying(attempt))

    # Retries

    def retrying(self, attempt: Callable[[], Script[T]]) -> Script[T]:
        """Run `attempt` until it succeeds, raises an error that is not retriable, or the time is over."""
        attempts = 0
        while True:
            try:
                return (yield from attempt())
            except (BrokerUnavailableError, KafkaError) as failed:
                error = as_value(failed)
            pause_ms = self._backoff.delay_ms(attempts)
            attempts += 1
            is_over = self.now_ms + pause_ms >= self._deadline_ms or attempts > self._settings.retries
            if is_over or (isinstance(error, KafkaError) and not error.retriable):
                raise error
            self._raise_unreachable()
            self._network.metadata.request_update()
            yield from self.pause(pause_ms)

    def pause(self, pause_ms: int) -> Script[None]:
        """Return after so many ms."""
        until_ms = self.now_ms + pause_ms
        while self.now_ms < until_ms:
            yield from self._wait(until_ms, lambda: False)

    def _wait(self, until_ms: int, is_due: Callable[[], bool]) -> Script[None]:
        """Wait until a time, or for a turn of the network after which `is_due`."""
        self._is_due = is_due
        try:
            yield until_ms
        finally:
            self._is_due = _always

    def _is_answered(self, pending: PendingRequest[A]) -> bool:
        return pending.is_done or not self._network.was_reached

    def _raise_unreachable(self) -> None:
        if (error := self._network.unreachable(self.now_ms)) is not None:
            raise error

    def _look_at(self, deadline_ms: int) -> int:
        """Return when to look again at the latest."""
        return min(deadline_ms, self.now_ms + _LOOK_AGAIN_MS)
