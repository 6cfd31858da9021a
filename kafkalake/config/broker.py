"""All broker settings of kafkalake: Kafka's name, type, default, range and effect here.

`BrokerConfig` has the broker's own settings, with those of a member of a cluster (`config/membership.py`) and of replication
(`config/replication.py`). The defaults of the topic settings (`config/topics.py`) are broker settings, too, and so are those of
Kafka's own parts (`config/accepted.py`). Source of names, types, defaults and ranges: Apache Kafka 4.1, "Broker Configs".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafkalake.config.accepted import ACCEPTED_SETTINGS
from kafkalake.config.replication import ReplicationConfig
from kafkalake.config.setting import (
    INT_MAX,
    LONG_MAX,
    Int,
    Long,
    Names,
    Short,
    Update,
    by_name,
    define,
    settings_of,
)
from kafkalake.config.topics import TOPIC_SETTINGS

_CLUSTER = Update.CLUSTER_WIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ReplicationConfig):
    """The broker's own settings, each with its definition. Fields are Kafka's names with underscores."""

    auto_create_topics_enable: bool = define(
        True, "Whether a Metadata request that allows it creates a topic that is not there."
    )
    auto_create_topics_partitions_per_second: Int = define(
        20,
        "How many partitions a second Metadata requests create, on average over 11 seconds, as Kafka's quota of mutations "
        "counts; a topic beyond it gets LEADER_NOT_AVAILABLE, so that its client asks again. kafkalake's own.",
        minimum=1,
    )
    connection_max_unfinished_ms: Long = define(
        30_000,
        "A connection is closed when a request on it has begun and does not arrive: when less than 64 KiB come in this time. "
        "kafkalake's own.",
        minimum=100,
    )
    connections_max_idle_ms: Long = define(600_000, "A connection on which nothing came for so long is closed.")
    delayed_topic_min_isr: Int = define(
        2, "min.insync.replicas of __delayed when it is created, at most its replicas. kafkalake's own.", minimum=1
    )
    delayed_topic_num_partitions: Int = define(
        50, "Partitions of __delayed when it is created; later changes count for nothing. kafkalake's own.", minimum=1
    )
    delayed_topic_replication_factor: Short = define(
        3,
        "Replicas of __delayed when it is created; until there are as many brokers, it is not, and delayed records are refused. "
        "Where this is not set, no more than there are brokers. kafkalake's own.",
        minimum=1,
    )
    delayed_topic_segment_bytes: Int = define(
        67_108_864, "Segment size of __delayed when it is created. kafkalake's own.", minimum=1
    )
    delete_topic_enable: bool = define(True, "Whether DeleteTopics is allowed.")
    fetch_max_bytes: Int = define(57_671_680, "The most bytes that one Fetch answer holds.", minimum=1_024)
    fetch_wire_cache_bytes: Long = define(
        67_108_864,
        "Memory for producers' original bytes, from which consumers at the tail are answered. kafkalake's own.",
        minimum=0,
    )
    group_consumer_assignors: Names = define(
        "uniform,range",
        "The server-side assignors of the consumer group protocol; the first is used where no member asks for one.",
        choices=("uniform", "range"),
    )
    group_consumer_heartbeat_interval_ms: Int = define(
        5_000, "How often members of the consumer group protocol are told to send a heartbeat.", minimum=1
    )
    group_consumer_max_heartbeat_interval_ms: Int = define(
        15_000, "The most that group.consumer.heartbeat.interval.ms may be.", minimum=1
    )
    group_consumer_max_session_timeout_ms: Int = define(
        60_000, "The most that group.consumer.session.timeout.ms may be.", minimum=1
    )
    group_consumer_max_size: Int = define(INT_MAX, "The most members of one group of the consumer protocol.", minimum=1)
    group_consumer_migration_policy: str = define(
        "bidirectional",
        "Whether a group with members may change its protocol: to the consumer protocol (upgrade) when the first member of that"
        " joins, to the classic one (downgrade) when the last one leaves, both, or neither. An empty group always may.",
        choices=("bidirectional", "disabled", "downgrade", "upgrade"),
    )
    group_consumer_min_heartbeat_interval_ms: Int = define(
        5_000, "The least that group.consumer.heartbeat.interval.ms may be.", minimum=1
    )
    group_consumer_min_session_timeout_ms: Int = define(
        45_000, "The least that group.consumer.session.timeout.ms may be.", minimum=1
    )
    group_consumer_session_timeout_ms: Int = define(
        45_000, "How long a member of the consumer group protocol may be silent before it is out.", minimum=1
    )
    group_coordinator_append_linger_ms: Int = define(
        5,
        "How long what heartbeats of the consumer protocol change waits for others before it is written. Committed offsets are "
        "grouped without waiting.",
        minimum=0,
        maximum=10_000,
    )
    group_coordinator_groups_max: Int = define(
        1_000_000,
        "The most groups of this broker; a further one is refused until others are gone. kafkalake's own.",
        minimum=1,
    )
    group_coordinator_metadata_max_bytes: Long = define(
        268_435_456,
        "The most bytes of members of all groups that are held in memory, about: what they say, their names and assignments (256 "
        "for each partition in the consumer protocol), and the names of the groups; a member or group beyond it has to try again "
        "later. kafkalake's own.",
        minimum=1_048_576,
    )
    group_coordinator_offsets_max_bytes: Long = define(
        1_073_741_824,
        "The most bytes of committed offsets of all groups that are held in memory, about: 512 for each, its topic and its "
        "metadata; what would go beyond it has to try again later, once others have expired or were deleted. kafkalake's own.",
        minimum=1_048_576,
    )
    group_initial_rebalance_delay_ms: Int = define(
        3_000, "How long a new group waits for more members before its first rebalance.", minimum=0
    )
    group_max_session_timeout_ms: Int = define(
        1_800_000, "The longest session timeout that a group member may ask for.", minimum=1
    )
    group_max_size: Int = define(INT_MAX, "The most members of one group.", minimum=1)
    group_member_metadata_max_bytes: Int = define(
        1_048_576,
        "The most bytes that one member of a group says of itself, protocols in JoinGroup or a subscription. kafkalake's own.",
        minimum=1_024,
    )
    group_metadata_max_bytes: Int = define(
        33_554_432,
        "The most bytes of the members of one group held in memory, about 1,024 for each and what it says. kafkalake's own.",
        minimum=1_024,
    )
    group_min_session_timeout_ms: Int = define(
        6_000, "The shortest session timeout that a group member may ask for.", minimum=1
    )
    lake_umask: str | None = define(
        None,
        "Permissions that files and directories of the lake do not get, as `umask` writes them. Where it is not set: 027 for a "
        "new lake, so that users of the same group read it, and as `metadata` has it for one that is there. kafkalake's own.",
    )
    lease_duration_ms: Long = define(
        30_000, "How long this broker's lease of the lake lasts without being renewed. kafkalake's own.", minimum=1_000
    )
    lease_wait_ms: Long = define(
        120_000,
        "How long a start waits for the lease of a broker that may still run on another machine. kafkalake's own.",
        minimum=0,
    )
    log_flush_scheduler_interval_ms: Long = define(LONG_MAX, "Default of log.flush.interval.ms where that is not set.")
    log_initial_task_delay_ms: Long = define(
        30_000, "How long after its start the broker first looks for segments that retention removes.", minimum=0
    )
    log_level: str = define(
        "info",
        "What goes to stderr: debug, info, warning, error; debug has each request of connections made since. kafkalake's own.",
        choices=("debug", "info", "warning", "error"),
        update=_CLUSTER,
    )
    log_retention_check_interval_ms: Long = define(
        300_000,
        "How often the broker looks for segments that retention.ms and retention.bytes no longer keep, and removes them.",
        minimum=1,
    )
    log_retention_hours: Int = define(168, "Default of log.retention.ms, in hours, where no finer setting is given.")
    log_retention_minutes: Int | None = define(None, "Default of log.retention.ms, in minutes, where that is not set.")
    log_roll_hours: Int = define(168, "Default of log.roll.ms, in hours, where that is not set.", minimum=1)
    max_connections: Int = define(
        INT_MAX,
        "The most connections at one time; a further one is closed at once, but for one from this machine's loopback address.",
        minimum=1,
        update=_CLUSTER,
    )
    max_connections_per_ip: Int = define(
        INT_MAX,
        "The most connections at one time from one address; a further one is closed at once.",
        minimum=1,
        update=_CLUSTER,
    )
    max_incremental_fetch_session_cache_slots: Int = define(
        1_000, "The most fetch sessions that are remembered.", minimum=0
    )
    max_incremental_fetch_session_partitions: Int = define(
        200_000,
        "The most partitions that all fetch sessions remember together; a client without a session asks for everything each "
        "time. kafkalake's own.",
        minimum=0,
    )
    max_message_uncompressed_bytes: Int = define(
        -1,
        "The most bytes that the records of one compressed batch may have when decompressed, and never less than the topic's "
        "max.message.bytes. -1: ten times max.message.bytes, at least 16 MiB, at most socket.request.max.bytes. kafkalake's "
        "own.",
        minimum=-1,
    )
    max_partitions: Int = define(
        50_000,
        "The most partitions of this broker, without its internal topics; who creates more gets POLICY_VIOLATION. kafkalake's "
        "own.",
        minimum=1,
        update=_CLUSTER,
    )
    max_request_partition_size_limit: Int = define(
        2_000, "The most partitions in one answer to DescribeTopicPartitions.", minimum=1
    )
    max_request_response_bytes: Int = define(
        104_857_600,
        "The largest answer to a request other than Fetch; a request with a larger one closes its connection. kafkalake's own.",
        minimum=65_536,
    )
    metadata_maintenance_interval_ms: Long = define(
        3_600_000,
        "The broker removes old log entries and files of the metadata tables so often. kafkalake's own.",
        minimum=100,
    )
    metadata_publish_interval_ms: Long = define(
        1_000, "State of the partitions goes to Delta at most once in this time. kafkalake's own.", minimum=1
    )
    metadata_retention_ms: Long = define(
        86_400_000,
        "How long the state of topics in the past can be read (time travel): old versions of the table partitions stay so long,"
        " those of segments a day longer. kafkalake's own.",
        minimum=1_000,
        update=_CLUSTER,
    )
    num_partitions: Int = define(1, "Partitions of a topic that is created without saying.", minimum=1)
    offset_metadata_max_bytes: Int = define(4_096, "The longest metadata of a committed offset.", minimum=0)
    offsets_retention_check_interval_ms: Long = define(
        600_000, "How often committed offsets are looked through for ones that have expired.", minimum=1
    )
    offsets_retention_minutes: Int = define(
        10_080, "How long a group's committed offsets are kept once it is empty.", minimum=1
    )
    offsets_topic_num_partitions: Int = define(
        50, "Partitions of __consumer_offsets when it is created; later changes count for nothing.", minimum=1
    )
    offsets_topic_replication_factor: Short = define(
        3,
        "Replicas of __consumer_offsets when it is created; until there are as many brokers, it is not, and groups wait. Where "
        "this is not set, no more than there are brokers.",
        minimum=1,
    )
    offsets_topic_segment_bytes: Int = define(
        104_857_600, "Segment size of __consumer_offsets when it is created.", minimum=1
    )
    open_files_max: Int = define(
        8_192,
        "Files of logs held open at one time; at most half of the descriptors. A partition that is appended to needs two. "
        "kafkalake's own.",
        minimum=16,
    )
    producer_id_expiration_ms: Int = define(
        86_400_000, "An idempotent producer that was silent for so long is forgotten.", minimum=1, update=_CLUSTER
    )
    queued_max_request_bytes: Long = define(
        -1,
        "Memory for requests of all connections: those that are arriving, and batches on their way into the logs. What exceeds "
        "it is not read until there is room. -1: a quarter of the machine's memory.",
        minimum=-1,
    )
    queued_max_response_bytes: Long = define(
        -1,
        "Memory for answers that clients have not read yet, over all connections. Answers become smaller as it is used up, and "
        "in the end a client that does not read is disconnected. -1: an eighth of the machine's memory. kafkalake's own.",
        minimum=-1,
    )
    request_timeout_ms: Int = define(
        30_000, "How long the broker waits for the metadata store before it answers with an error."
    )
    shutdown_timeout_ms: Long = define(
        20_000, "How long a graceful stop may take in all. kafkalake's own.", minimum=100
    )
    socket_listen_backlog_size: Int = define(50, "Connections that may wait to be accepted.", minimum=1)
    socket_request_max_bytes: Int = define(104_857_600, "The largest request that is taken.", minimum=1)
    staged_append_max_bytes: Long = define(
        64 << 30, "The most bytes that one job of Spark's may have appended at once. kafkalake's own.", minimum=1_024
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = define(
        10_000,
        "How often leaders look for transactions that no coordinator knows. Kafka looks for those whose time is up; here each is "
        "aborted at its time.",
        minimum=1,
    )
    transaction_max_timeout_ms: Int = define(
        900_000, "The longest transaction timeout that a producer may ask for.", minimum=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = define(
        3_600_000, "How often transactional ids that have expired are looked for.", minimum=1
    )
    transaction_state_log_min_isr: Int = define(
        2, "The min.insync.replicas of __transaction_state when it is created.", minimum=1
    )
    transaction_state_log_num_partitions: Int = define(
        50, "Partitions of __transaction_state when it is created.", minimum=1
    )
    transaction_state_log_replication_factor: Short = define(
        3,
        "Replicas of __transaction_state when it is created; until there are as many brokers, it is not, and transactions wait. "
        "Where this is not set, no more than there are brokers.",
        minimum=1,
    )
    transaction_state_log_segment_bytes: Int = define(
        104_857_600, "Segment size of __transaction_state when it is created.", minimum=1
    )
    transactional_id_expiration_ms: Int = define(
        604_800_000,
        "A transactional id that is not used for so long, and has no open transaction, is forgotten.",
        minimum=1,
    )
    transactional_ids_max: Int = define(
        1_000_000,
        "The most transactional ids of this broker; a further one is refused until others expire. kafkalake's own.",
        minimum=1,
    )


# Broker defaults that may be absent. Then a coarser setting or the topic setting's default applies.
_NULLABLE_TOPIC_DEFAULTS = (
    "internal.segment.bytes",
    "log.flush.interval.ms",
    "log.retention.ms",
    "log.roll.ms",
    "log.roll.jitter.ms",
)

_TOPIC_DEFAULTS = tuple(
    replace(
        setting,
        name=setting.broker_name,
        broker_name=None,
        default=None if setting.broker_name in _NULLABLE_TOPIC_DEFAULTS else setting.default,
        documentation=f"Default of the topic setting {setting.name}. {setting.documentation}",
        nullable=setting.broker_name in _NULLABLE_TOPIC_DEFAULTS,
    )
    for setting in TOPIC_SETTINGS.values()
    if setting.broker_name is not None
)

BROKER_SETTINGS = by_name((*settings_of(BrokerConfig), *ACCEPTED_SETTINGS, *_TOPIC_DEFAULTS))
"""Broker settings by name, including the defaults of the topic settings."""

TOPIC_NAME_OF_BROKER_NAME: dict[str, str] = {
    setting.broker_name: setting.name for setting in TOPIC_SETTINGS.values() if setting.broker_name is not None
}
"""Broker setting -> topic setting whose default it is."""
