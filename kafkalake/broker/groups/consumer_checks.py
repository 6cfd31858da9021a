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
from kafkalake.errors import InvalidRequestError, UnsupportedAssignorError

NAMES_MAX = 10_000
"""Maximum number of topics in one subscription, which is one journal record."""


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
