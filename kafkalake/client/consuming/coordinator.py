"""The coordinator of the consumer's group: found when it is needed, and again after it has moved. Pure."""

from __future__ import annotations

from kafkalake.client.network.client import NetworkClient, second_connection
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.requests import FIND_COORDINATOR, GROUP, error_name
from kafkalake.errors import KafkaError, error_for_code
from kafkalake.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse


class Coordinator:
    """See the module. `node_id` is that of a connection of its own: a JoinGroup that waits holds up nothing else."""

    def __init__(self, group_id: str, network: NetworkClient, retry_backoff_ms: int) -> None:
        self._group_id = group_id
        self._network = network
        self._retry_backoff_ms = retry_backoff_ms
        self._is_asking = False
        self._retry_at_ms = 0
        self._now_ms = 0
        self.node_id: int | None = None
        self.error: KafkaError | None = None
        """An error that is not retriable: the group cannot be used."""

    def turn(self, now_ms: int) -> None:
        """Look the coordinator up if it is not known."""
        self._now_ms = now_ms
        if self.node_id is not None or self._is_asking or now_ms < self._retry_at_ms or self.error is not None:
            return
        node_id = self._network.any_node(now_ms)
        if node_id is None:
            self._retry_at_ms = self._network.chance_ms(now_ms)
        else:
            self._is_asking = True
            message = FindCoordinatorRequest(key=self._group_id, key_type=GROUP)
            self._network.send(node_id, FIND_COORDINATOR, message, now_ms, done=self._found)

    def lose(self, now_ms: int) -> None:
        """Look the coordinator up again: it has moved, or does not answer."""
        self.node_id = None
        self._retry_at_ms = now_ms + self._retry_backoff_ms

    def next_deadline_ms(self) -> int | None:
        """Return when `turn` is due."""
        is_idle = self.node_id is not None or self._is_asking or self.error is not None
        return None if is_idle else self._retry_at_ms

    def take_error(self) -> KafkaError | None:
        """Return the error, and look the coordinator up again when it is needed."""
        error, self.error = self.error, None
        return error

    def _found(self, request: PendingRequest[FindCoordinatorResponse]) -> None:
        self._is_asking = False
        response = request.response
        if request.error is not None or response is None:
            self._retry_at_ms = self._now_ms + self._retry_backoff_ms
        elif response.error_code:
            code = response.error_code
            error = error_for_code(code, f"the coordinator of group '{self._group_id}': {error_name(code)}")
            self._retry_at_ms = self._now_ms + self._retry_backoff_ms
            self.error = None if error.retriable else error
        elif not self._network.metadata.take_coordinator(response):
            self._network.metadata.request_update()
            self._retry_at_ms = self._now_ms + self._retry_backoff_ms
        else:
            self.node_id = second_connection(response.node_id)
