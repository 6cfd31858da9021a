"""Finds coordinators of groups and transactional ids (Kafka protocol guide, FindCoordinator), and raises their errors."""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.client.cluster import BrokerNode, Cluster
from kafkalake.client.connection import BrokerConnection
from kafkalake.client.requests import FIND_COORDINATOR, A, ClientApi, Q, error_name
from kafkalake.errors import error_for_code
from kafkalake.wire.messages.groups import FindCoordinatorRequest

GROUP, TRANSACTION = 0, 1
"""Types of keys that have a coordinator."""

_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}


def coordinator(cluster: Cluster, key_type: int, key: str) -> tuple[BrokerNode, BrokerConnection]:
    """Return the coordinator of `key` and a connection to it. Raise the broker's error, mostly `CoordinatorNotAvailableError`."""
    answer = cluster.any_broker().request(FIND_COORDINATOR, FindCoordinatorRequest(key=key, key_type=key_type))
    raise_error(answer.error_code, f"the coordinator of {_NAMES[key_type]} '{key}'")
    node = BrokerNode(answer.node_id, answer.host, answer.port)
    return node, cluster.broker(node.broker_id)


def ask_coordinator(
    cluster: Cluster,
    key_type: int,
    key: str,
    api: ClientApi[Q, A],
    message: Q,
    check: Callable[[A], None] | None = None,
) -> A:
    """Send one request to the coordinator of `key`, retrying on retriable errors, and return its response.

    check: raises the errors in a response. None: raise its top-level error code.
    """

    def ask() -> A:
        answer = coordinator(cluster, key_type, key)[1].request(api, message)
        if check is None:
            raise_error(getattr(answer, "error_code", 0), f"{_NAMES[key_type]} '{key}'")
        else:
            check(answer)
        return answer

    return cluster.retrying(ask)


def raise_error(code: int, subject: str) -> None:
    """Raise the class of `kafkalake.errors` for a response's error code, with `subject` in its text. 0 is no error."""
    if code:
        raise error_for_code(code, f"{subject}: {error_name(code)}")
