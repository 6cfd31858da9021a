"""Who coordinates a group or a transactional id (Kafka protocol guide, FindCoordinator), and errors in answers of coordinators."""

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
    """The coordinator of `key` and a connection to it. Raises what the broker answers, `CoordinatorNotAvailableError` above all."""
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
    """Return the answer of the coordinator of `key` to one request, which is sent again while an error says so.

    check: raises what an answer says; None: its error code counts.
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
    """Raise the class of `kafkalake.errors` for an answer's error code (None or 0: none), with `subject` in its text."""
    code = 0 if error_code is None else int(error_code.value)
    if code:
        raise error_for_code(code, f"{subject}: {error_code.name.replace('_', ' ')}")
