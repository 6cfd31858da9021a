"""Who is in a classic group: members in the order they came, their leader, their instance ids, the protocols they share.

No time and no decisions here; `groups.classic` decides, this keeps count. A member waits for the group when its join or
sync has a waiter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafkalake.broker.groups.requests import GroupProtocol, JoinedMember
from kafkalake.errors import FencedInstanceIdError, UnknownMemberIdError

MEMBER_BYTES = 1024
"""What a member takes beside what it says, about."""
PROTOCOL_BYTES = 128


@dataclass(slots=True)
class Member:
    """A member of a classic group.

    `is_new` until the generation it joined has begun: it may not have learned its id, so it cannot send heartbeats.
    `session_ends_at_ms` and `timer_due_at_ms` (None: no timer is set) are readings of the monotonic clock.
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
        """What the member says under `protocol_name`; empty where it does not know that protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")


@dataclass(slots=True)
class MetadataMemory:
    """How many bytes some groups keep of their members."""

    bytes: int = 0


class Roster:
    """The members of one group. Iterates over them in the order they came.

    `bytes`: what is kept of them, see `kept_bytes`; it counts in `memory` too, with that of other groups.
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
        """The member id that an instance id has now."""
        return self._static.get(group_instance_id)

    def checked(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member of that id, if the instance id is not another's by now.

        Raises `UnknownMemberIdError`, `FencedInstanceIdError` (KIP-345).
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
        """How many members wait for their join to be answered."""
        return self._joining

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks the group to wait for it."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member, protocol_type: str) -> None:
        """A member comes. The first one says the protocol type and leads."""
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

    def remove(self, member: Member) -> None:
        """A member goes. Where it led, the longest-standing one leads."""
        del self._members[member.member_id]
        if member.group_instance_id is not None and self._static.get(member.group_instance_id) == member.member_id:
            del self._static[member.group_instance_id]
        self._forget_protocols(member)
        self.count(-_bytes_of(member))
        self._joining -= member.joining is not None
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under a new id: it keeps its place, its assignment and, where it led, the lead."""
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
        """`waiter` waits for the member's join; None: it was answered."""
        self._joining += (waiter is not None) - (member.joining is not None)
        member.joining = waiter

    def supports(self, protocol_type: str, protocols: Iterable[GroupProtocol]) -> bool:
        """Whether a member with these protocols fits in: the same type, and one protocol that all members know."""
        names = _names(protocols)
        if not self._members:
            return bool(protocol_type) and bool(names)
        everyone = len(self._members)
        return self.protocol_type == protocol_type and any(self._supporters[name] == everyone for name in names)

    def select_protocol(self) -> str:
        """The protocol with most votes: each member votes for the first in its list that all members know.

        Between equals, the one that the longest-standing member prefers.
        """
        everyone = len(self._members)
        common = {name for name, supporters in self._supporters.items() if supporters == everyone}
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(p.name for p in member.protocols if p.name in common)] += 1
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Let someone lead who has rejoined. False where nobody has."""
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
        """What the leader is told."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol_name)) for member in self
        )

    def count(self, bytes_: int) -> None:
        """So much more is kept, or less."""
        self.bytes += bytes_
        self.memory.bytes += bytes_

    def release(self) -> None:
        """The group is no more: nothing of its members is kept."""
        self.count(-self.bytes)

    def _forget_protocols(self, member: Member) -> None:
        """As long as the member's own list takes, however many protocols the others know."""
        for name in _names(member.protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]


def kept_bytes(client_id: str, group_instance_id: str | None, protocols: Iterable[GroupProtocol] = ()) -> int:
    """How many bytes a group keeps of a member, about: its id begins with one of the names."""
    names = 2 * len(client_id) + 2 * len(group_instance_id or "")
    return MEMBER_BYTES + names + sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def _bytes_of(member: Member) -> int:
    return kept_bytes(member.client_id, member.group_instance_id, member.protocols) + len(member.assignment)


def metadata_bytes(protocols: Iterable[GroupProtocol]) -> int:
    """How many bytes a member says of itself."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


def _names(protocols: Iterable[GroupProtocol]) -> set[str]:
    return {protocol.name for protocol in protocols}
