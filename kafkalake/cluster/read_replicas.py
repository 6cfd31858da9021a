"""The replica from which a consumer reads (KIP-392), as Kafka's `RackAwareReplicaSelector` selects it."""

from __future__ import annotations

from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.replication import Follower, Leadership


def preferred_read_replica(state: Leadership, image: ClusterImage, listener: str, rack: str, offset: int) -> int | None:
    """Return the follower from which a consumer in `rack` reads `offset`, None: the leader.

    It is in the ISR, has the offset, and has an address at the listener. The leader comes first if it is in the rack, of several
    followers the one that has most.
    """
    leader = image.brokers.get(state.broker_id)
    if not rack or (leader is not None and leader.rack == rack):
        return None

    def is_able(each: Follower) -> bool:
        broker = image.brokers.get(each.broker_id)
        return (
            broker is not None
            and broker.rack == rack
            and each.broker_id in state.isr
            and each.log_start <= offset <= each.log_end
            and image.address(each.broker_id, listener) is not None
        )

    able = [each for each in state.followers if is_able(each)]
    best = max(able, key=lambda each: (each.log_end, each.caught_up_ms, each.broker_id), default=None)
    return None if best is None else best.broker_id
