"""The administration client for an event loop: `kafkalake.aio.Admin`. The operations of `blocking.Admin`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
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
from kafkalake.client.network.client import FIRST_CONTACT_MS
from kafkalake.client.network.event_loop import EventLoopEdge
from kafkalake.client.network.script import Script
from kafkalake.client.settings import merged, parse_settings
from kafkalake.clock import Clock, SystemClock

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    operation: Callable[Concatenate[AdminCall, P], Script[T]],
) -> Callable[Concatenate[Admin, P], Coroutine[None, None, T]]:
    """Return an operation as a method whose result is awaited."""
    checked_operation = checked(operation)

    @wraps(operation)
    async def method(admin: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await admin.run(checked_operation, *args, **kwargs)

    return method


async def _wake_of(call: AdminCall, timeout_s: float) -> None:
    """Wait until an operation in line is woken, at most `timeout_s`."""
    woken = asyncio.Event()
    call.listen(woken.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await woken.wait()


class Admin:
    """Administers a cluster, on the event loop that it is made on. Use it in an `async with` block, or close it.

    As `kafkalake.Admin`; any number of tasks may use it at the same time.
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
        """See `kafkalake.Admin`."""
        parsed = parse_settings(AdminSettings, merged(settings, named))
        self._clock = clock or SystemClock()
        self._core = AdminCore(parsed, self._clock, random or Random(), first_contact_ms)
        self._edge = EventLoopEdge(self._core.network, self._clock)
        self._is_closed = False

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self._edge.abandon(self)

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    create_topic = _awaited(topics.create_topic)
    delete_topics = _awaited(topics.delete_topics)
    delete_topic = _awaited(topics.delete_topic)
    list_topics = _awaited(topics.list_topics)
    describe_topic = _awaited(topics.describe_topic)
    create_partitions = _awaited(topics.create_partitions)

    describe_configs = _awaited(configs.describe_configs)
    alter_configs = _awaited(configs.alter_configs)

    list_offsets = _awaited(partition_offsets.list_offsets)
    delete_records = _awaited(partition_offsets.delete_records)

    list_groups = _awaited(groups.list_groups)
    describe_group = _awaited(groups.describe_group)
    delete_group = _awaited(groups.delete_group)
    remove_member = _awaited(groups.remove_member)
    committed_offsets = _awaited(group_offsets.committed_offsets)
    alter_offsets = _awaited(group_offsets.alter_offsets)
    delete_offsets = _awaited(group_offsets.delete_offsets)

    list_transactions = _awaited(transactions.list_transactions)
    describe_transaction = _awaited(transactions.describe_transaction)
    describe_producers = _awaited(transactions.describe_producers)
    write_abort_marker = _awaited(transactions.write_abort_marker)
    fence_producer = _awaited(transactions.fence_producer)

    delayed_metrics = _awaited(delayed.delayed_metrics)

    cluster_id = _awaited(brokers.cluster_id)
    list_brokers = _awaited(brokers.list_brokers)
    describe_cluster = _awaited(brokers.describe_cluster)
    describe_quorum = _awaited(brokers.describe_quorum)
    describe_log_dirs = _awaited(brokers.describe_log_dirs)
    unregister_broker = _awaited(brokers.unregister_broker)
    eligible_leaders = _awaited(brokers.eligible_leaders)

    list_reassignments = _awaited(reassignments.list_reassignments)
    alter_reassignments = _awaited(reassignments.alter_reassignments)
    elect_leaders = _awaited(reassignments.elect_leaders)
    set_throttle = _awaited(reassignments.set_throttle)
    remove_throttles = _awaited(reassignments.remove_throttles)

    async def run(
        self, operation: Callable[Concatenate[AdminCall, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation and return its result."""
        self._check_open()
        self._edge.check_loop()
        call = self._core.begin()
        script = operation(call, *args, **kwargs)
        try:
            while True:
                self._check_open()
                until_ms = next(script)
                self._edge.schedule()
                left_s = max(until_ms - self._clock.monotonic_ms(), 0) / 1000
                if call.is_in_line:
                    await _wake_of(call, left_s)
                else:
                    await self._edge.next_turn(left_s, call.is_due)
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            script.close()  # of a task that was cancelled

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the administration client is closed")

    async def close(self) -> None:
        """Close all connections. Operations that are under way raise `ClientClosedError`."""
        if not self._is_closed:
            self._is_closed = True
            for call in self._core.line:
                call.wake()
            self._core.network.close()
            self._edge.close()
