"""Checks of consumer protocol heartbeats, and their effect on a subscription."""

from __future__ import annotations

from kafkalake.broker.coordination.patterns import check_regex
from kafkalake.broker.groups.assignors import ASSIGNORS
from kafkalake.broker.groups.consumer_records import Subscription
from kafkalake.broker.groups.consumer_requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatRequest,
)
from kafkalake.broker.groups.consumer_state import ConsumerState, is_away
from kafkalake.broker.groups.requests import LeavingMember
from kafkalake.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    InvalidRequestError,
    KafkaError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)

NAMES_MAX = 10_000
"""Maximum number of topics in one subscription, which is one journal record."""

REGEXES_MAX = 50
"""Maximum number of different regular expressions of the members of a group. Each is matched against all topics in one step."""


def check_request(request: HeartbeatRequest) -> None:
    """Check a heartbeat's fields independently of the group.

    Raise `InvalidRequestError`, `UnsupportedAssignorError` or `InvalidRegularExpressionError`.
    """
    if len(request.topics or ()) > NAMES_MAX:
        raise InvalidRequestError(f"SubscribedTopicNames has more than {NAMES_MAX} names.")
    for name, value in (
        ("MemberId", request.member_id),
        ("InstanceId", request.group_instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
        if request.topics is None and request.regex is None:
            raise InvalidRequestError(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.group_instance_id is None:
            raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {known}."
        )
    if request.regex:
        check_regex(request.regex)


def admitted(state: ConsumerState, request: HeartbeatRequest) -> str | None:
    """Check the member's identity and epoch, and return the member id that it replaces (a static member that rejoins).

    Raise `UnknownMemberIdError`, `FencedMemberEpochError`, `UnreleasedInstanceIdError` or `FencedInstanceIdError`.
    """
    joins = request.member_epoch == JOIN_EPOCH
    if request.group_instance_id is None:
        if request.member_id in state.subscriptions:
            _check_epoch(state, request)
        elif not joins:
            raise UnknownMemberIdError(f"Member {request.member_id} is not a member of group {state.group_id}.")
        return None
    holder = state.static_member_id(request.group_instance_id)
    if not joins:
        check_holder(request, holder)
        _check_epoch(state, request)
        return None
    if holder is not None and not is_away(state.current(holder)):
        raise UnreleasedInstanceIdError(
            f"Static member {request.member_id} with instance id {request.group_instance_id} cannot join the "
            f"group because the instance id is owned by {holder} member."
        )
    return holder


def check_regexes(state: ConsumerState, before: Subscription | None, subscription: Subscription) -> None:
    """Raise `InvalidRequestError` if a member would add one regular expression too many to those of its group."""
    regex = subscription.regex
    if not regex or (before is not None and before.regex == regex):
        return
    others = {one.regex for one in state.subscriptions.values() if one is not before and one.regex}
    if regex not in others and len(others) >= REGEXES_MAX:
        raise InvalidRequestError(f"The members of a group have at most {REGEXES_MAX} different regular expressions.")


def check_holder(request: HeartbeatRequest, holder: str | None) -> None:
    """Raise unless the request's instance id belongs to its member: `UnknownMemberIdError` or `FencedInstanceIdError`."""
    if holder is None:
        raise UnknownMemberIdError(f"Instance id {request.group_instance_id} is unknown.")
    if holder != request.member_id:
        raise FencedInstanceIdError(
            f"Static member {request.member_id} with instance id {request.group_instance_id} was fenced by "
            f"member {holder}."
        )


def _check_epoch(state: ConsumerState, request: HeartbeatRequest) -> None:
    """Accept the current epoch, or the previous one if the response was lost (`owned` must then be within the assignment)."""
    current = state.current(request.member_id)
    if request.member_epoch == current.epoch:
        return
    lost = request.member_epoch < current.epoch and request.member_epoch == current.previous_epoch
    if not lost or request.owned is None or not request.owned <= current.assigned:
        which = "greater" if request.member_epoch > current.epoch else "smaller"
        raise FencedMemberEpochError(
            f"The consumer group member has a {which} member epoch ({request.member_epoch}) than the one known by the "
            f"group coordinator ({current.epoch}). The member must abandon all its partitions and rejoin."
        )


def updated(before: Subscription | None, request: HeartbeatRequest) -> Subscription:
    """Return the subscription as changed by the request. Fields not sent keep their values."""
    old = before or Subscription(None, None, "", "", (), None, -1, None)
    return Subscription(
        old.group_instance_id if request.group_instance_id is None else request.group_instance_id,
        old.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        old.topics if request.topics is None else tuple(sorted(set(request.topics))),
        old.regex if request.regex is None else request.regex or None,
        old.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        old.assignor if request.assignor is None else request.assignor,
        request.classic,
    )


def leaver(state: ConsumerState, leaving: LeavingMember) -> str | type[KafkaError]:
    """Return the id of a member that an administrator removes, or the error if there is none."""
    member_id, instance_id = leaving
    holder: str | None = member_id
    if instance_id is not None:
        holder = state.static_member_id(instance_id)
        if holder is not None and member_id not in ("", holder):
            return FencedInstanceIdError
    return UnknownMemberIdError if holder is None or holder not in state.subscriptions else holder
