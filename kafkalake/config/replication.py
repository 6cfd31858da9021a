"""The settings of replication: how a broker fetches the partitions that it follows, and when a replica is no longer in sync."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.config.membership import MembershipConfig
from kafkalake.config.setting import Int, Long, Update, define

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig(MembershipConfig):
    """Settings with their definitions. Fields are Kafka's names with underscores."""

    follower_replication_throttled_rate: Long | None = define(
        None,
        "The limit on the bytes a second that this broker fetches of replicas in follower.replication.throttled.replicas.",
        minimum=0,
        update=Update.PER_BROKER,
        hidden=True,
    )
    leader_replication_throttled_rate: Long | None = define(
        None,
        "The limit on the bytes a second that this broker sends of replicas in leader.replication.throttled.replicas.",
        minimum=0,
        update=Update.PER_BROKER,
        hidden=True,
    )
    num_replica_fetchers: Int = define(
        1,
        "Connections by which this broker fetches from each broker whose partitions it follows. A change concerns the "
        "partitions that are followed anew.",
        minimum=1,
        maximum=16,
        update=Update.CLUSTER_WIDE,
    )
    replica_fetch_backoff_ms: Int = define(
        1_000,
        "The longest pause before a follower fetches again after an error. The first pause is 50 ms, and it doubles.",
        minimum=0,
    )
    replica_fetch_max_bytes: Int = define(
        1_048_576,
        "The most bytes of one partition that a follower fetches at once; a first message that is larger comes whole.",
        minimum=0,
    )
    replica_fetch_min_bytes: Int = define(
        1, "The least bytes for which a follower's request waits at the leader.", minimum=0
    )
    replica_fetch_response_max_bytes: Int = define(
        10_485_760, "The most bytes in one answer to a follower.", minimum=0, maximum=134_217_728
    )
    replica_fetch_wait_max_ms: Int = define(
        500, "The longest wait of a follower's request at the leader.", minimum=0, maximum=60_000
    )
    replica_lag_time_max_ms: Long = define(
        30_000,
        "A follower that has not had all of the leader's records within this time leaves the in-sync replicas.",
        minimum=1,
    )
    replica_selector_class: str | None = define(
        None,
        "Where it is set to Kafka's RackAwareReplicaSelector, a leader sends consumers with client.rack to a follower in the ISR "
        "whose broker.rack is theirs. No other class is known.",
        choices=(RACK_AWARE_SELECTOR,),
    )
    replica_socket_timeout_ms: Int = define(
        30_000, "How long a follower waits for an answer of the leader, at least replica.fetch.wait.max.ms.", minimum=1
    )
