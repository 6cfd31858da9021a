"""The topic settings, each with the broker setting that is its default. Source: Apache Kafka 4.1, "Topic Configs"."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.config.delay_levels import check_level, check_levels
from kafkalake.config.setting import (
    LONG_MAX,
    NO_EFFECT,
    Int,
    Long,
    Names,
    Update,
    by_name,
    define,
    settings_of,
)
from kafkalake.config.throttled_replicas import replicas_check
from kafkalake.config.topic_values import AVRO, JSON, SCHEMA_ID_MAX, check_schema

_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of a topic, each with its definition. Fields are Kafka's names with underscores."""

    cleanup_policy: Names = define(
        "delete",
        "What becomes of old segments: delete, compact (by the compaction job) or both; nothing where it is empty.",
        choices=("compact", "delete"),
        broker_name="log.cleanup.policy",
        allows_empty=True,
    )
    compression_gzip_level: Int = define(
        -1,
        "Level of gzip where compression.type is gzip (1 to 9, -1 for its default)." + NO_EFFECT,
        minimum=-1,
        maximum=9,
        broker_name="compression.gzip.level",
    )
    compression_lz4_level: Int = define(
        9,
        "Level of lz4 where compression.type is lz4." + NO_EFFECT,
        minimum=1,
        maximum=17,
        broker_name="compression.lz4.level",
    )
    compression_type: str = define(
        "producer",
        "Codec in which records are sent to consumers; 'producer' keeps what the producer chose.",
        choices=_CODECS,
        broker_name="compression.type",
    )
    compression_zstd_level: Int = define(
        3,
        "Level of zstd where compression.type is zstd." + NO_EFFECT,
        minimum=-131_072,
        maximum=22,
        broker_name="compression.zstd.level",
    )
    delay_level: str | None = define(
        None,
        "The delay of all records of this topic, which are delivered to delay.target: set by the broker for a topic that "
        "delay.levels of another one names. kafkalake's own.",
        hidden=True,
        check=check_level,
    )
    delay_levels: Names = define(
        "",
        "Delays, such as 5s,1m,2h, each with a topic of its own: a record sent to orders-delay-5s is delivered to the same "
        "partition of orders 5 s later. These topics have as many partitions as this one, and are deleted with it. "
        "kafkalake's own.",
        check=check_levels,
    )
    delay_max_ms: Long = define(
        3_456_000_000,
        "How far in the future a record may be to be delivered, where delayed.delivery.enable is true. kafkalake's own.",
        minimum=0,
    )
    delay_target: str | None = define(
        None,
        "The topic to which the records of this one are delivered after delay.level: set by the broker. kafkalake's own.",
        hidden=True,
    )
    delayed_delivery_enable: bool = define(
        False,
        "Whether records with a header kafkalake-deliver-at (ms since 1970) or kafkalake-delay-ms are delivered then, and "
        "not before. kafkalake's own.",
    )
    delete_protected: bool = define(
        False,
        "Whether neither the topic nor its records can be deleted, by Kafka clients (POLICY_VIOLATION of DeleteTopics and "
        "DeleteRecords) as by DROP TABLE, TRUNCATE TABLE and DELETE below an offset, until this is false again. Retention and "
        "compaction go on, and tombstones are written as other records are. kafkalake's own.",
        broker_name="log.delete.protected",
    )
    delete_retention_ms: Long = define(
        86_400_000,
        "How long a tombstone is kept in a compacted topic.",
        minimum=0,
        broker_name="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: Long = define(
        60_000,
        "How long the file of a removed segment stays before it is deleted. A batch query over a topic that is cleaned may run "
        "so long from its planning on; give topics that are queried for longer more.",
        minimum=0,
        broker_name="log.segment.delete.delay.ms",
    )
    flush_messages: Long = define(
        LONG_MAX,
        "fsync after so many records; with 1 each append is on the disk before it is acknowledged.",
        minimum=1,
        broker_name="log.flush.interval.messages",
    )
    flush_ms: Long = define(
        LONG_MAX,
        "fsync at the latest so many milliseconds after a record was appended.",
        minimum=0,
        broker_name="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: Names = define(
        "",
        "Replicas outside of the ISR that are throttled on the follower's side, as PARTITION:BROKER; *: all of them.",
        check=replicas_check("follower.replication.throttled.replicas"),
    )
    index_interval_bytes: Int = define(
        4_096,
        "Bytes of records between two entries of the offset index.",
        minimum=0,
        broker_name="log.index.interval.bytes",
    )
    internal_segment_bytes: Int | None = define(
        None,
        "Where it is set, it counts instead of segment.bytes: for tests, which want segments below its minimum.",
        minimum=14,
        broker_name="internal.segment.bytes",
        hidden=True,
    )
    key: str | None = define(
        None,
        "The field of value.schema that is the key of records written to the topic as a table. kafkalake's own.",
        hidden=True,
    )
    leader_replication_throttled_replicas: Names = define(
        "",
        "Partitions whose followers outside of the ISR are throttled on the leader's side, as PARTITION:LEADER; *: all of them.",
        check=replicas_check("leader.replication.throttled.replicas"),
    )
    local_retention_bytes: Long = define(
        -2,
        "Local bytes kept where segments are tiered." + NO_EFFECT,
        minimum=-2,
        broker_name="log.local.retention.bytes",
    )
    local_retention_ms: Long = define(
        -2, "Local age kept where segments are tiered." + NO_EFFECT, minimum=-2, broker_name="log.local.retention.ms"
    )
    max_compaction_lag_ms: Long = define(
        LONG_MAX,
        "The longest time that a record of a compacted topic stays uncompacted.",
        minimum=1,
        broker_name="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: Int = define(
        1_048_588,
        "The largest record batch that is taken, in bytes, as it comes (compressed).",
        minimum=0,
        broker_name="message.max.bytes",
    )
    message_timestamp_after_max_ms: Long = define(
        3_600_000,
        "How far a record's CreateTime may lie in the broker's future.",
        minimum=0,
        broker_name="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: Long = define(
        LONG_MAX,
        "How far a record's CreateTime may lie in the broker's past.",
        minimum=0,
        broker_name="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = define(
        "CreateTime",
        "Whether a record's timestamp is the producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = define(
        0.5,
        "The uncompacted share of a compacted log from which on it is compacted.",
        minimum=0,
        maximum=1,
        broker_name="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: Long = define(
        0,
        "The shortest time that a record stays uncompacted.",
        minimum=0,
        broker_name="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: Int = define(
        1,
        "In-sync replicas that acks=all asks for, but no more than there are replicas.",
        minimum=1,
        broker_name="min.insync.replicas",
    )
    preallocate: bool = define(
        False, "Whether the file of a new segment is allocated in full." + NO_EFFECT, broker_name="log.preallocate"
    )
    remote_log_copy_disable: bool = define(False, "Whether tiering copies no more segments." + NO_EFFECT)
    remote_log_delete_on_disable: bool = define(
        False, "Whether tiered segments go when tiering is switched off." + NO_EFFECT
    )
    remote_storage_enable: bool = define(False, "Whether segments are tiered." + NO_EFFECT)
    retention_bytes: Long = define(
        -1,
        "Bytes that a partition keeps before its oldest segments are removed; -1 for no limit.",
        broker_name="log.retention.bytes",
    )
    retention_groups_guard: str = define(
        "warn",
        "What becomes of expired segments that a group with committed offsets has not read yet: off and warn remove them, and "
        "the retention job says so for warn; block keeps them. kafkalake's own.",
        choices=("off", "warn", "block"),
        broker_name="log.retention.groups.guard",
    )
    retention_ms: Long = define(
        604_800_000,
        "How long records are kept before their segments are removed; -1 for ever.",
        minimum=-1,
        broker_name="log.retention.ms",
    )
    segment_bytes: Int = define(
        1_073_741_824,
        "The size at which a segment is sealed and a new one begun.",
        minimum=1_048_576,
        broker_name="log.segment.bytes",
    )
    segment_compression: str = define(
        "none",
        "Codec of the Arrow bodies in the segment files; independent of what travels on the wire.",
        choices=("none", "lz4", "zstd"),
        broker_name="log.segment.compression",
    )
    segment_index_bytes: Int = define(
        10_485_760,
        "The largest size of an offset index." + NO_EFFECT,
        minimum=4,
        broker_name="log.index.size.max.bytes",
    )
    segment_jitter_ms: Long = define(
        0, "The largest random time taken off segment.ms." + NO_EFFECT, minimum=0, broker_name="log.roll.jitter.ms"
    )
    segment_ms: Long = define(
        604_800_000, "The age at which a segment is sealed, however small it is.", minimum=1, broker_name="log.roll.ms"
    )
    unclean_leader_election_enable: bool = define(
        False,
        "Whether a replica that is not in sync becomes the leader where no other can, at the price of records.",
        broker_name="unclean.leader.election.enable",
    )
    value_avro_schema_id: Int | None = define(
        None,
        "Where it is set, values in Avro begin with Confluent's header, a zero byte and four of a schema's id: this one in those "
        "that are written, any in those that are read. kafkalake's own.",
        minimum=0,
        maximum=SCHEMA_ID_MAX,
        hidden=True,
    )
    value_format: str = define(
        JSON,
        "How the fields of value.schema stand in a record's value. kafkalake's own.",
        choices=(JSON, AVRO),
    )
    value_schema: str | None = define(
        None,
        "The fields of the topic's values as Spark's DDL, such as 'user STRING, ms BIGINT', or with value.format=avro as an Avro "
        "schema in JSON: the columns of the topic as a table in Spark, DuckDB and Polars. The broker itself takes any value. "
        "kafkalake's own.",
        hidden=True,
        check=check_schema,
    )

    @property
    def deletes(self) -> bool:
        """Return whether cleanup.policy names delete: retention removes old segments."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Return whether cleanup.policy names compact: records need a key, and the job keeps the newest of each."""
        return "compact" in self.cleanup_policy


TOPIC_SETTINGS = by_name(settings_of(TopicConfig, update=Update.CLUSTER_WIDE))
"""Topic settings by name."""
