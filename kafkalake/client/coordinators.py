"""Finds coordinators of groups and transactional ids (Kafka protocol guide, FindCoordinator), and raises their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalake.client.cluster import BrokerNode, Cluster
from kafkalake.client.connection import Connection
from kafkalake.client.requests import FIND_COORDINATOR, Api
from kafkalake.errors import error_for_code

GROUP, TRANSACTION = 0, 1
"""Types of keys that have a coordinator."""

_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}


def coordinator(cluster: Cluster, key_type: int, key: str) -> tuple[BrokerNode, Connection]:
    """Return the coordinator of `key` and a connection to it. Raise the broker's error, mostly `CoordinatorNotAvailableError`."""
    answer = cluster.any_broker().request(FIND_COORDINATOR, {"key": key, "key_type": key_type})
    raise_error(answer.error_code, f"the coordinator of {_NAMES[key_type]} '{key}'")
    node = BrokerNode(int(answer.node_id), answer.host, int(answer.port))
    return node, cluster.broker(node.broker_id)


def ask_coordinator(
    cluster: Cluster,
    key_type: int,
    key: str,
    api: Api,
    values: Mapping[str, Any],
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Send one request to the coordinator of `key`, retrying on retriable errors, and return its response.

    check: raises the errors in a response. None: raise its top-level error code.
    """

    def ask() -> Any:
        answer = coordinator(cluster, key_type, key)[1].request(api, values)
        if check is None:
            raise_error(answer.error_code, f"{_NAMES[key_type]} '{key}'")
        else:
            check(answer)
        return answer

    return cluster.retrying(ask)


def raise_error(error_code: Any, subject: str) -> None:
    """Raise the class of `kafkalake.errors` for a response's error code, with `subject` in its text. None or 0 is no error."""
    code = 0 if error_code is None else int(error_code.value)
    if code:
        raise error_for_code(code, f"{subject}: {error_code.name.replace('_', ' ')}")
