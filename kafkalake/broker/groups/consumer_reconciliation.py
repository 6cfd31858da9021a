"""From what a member has to what it shall have (KIP-848), as one pure step per heartbeat.

A member gives up first and takes afterwards, and takes a partition only when nobody else has it any more:

    Stable ──target changed, something to give up──> UnrevokedPartitions ──member no longer owns it──┐
      │  ^                                                                                           │
      │  └───────────────────────nothing left to wait for────────────────────────────────────────────┤
      └──target changed, something that another member still has──> UnreleasedPartitions <───────────┘

Its epoch becomes the target's as soon as it has nothing more to give up. Example: A has {0, 1}, B joins, targets are A {0} and B
{1}. A is told {0} and stays in its epoch (unrevoked); B gets the new epoch with {} (unreleased); A says that it owns {0}: A
has the new epoch (stable); the next heartbeat of B gets {1} (stable).
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.broker.groups.assignors import NOTHING, Assignment, TopicPartition
from kafkalake.broker.groups.consumer_records import Current, MemberState


def reconciled(
    current: Current,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicPartition], bool],
) -> Current:
    """The member's next step. `owned`: what it says it has (None: it did not say); `is_free`: nobody has the partition."""
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    epoch = current.epoch
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(current.revoking, owned):
            return current
        # It has given up what it had to: the next epoch, and the newest target may already ask for more.
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
