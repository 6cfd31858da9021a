"""What both protocols of groups have in common: a member as a pure state machine, and what it asks of the application.

A membership takes events (the application polls, a response comes, time passes) and leaves requests to the coordinator and
changes of the assignment. The core sends the requests; the application's thread carries out a change, with its rebalance
listener, in `poll`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kafkalake.client.requests import ClientApi
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    KafkaLakeError,
    NotCoordinatorError,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.message import Message

COORDINATOR_MOVED = frozenset({NotCoordinatorError.code, CoordinatorNotAvailableError.code})
"""Errors after which the coordinator is looked up again."""


class GroupRequest(NamedTuple):
    """A request to the group's coordinator. timeout_ms: None for `request.timeout.ms`."""

    api: ClientApi[Any, Any]
    message: Message
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the assignment, in this order: `revoked` or `lost` are given up, `added` are new, `assigned` are all.

    revoked: no other member has them yet, so their offsets can be committed. lost: others may have them already. is_complete: the
    end of a rebalance, at which the listener hears of new partitions even if there are none.
    """

    assigned: frozenset[TopicPartition]
    added: frozenset[TopicPartition] = frozenset()
    revoked: frozenset[TopicPartition] = frozenset()
    lost: frozenset[TopicPartition] = frozenset()
    is_complete: bool = False


class Identity(NamedTuple):
    """The member as commits name it. generation: or its epoch, with the consumer protocol."""

    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None


class Membership(Protocol):
    """A member of a group. Times are monotonic milliseconds."""

    @property
    def identity(self) -> Identity:
        """The member as of now, as its commits name it. After its end the member that it was, so that they are refused."""
        ...

    @property
    def is_stable(self) -> bool:
        """Return whether no rebalance is under way for this member."""
        ...

    @property
    def has_place(self) -> bool:
        """Return whether the member is in the group as far as it knows: else others may have its partitions already."""
        ...

    @property
    def change(self) -> Change | None:
        """The change that the application has to carry out before the membership goes on."""
        ...

    @property
    def topics_needed(self) -> frozenset[str]:
        """The topics of which the membership needs metadata, beside those that are subscribed to."""
        ...

    def poll(self, now_ms: int) -> None:
        """Take the news that the application polls. Raise the error with which the coordinator refuses the member."""
        ...

    def subscription_changed(self) -> None:
        """Take the news that other topics are subscribed to."""
        ...

    def metadata_changed(self) -> None:
        """Take the news that the metadata is newer."""
        ...

    def changed(self, now_ms: int) -> None:
        """Take the news that `change` was carried out."""
        ...

    def requests(self, now_ms: int) -> list[GroupRequest]:
        """Return what is to be sent to the coordinator now. Each is answered by `take` or `failed`."""
        ...

    def take(self, request: GroupRequest, response: Message, now_ms: int) -> bool:
        """Take a response. Return False if the coordinator is another broker."""
        ...

    def failed(self, request: GroupRequest, error: KafkaLakeError, now_ms: int) -> None:
        """Take the news that no response to a request comes."""
        ...

    def commit_refused(self, code: int) -> None:
        """Take the error of a commit that says something about the member."""
        ...

    def leave(self, now_ms: int) -> GroupRequest | None:
        """Return the request that ends the membership, None if there is nothing to end or a static member may come back."""
        ...

    def is_silent(self, now_ms: int) -> bool:
        """Return whether the coordinator has not answered for so long that it may be another broker now."""
        ...

    def begin_session(self, now_ms: int) -> None:
        """Count the time without an answer from now on: another coordinator is looked for."""
        ...

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return when `requests` is due although nothing happened."""
        ...


PartitionCounts = Callable[[Collection[str]], Mapping[str, int] | None]
"""Returns the number of partitions of those of the given topics that exist, None as long as that is not known."""
