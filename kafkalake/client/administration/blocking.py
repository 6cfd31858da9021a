"""The administration client for threads: `kafkalake.Admin`. The calling thread does the network's work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import wraps
from random import Random
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from kafkalake.client.administration import (
    brokers,
    configs,
    delayed,
    group_offsets,
    groups,
    partition_offsets,
    reassignments,
    topics,
    transactions,
)
from kafkalake.client.administration.call import AdminCall, AdminCore
from kafkalake.client.administration.settings import AdminSettings
from kafkalake.client.checked_call import checked
from kafkalake.client.errors import ClientClosedError
from kafkalake.client.forks import inherited, watch_forks
from kafkalake.client.network.client import FIRST_CONTACT_MS
from kafkalake.client.network.script import Script
from kafkalake.client.network.selector import SelectorEdge
from kafkalake.client.settings import merged, parse_settings
from kafkalake.clock import Clock, SystemClock

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(operation: Callable[Concatenate[AdminCall, P], Script[T]]) -> Callable[Concatenate[Admin, P], T]:
    """Return an operation as a method that waits for its result."""
    checked_operation = checked(operation)

    @wraps(operation)
    def method(admin: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return admin.run(checked_operation, *args, **kwargs)

    return method


class Admin:
    """Administers a cluster. Use it in a `with` block, or close it. Threads may share it: they take turns.

    Settings are Kafka's, by name: `Admin({"bootstrap.servers": "localhost:9092"})` or `Admin(bootstrap_servers="localhost:9092")`.
    Operations take up to `default.api.timeout.ms`. They raise Kafka's errors as classes of `kafkalake.errors`,
    `BrokerUnavailableError` if no broker can be reached, `ClientClosedError` after `close`.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        first_contact_ms: int = FIRST_CONTACT_MS,
        clock: Clock | None = None,
        random: Random | None = None,
        **named: object,
    ) -> None:
        """first_contact_ms: how long addresses at which no broker was ever reached are tried again.

        Raise `ConfigurationError` for a setting that is unknown or invalid.
        """
        parsed = parse_settings(AdminSettings, merged(settings, named))
        self._clock = clock or SystemClock()
        self._core = AdminCore(parsed, self._clock, random or Random(), first_contact_ms)
        self._edge = SelectorEdge(self._core.network, self._clock)
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_inherited = False
        watch_forks(self)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    create_topic = _blocking(topics.create_topic)
    delete_topics = _blocking(topics.delete_topics)
    delete_topic = _blocking(topics.delete_topic)
    list_topics = _blocking(topics.list_topics)
    describe_topic = _blocking(topics.describe_topic)
    create_partitions = _blocking(topics.create_partitions)

    describe_configs = _blocking(configs.describe_configs)
    alter_configs = _blocking(configs.alter_configs)

    list_offsets = _blocking(partition_offsets.list_offsets)
    delete_records = _blocking(partition_offsets.delete_records)

    list_groups = _blocking(groups.list_groups)
    describe_group = _blocking(groups.describe_group)
    delete_group = _blocking(groups.delete_group)
    remove_member = _blocking(groups.remove_member)
    committed_offsets = _blocking(group_offsets.committed_offsets)
    alter_offsets = _blocking(group_offsets.alter_offsets)
    delete_offsets = _blocking(group_offsets.delete_offsets)

    list_transactions = _blocking(transactions.list_transactions)
    describe_transaction = _blocking(transactions.describe_transaction)
    describe_producers = _blocking(transactions.describe_producers)
    write_abort_marker = _blocking(transactions.write_abort_marker)
    fence_producer = _blocking(transactions.fence_producer)

    delayed_metrics = _blocking(delayed.delayed_metrics)

    cluster_id = _blocking(brokers.cluster_id)
    list_brokers = _blocking(brokers.list_brokers)
    describe_cluster = _blocking(brokers.describe_cluster)
    describe_quorum = _blocking(brokers.describe_quorum)
    describe_log_dirs = _blocking(brokers.describe_log_dirs)
    unregister_broker = _blocking(brokers.unregister_broker)
    eligible_leaders = _blocking(brokers.eligible_leaders)

    list_reassignments = _blocking(reassignments.list_reassignments)
    alter_reassignments = _blocking(reassignments.alter_reassignments)
    elect_leaders = _blocking(reassignments.elect_leaders)
    set_throttle = _blocking(reassignments.set_throttle)
    remove_throttles = _blocking(reassignments.remove_throttles)

    def run(self, operation: Callable[Concatenate[AdminCall, P], Script[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation and return its result."""
        if self._is_inherited:
            raise inherited()
        with self._lock:
            if self._is_closed:
                raise ClientClosedError("the administration client is closed")
            self._edge.poll(0)  # a connection that the broker has closed meanwhile is not used
            script = operation(self._core.begin(), *args, **kwargs)
            try:
                until_ms = next(script)
                while True:
                    self._edge.poll(max(until_ms - self._clock.monotonic_ms(), 0))
                    until_ms = next(script)
            except StopIteration as end:
                found: T = end.value
                return found
            finally:
                script.close()

    def close(self) -> None:
        """Close all connections."""
        if self._is_inherited:
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._core.network.close()
                self._edge.close()

    def disown(self) -> None:
        """Refuse all use: see `forks`."""
        self._is_inherited = True
