"""A member's convergence from its current assignment to its target (KIP-848), as one pure step per heartbeat.

A member revokes first and receives afterwards, and receives a partition only when no other member has it:

    Stable ──target changed, partitions to revoke──> UnrevokedPartitions ──member no longer owns them────┐
      │  ^                                                                                               │
      │  └───────────────────────nothing left to wait for────────────────────────────────────────────────┤
      └──target changed, a partition that another member still has──> UnreleasedPartitions <─────────────┘

Its epoch becomes the target's as soon as it has nothing more to revoke. Example: A has {0, 1}, B joins, targets are A {0} and B
{1}. A gets {0} and stays in its epoch (unrevoked). B gets the new epoch with {} (unreleased). A reports that it owns {0} and gets
the new epoch (stable). The next heartbeat of B gets {1} (stable).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from kafkalake.broker.groups.assignors import NOTHING, Assignment
from kafkalake.broker.groups.consumer_records import Current, MemberState
from kafkalake.topic_partition import PartitionId


def reconciled(
    current: Current,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[PartitionId[uuid.UUID]], bool],
) -> Current:
    """Return the member's next state. `owned`: the partitions it reports (None: not sent). `is_free`: no member has it."""
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    epoch = current.epoch
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(current.revoking, owned):
            return current
        # Everything was revoked: the next epoch begins, whose target may already require more revocations.
        epoch += 1
    kept = current.assigned & target
    revoking = current.assigned - target
    if revoking and _still_owns(revoking, owned):
        return Current(epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    wanted = target - kept
    free = frozenset(one for one in wanted if is_free(one))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return Current(target_epoch, current.epoch, state, kept | free, NOTHING)


def _still_owns(revoking: Assignment, owned: Assignment | None) -> bool:
    return owned is None or not revoking.isdisjoint(owned)
