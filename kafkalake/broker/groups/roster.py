"""The members of a classic group in order of arrival, their leader, instance ids and common protocols.

Contains no timing and no decisions, which are in `groups.classic`. A join or sync of a member is pending while it has a waiter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafkalake.broker.coordination.table import MetadataMemory
from kafkalake.broker.groups.requests import GroupProtocol, JoinedMember
from kafkalake.errors import FencedInstanceIdError, UnknownMemberIdError

MEMBER_BYTES = 1024
"""Approximate memory of a member without its strings and metadata."""
PROTOCOL_BYTES = 128


@dataclass(slots=True)
class Member:
    """A member of a classic group.

    `is_new` until the generation it joined has begun: it may not have its id yet, so it cannot send heartbeats.
    `session_ends_at_ms` and `timer_due_at_ms` (None: no timer is set) are times of the monotonic clock.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    joining: object = None
    syncing: object = None
    session_ends_at_ms: int = 0
    timer_due_at_ms: int | None = None

    def metadata(self, protocol_name: str) -> bytes:
        """Return the member's metadata for `protocol_name`, empty if it does not support that protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")


class Roster:
    """The members of one group, iterated in order of arrival.

    `bytes`: their memory, see `kept_bytes`. It counts in `memory` too, with that of other groups.
    """

    def __init__(self, memory: MetadataMemory | None = None) -> None:
        self.memory = memory or MetadataMemory()
        self.bytes = 0
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self._joining = 0
        self.leader: str | None = None
        self.protocol_type: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member_id(self, group_instance_id: str) -> str | None:
        """Return the current member id of an instance id."""
        return self._static.get(group_instance_id)

    def checked(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member of that id, if the instance id still belongs to it.

        Raise `UnknownMemberIdError` or `FencedInstanceIdError` (KIP-345).
        """
        if group_instance_id is not None:
            current = self._static.get(group_instance_id)
            if current is None:
                raise UnknownMemberIdError
            if current != member_id:
                raise FencedInstanceIdError
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMemberIdError
        return member

    @property
    def joining(self) -> int:
        """The number of members with a pending join."""
        return self._joining

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member. The first one sets the protocol type and becomes the leader."""
        assert member.member_id not in self._members
        if not self._members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self._members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id
        self._supporters.update(_names(member.protocols))
        self.count(_bytes_of(member))
        self._joining += member.joining is not None

    def restore(self, members: Iterable[Member], protocol_type: str, leader: str | None) -> None:
        """Add the members of a loaded generation, with its leader if it is one of them."""
        assert not self._members
        self.protocol_type = protocol_type or None
        for member in members:
            self.add(member, protocol_type)
        if leader in self._members:
            self.leader = leader

    def remove(self, member: Member) -> None:
        """Remove a member. If it was the leader, the longest-standing member becomes the leader."""
        del self._members[member.member_id]
        if member.group_instance_id is not None and self._static.get(member.group_instance_id) == member.member_id:
            del self._static[member.group_instance_id]
        self._forget_protocols(member)
        self.count(-_bytes_of(member))
        self._joining -= member.joining is not None
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a returning static member its new id. It keeps its place, its assignment and its leadership, if any."""
        assert member.group_instance_id is not None
        if self.leader == member.member_id:
            self.leader = member_id
        self._members = {
            member_id if known == member.member_id else known: other for known, other in self._members.items()
        }
        self._static[member.group_instance_id] = member_id
        member.member_id = member_id

    def set_protocols(self, member: Member, protocols: tuple[GroupProtocol, ...]) -> None:
        self._forget_protocols(member)
        self.count(-_bytes_of(member))
        member.protocols = protocols
        self._supporters.update(_names(protocols))
        self.count(_bytes_of(member))

    def set_assignment(self, member: Member, assignment: bytes) -> None:
        self.count(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def set_joining(self, member: Member, waiter: object) -> None:
        """Set the waiter of the member's pending join, or None after the reply."""
        self._joining += (waiter is not None) - (member.joining is not None)
        member.joining = waiter

    def supports(self, protocol_type: str, protocols: Iterable[GroupProtocol]) -> bool:
        """Return whether a joining member is compatible: same protocol type, and one protocol that all members support."""
        names = _names(protocols)
        if not self._members:
            return bool(protocol_type) and bool(names)
        everyone = len(self._members)
        return self.protocol_type == protocol_type and any(self._supporters[name] == everyone for name in names)

    def select_protocol(self) -> str:
        """Return the protocol with most votes. Each member votes for the first in its list that all members support.

        Ties go to the protocol that the longest-standing member prefers.
        """
        everyone = len(self._members)
        common = {name for name, supporters in self._supporters.items() if supporters == everyone}
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(p.name for p in member.protocols if p.name in common)] += 1
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Make a rejoined member the leader if the current one has not rejoined. Return False if no member has."""
        leader = self._members.get(self.leader or "")
        if leader is None:
            return False
        if leader.joining is None:
            joined = next((member for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def joined_members(self, protocol_name: str) -> tuple[JoinedMember, ...]:
        """Return all members as the leader's join result lists them."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol_name)) for member in self
        )

    def count(self, bytes_: int) -> None:
        """Add `bytes_` (may be negative) to the memory in use."""
        self.bytes += bytes_
        self.memory.add(bytes_)

    def release(self) -> None:
        """Release the memory of a group that has ended."""
        self.count(-self.bytes)

    def _forget_protocols(self, member: Member) -> None:
        """Take time proportional to the member's own list, however many protocols the others support."""
        for name in _names(member.protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]


def kept_bytes(client_id: str, group_instance_id: str | None, protocols: Iterable[GroupProtocol] = ()) -> int:
    """Return the approximate memory of a member in bytes. Its id begins with one of the names."""
    names = 2 * len(client_id) + 2 * len(group_instance_id or "")
    return MEMBER_BYTES + names + sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def _bytes_of(member: Member) -> int:
    return kept_bytes(member.client_id, member.group_instance_id, member.protocols) + len(member.assignment)


def metadata_bytes(protocols: Iterable[GroupProtocol]) -> int:
    """Return the size of a member's protocol names and metadata in bytes."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


def _names(protocols: Iterable[GroupProtocol]) -> set[str]:
    return {protocol.name for protocol in protocols}
