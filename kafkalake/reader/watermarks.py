"""How far the records of a partition may be read, by what the `state` files of its replicas and the published rows say. Pure.

A broker writes the watermark into its `state` before it acknowledges a record, so while it leads, that file is the truth. A new
leader may not know the watermark of the one before. It has all acknowledged records, which are below its log end when its epoch
began (`takeover_offset`), and its own watermark reaches that offset as soon as its followers have fetched. A follower writes its
`state` when its watermark moves, not with each append, so the log end in the `state` of a leader that has not begun says nothing.

    epoch 4, broker 1    high watermark 70, log end 72         acknowledged: offsets below 70
    not begun, broker 2  high watermark 65, log end 65         has them, but its file does not say so: broker 1's is read
    epoch 5, broker 2    high watermark 65, takeover 71        65 may be behind, and 70 is on: at most 71 are read
    a moment later       high watermark 71, takeover 71        the watermark of broker 2 is the truth from now on
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalake.cluster.image import PartitionRegistration
from kafkalake.metadata.tables.schemas import PartitionRow
from kafkalake.storage.state import PartitionState


def has_begun(state: PartitionState, registration: PartitionRegistration) -> bool:
    """Return whether `state`, the leader's, is of its epoch. Before, an earlier leader may have acknowledged more than it says."""
    return state.leader_epoch >= registration.leader_epoch


def is_settled(state: PartitionState, registration: PartitionRegistration) -> bool:
    """Return whether the leader's `state` has the watermark up to which records were acknowledged."""
    if len(registration.replicas) <= 1:
        return True
    return has_begun(state, registration) and state.high_watermark >= state.takeover_offset


def watermark_limit(state: PartitionState, *, leads: bool) -> int:
    """Return an offset that no record acknowledged by earlier leaders reaches, and which the log of `state` has.

    leads: the state is that of a leader which has begun.
    """
    return max(state.high_watermark, state.takeover_offset) if leads else state.log_end_offset


def with_known_watermarks(
    state: PartitionState, known: Iterable[PartitionState | PartitionRow], limit: int
) -> PartitionState:
    """Return a state with the largest watermark and last stable offset that it or `known` has, at most `limit`.

    They are true whoever knows them: both only grow, over all leaders.
    """
    high_watermark, stable = state.high_watermark, state.last_stable_offset
    for each in known:
        high_watermark = max(high_watermark, min(each.high_watermark, limit))
        stable = max(stable, min(each.last_stable_offset, limit))
    return state._replace(high_watermark=high_watermark, last_stable_offset=stable)
