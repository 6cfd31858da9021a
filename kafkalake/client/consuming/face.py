"""What the blocking and the asynchronous consumer have in common: settings, and the calls that wait for nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random

from kafkalake.client.arguments import (
    check_part,
    check_topic,
    checked_names,
    checked_number,
    checked_partition,
    checked_partitions,
    checked_seconds,
)
from kafkalake.client.consuming.assignors import ASSIGNORS, JAVA_CLASSES, Assignor
from kafkalake.client.consuming.calls import ConsumerCalls
from kafkalake.client.consuming.commits import GivenOffsets
from kafkalake.client.consuming.core import ConsumerCore
from kafkalake.client.consuming.listeners import CommitCallback, ConsumerInterceptor, RebalanceListener
from kafkalake.client.consuming.membership import Identity
from kafkalake.client.consuming.settings import ConsumerSettings, consumer_settings
from kafkalake.client.consuming.subscriptions import EARLIEST, LATEST
from kafkalake.client.errors import WakeupError
from kafkalake.client.records import NO_EPOCH, ConsumerGroupMetadata
from kafkalake.client.serialization import Deserializer, serde_named
from kafkalake.clock import Clock, SystemClock
from kafkalake.close_names import did_you_mean
from kafkalake.config.setting import INT_MAX, LONG_MAX
from kafkalake.config.setting_texts import members_of
from kafkalake.errors import ConfigurationError
from kafkalake.topic_partition import TopicPartition
from kafkalake.uuid_text import encode_uuid


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """The objects that a consumer is made with beside its settings."""

    key_deserializer: Deserializer | str | None = None
    value_deserializer: Deserializer | str | None = None
    assignors: Sequence[Assignor] = ()
    interceptors: Sequence[ConsumerInterceptor] = ()
    clock: Clock | None = None
    random: Random | None = None
    new_id: Callable[[], uuid.UUID] = uuid.uuid4


class ConsumerFace:
    """See the module. Methods raise `SubscriptionError` for a partition that is not assigned."""

    def __init__(self, given: Mapping[str, object], parts: ConsumerParts) -> None:
        """Raise `ConfigurationError` for a setting that is unknown or invalid."""
        self._settings = consumer_settings(given)
        self._clock = parts.clock or SystemClock()
        assignors = _assignors(self._settings, parts.assignors)
        member_id = encode_uuid(parts.new_id())
        self._core = ConsumerCore(
            self._settings,
            assignors,
            member_id,
            parts.random or Random(),
            notes_commits=bool(parts.interceptors),
        )
        for each in parts.interceptors:
            check_part("interceptors", each, "on_consume", "on_commit")
        deserializers = (
            _deserializer("key_deserializer", parts.key_deserializer),
            _deserializer("value_deserializer", parts.value_deserializer),
        )
        self._calls = ConsumerCalls(self._core, self._settings, self._clock, deserializers, parts.interceptors)
        self._is_woken = self._is_closing = False

    def _using(self) -> AbstractContextManager[None]:
        """Return the context in which the consumer's state may be used."""
        raise NotImplementedError

    def _taken_wakeup(self) -> WakeupError | None:
        """Return the error of a `wakeup` that no call has raised yet."""
        if not self._is_woken or self._is_closing:
            return None
        self._is_woken = False
        return WakeupError("wakeup was called")

    # Subscriptions

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read the partitions of `topics`, or of all topics that the regular expression `pattern` matches, that the group assigns.

        Raise `SubscriptionError` after `assign`, or if both kinds are mixed, until `unsubscribe`.
        """
        names = [topics] if isinstance(topics, str) else checked_names(topics, "topics")
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe takes topics, or a pattern")
        if pattern is not None and not isinstance(pattern, str):
            raise TypeError(f"a pattern is a str, not {type(pattern).__name__}")
        if pattern == "":
            raise ValueError("a pattern has at least one character")
        for name in names:
            check_topic(name)
        check_part("listener", listener, "on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
        with self._using():
            if pattern is not None:
                self._core.subscriptions.subscribe_pattern(pattern)
            else:
                self._core.subscriptions.subscribe(names)
            self._calls.listen(listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, whatever other members of the group do. Without any, `subscribe` is possible again."""
        wanted = checked_partitions(partitions)
        with self._using():
            self._core.assign(wanted, self._clock.monotonic_ms())

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed to, those that match the pattern as far as they are known."""
        with self._using():
            return self._core.subscriptions.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        with self._using():
            return frozenset(self._core.subscriptions.partitions)

    # Positions

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Continue at `offset`. leader_epoch: of the record before it, by which a truncation is found."""
        place, wanted = checked_partition(partition), checked_number(offset, "an offset", LONG_MAX)
        epoch = (
            NO_EPOCH if leader_epoch in (None, NO_EPOCH) else checked_number(leader_epoch, "a leader epoch", INT_MAX)
        )
        with self._using():
            self._core.subscriptions.seek(place, wanted, epoch)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Continue at the first offset of partitions, of all without any."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Continue behind the last record of partitions, of all without any."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        wanted = checked_partitions(partitions)
        with self._using():
            for partition in wanted or list(self._core.subscriptions.partitions):
                self._core.subscriptions.seek_to_timestamp(partition, timestamp)

    def forget_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Continue as after an assignment: at the committed offsets, else where `auto.offset.reset` says.

        Until then there is no position that could be committed.
        """
        wanted = checked_partitions(partitions)
        with self._using():
            for partition in wanted:
                self._core.subscriptions.forget_position(partition)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        with self._using():
            self._core.subscriptions.pause(checked_partitions(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again."""
        with self._using():
            self._core.subscriptions.resume(checked_partitions(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        with self._using():
            return frozenset(each for each, state in self._core.subscriptions.partitions.items() if state.paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are left to read, as of the newest response, None before there is one."""
        with self._using():
            return self._core.subscriptions.state(checked_partition(partition)).lag(self._settings.is_read_committed)

    # Groups

    def commit_async(self, offsets: GivenOffsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit offsets, or all positions, without waiting.

        `callback(offsets, error)` is called in a later call of this consumer. Raise `InvalidGroupIdError` without a group.
        """
        with self._using():
            self._calls.commit_async(offsets, callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the consumer as a member of its group."""
        with self._using():
            identity: Identity = self._core.identity
            return ConsumerGroupMetadata(
                self._settings.group_id or "", identity.generation, identity.member_id, identity.group_instance_id
            )

    def metrics(self) -> dict[str, float]:
        """Return numbers by name: totals, rates and latencies of the last half minute, the largest lag. Any thread may ask."""
        return self._core.metrics()

    def _poll_limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self._settings.max_poll_records
        if checked_number(max_records, "max_records") < 1:
            raise ValueError(f"max_records is at least 1, not {max_records}")
        return max_records

    def _timeout_ms(self, timeout_s: float | None, without_ms: int | None = None) -> int:
        """Return a timeout of a call. without_ms: if the application gives none, `default.api.timeout.ms` without it."""
        if timeout_s is None:
            return self._settings.default_api_timeout_ms if without_ms is None else without_ms
        return round(checked_seconds(timeout_s, "a timeout") * 1000)


def _deserializer(name: str, given: Deserializer | str | None) -> Deserializer | None:
    if not isinstance(given, str):
        check_part(name, given, "deserialize")
        return given
    return None if given == "bytes" else serde_named(given)


def _assignors(settings: ConsumerSettings, own: Sequence[Assignor]) -> list[Assignor]:
    """Return the group's assignors: `own`, or those of `partition.assignment.strategy`."""
    if own:
        if settings.group_protocol != "classic":
            raise ConfigurationError("assignors cannot be given when group.protocol=consumer: the broker assigns")
        for each in own:
            check_part("assignors", each, "assign")
        return list(own)
    found = []
    for name in members_of(settings.partition_assignment_strategy):
        assignor = ASSIGNORS.get(JAVA_CLASSES.get(name, name))
        if assignor is None:
            hint = did_you_mean(name, ASSIGNORS)
            raise ConfigurationError(f"there is no assignor '{name}'" + (f"; {hint}" if hint else ""))
        found.append(assignor)
    if not found:
        raise ConfigurationError("partition.assignment.strategy needs an assignor")
    return found
