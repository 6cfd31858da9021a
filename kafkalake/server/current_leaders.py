"""Looks up the leaders that errors of Produce and Fetch name (KIP-951)."""

from __future__ import annotations

from uuid import UUID

from kafkalake.server.request import Request
from kafkalake.wire.current_leader import CurrentLeader, Node


def current_leader(request: Request[object], topic: str | UUID | None, index: int) -> CurrentLeader | None:
    """Return the leader of a partition as this broker knows it now, None if there is no such partition."""
    topics = request.context.broker.topics
    found = None if topic is None else topics.find(topic) if isinstance(topic, str) else topics.find_id(topic)
    if found is None or not 0 <= index < len(found.registrations):
        return None
    registered, image = found.registrations[index], topics.image
    address = image.address(registered.leader, request.listener)
    node = None
    if address is not None:
        node = Node(registered.leader, address.host, address.port, image.brokers[registered.leader].rack)
    return CurrentLeader(registered.leader, registered.leader_epoch, node)
