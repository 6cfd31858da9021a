"""Every setting that kafkalake knows: Kafka's name, type, default, range and what it does here.

Data only; `config.py` parses and holds the values. A topic setting names the broker setting that is its default, as Kafka
does. Settings of Kafka that tools commonly set but that change nothing here are listed too, so that those tools work; their
documentation says so. Source of names, types, defaults and ranges: Apache Kafka 4.1, "Broker Configs" and "Topic Configs".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = bool | int | float | str | None


class Kind(Enum):
    """The type of a setting; the value is the number that DescribeConfigs sends for it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Update(Enum):
    """When a broker setting may change, as Kafka's documentation calls it."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: how its value is read and checked, and what it means.

    `minimum` / `maximum` bound numbers, `choices` strings and the members of lists. `broker_name` (topic settings only) is the
    broker setting that gives the default, None where there is none.
    """

    name: str
    kind: Kind
    default: Value
    documentation: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    update: Update = Update.READ_ONLY
    broker_name: str | None = None
    nullable: bool = False


_COMPRESSION = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_NO_EFFECT = " Accepted for Kafka's tools; changes nothing here yet."


def _topic(
    name: str, broker_name: str | None, kind: Kind, default: Value, documentation: str, **bounds: object
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        documentation=documentation,
        broker_name=broker_name,
        update=Update.CLUSTER_WIDE,
        **bounds,  # type: ignore[arg-type]
    )


TOPIC_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        _topic(
            "cleanup.policy",
            "log.cleanup.policy",
            Kind.LIST,
            "delete",
            "What happens to old segments: delete, compact or both." + _NO_EFFECT,
            choices=("compact", "delete"),
        ),
        _topic(
            "compression.type",
            "compression.type",
            Kind.STRING,
            "producer",
            "Codec in which records are sent to consumers; 'producer' keeps what the producer chose.",
            choices=_COMPRESSION,
        ),
        _topic(
            "compression.gzip.level",
            "compression.gzip.level",
            Kind.INT,
            -1,
            "Level of gzip where compression.type is gzip (1 to 9, -1 for its default)." + _NO_EFFECT,
            minimum=-1,
            maximum=9,
        ),
        _topic(
            "compression.lz4.level",
            "compression.lz4.level",
            Kind.INT,
            9,
            "Level of lz4 where compression.type is lz4." + _NO_EFFECT,
            minimum=1,
            maximum=17,
        ),
        _topic(
            "compression.zstd.level",
            "compression.zstd.level",
            Kind.INT,
            3,
            "Level of zstd where compression.type is zstd." + _NO_EFFECT,
            minimum=-131072,
            maximum=22,
        ),
        _topic(
            "delete.retention.ms",
            "log.cleaner.delete.retention.ms",
            Kind.LONG,
            86_400_000,
            "How long a tombstone is kept in a compacted topic." + _NO_EFFECT,
            minimum=0,
        ),
        _topic(
            "file.delete.delay.ms",
            "log.segment.delete.delay.ms",
            Kind.LONG,
            60_000,
            "How long the file of a removed segment stays before it is deleted.",
            minimum=0,
        ),
        _topic(
            "flush.messages",
            "log.flush.interval.messages",
            Kind.LONG,
            LONG_MAX,
            "fsync after so many records; with 1 each append is on the disk before it is acknowledged.",
            minimum=1,
        ),
        _topic(
            "flush.ms",
            "log.flush.interval.ms",
            Kind.LONG,
            LONG_MAX,
            "fsync at the latest so many milliseconds after a record was appended.",
            minimum=0,
        ),
        _topic(
            "follower.replication.throttled.replicas",
            None,
            Kind.LIST,
            "",
            "Replicas throttled on the follower's side." + _NO_EFFECT,
        ),
        _topic(
            "index.interval.bytes",
            "log.index.interval.bytes",
            Kind.INT,
            4096,
            "Bytes of records between two entries of the offset index.",
            minimum=0,
        ),
        _topic(
            "leader.replication.throttled.replicas",
            None,
            Kind.LIST,
            "",
            "Replicas throttled on the leader's side." + _NO_EFFECT,
        ),
        _topic(
            "local.retention.bytes",
            "log.local.retention.bytes",
            Kind.LONG,
            -2,
            "Local bytes kept where segments are tiered." + _NO_EFFECT,
            minimum=-2,
        ),
        _topic(
            "local.retention.ms",
            "log.local.retention.ms",
            Kind.LONG,
            -2,
            "Local age kept where segments are tiered." + _NO_EFFECT,
            minimum=-2,
        ),
        _topic(
            "max.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
            Kind.LONG,
            LONG_MAX,
            "The longest time that a record of a compacted topic stays uncompacted." + _NO_EFFECT,
            minimum=1,
        ),
        _topic(
            "max.message.bytes",
            "message.max.bytes",
            Kind.INT,
            1_048_588,
            "The largest record batch that is taken, in bytes, as it comes (compressed).",
            minimum=0,
        ),
        _topic(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            Kind.LONG,
            3_600_000,
            "How far a record's CreateTime may lie in the broker's future.",
            minimum=0,
        ),
        _topic(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            Kind.LONG,
            LONG_MAX,
            "How far a record's CreateTime may lie in the broker's past.",
            minimum=0,
        ),
        _topic(
            "message.timestamp.type",
            "log.message.timestamp.type",
            Kind.STRING,
            "CreateTime",
            "Whether a record's timestamp is the producer's (CreateTime) or the broker's (LogAppendTime).",
            choices=("CreateTime", "LogAppendTime"),
        ),
        _topic(
            "min.cleanable.dirty.ratio",
            "log.cleaner.min.cleanable.ratio",
            Kind.DOUBLE,
            0.5,
            "The uncompacted share of a compacted log from which on it is compacted." + _NO_EFFECT,
            minimum=0,
            maximum=1,
        ),
        _topic(
            "min.compaction.lag.ms",
            "log.cleaner.min.compaction.lag.ms",
            Kind.LONG,
            0,
            "The shortest time that a record stays uncompacted." + _NO_EFFECT,
            minimum=0,
        ),
        _topic(
            "min.insync.replicas",
            "min.insync.replicas",
            Kind.INT,
            1,
            "In-sync replicas that acks=all asks for, but no more than there are replicas.",
            minimum=1,
        ),
        _topic(
            "preallocate",
            "log.preallocate",
            Kind.BOOLEAN,
            False,
            "Whether the file of a new segment is allocated in full." + _NO_EFFECT,
        ),
        _topic(
            "remote.log.copy.disable",
            None,
            Kind.BOOLEAN,
            False,
            "Whether tiering copies no more segments." + _NO_EFFECT,
        ),
        _topic(
            "remote.log.delete.on.disable",
            None,
            Kind.BOOLEAN,
            False,
            "Whether tiered segments go when tiering is switched off." + _NO_EFFECT,
        ),
        _topic("remote.storage.enable", None, Kind.BOOLEAN, False, "Whether segments are tiered." + _NO_EFFECT),
        _topic(
            "retention.bytes",
            "log.retention.bytes",
            Kind.LONG,
            -1,
            "Bytes that a partition keeps before its oldest segments go; -1 for no limit." + _NO_EFFECT,
        ),
        _topic(
            "retention.ms",
            "log.retention.ms",
            Kind.LONG,
            604_800_000,
            "How long records are kept; -1 for ever." + _NO_EFFECT,
            minimum=-1,
        ),
        _topic(
            "segment.bytes",
            "log.segment.bytes",
            Kind.INT,
            1_073_741_824,
            "The size at which a segment is sealed and a new one begun.",
            minimum=14,
        ),
        _topic(
            "segment.compression",
            "log.segment.compression",
            Kind.STRING,
            "none",
            "Codec of the Arrow bodies in the segment files; independent of what travels on the wire.",
            choices=("none", "lz4", "zstd"),
        ),
        _topic(
            "segment.index.bytes",
            "log.index.size.max.bytes",
            Kind.INT,
            10_485_760,
            "The largest size of an offset index." + _NO_EFFECT,
            minimum=4,
        ),
        _topic(
            "segment.jitter.ms",
            "log.roll.jitter.ms",
            Kind.LONG,
            0,
            "The largest random time taken off segment.ms." + _NO_EFFECT,
            minimum=0,
        ),
        _topic(
            "segment.ms",
            "log.roll.ms",
            Kind.LONG,
            604_800_000,
            "The age at which a segment is sealed, however small it is.",
            minimum=1,
        ),
        _topic(
            "unclean.leader.election.enable",
            "unclean.leader.election.enable",
            Kind.BOOLEAN,
            False,
            "Whether a replica that is not in sync may become leader." + _NO_EFFECT,
        ),
    )
}
"""Topic settings by name."""

_CLUSTER, _READ_ONLY = Update.CLUSTER_WIDE, Update.READ_ONLY


def _broker(
    name: str, kind: Kind, default: Value, documentation: str, update: Update = Update.READ_ONLY, **bounds: object
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        documentation=documentation,
        update=update,
        **bounds,  # type: ignore[arg-type]
    )


_OWN_BROKER_SETTINGS = (
    _broker(
        "advertised.listeners",
        Kind.STRING,
        None,
        "What clients are told to connect to, PLAINTEXT://HOST:PORT; where it is not set, the address that is listened on, "
        "or the machine's name where that is every address.",
        nullable=True,
    ),
    _broker(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether a Metadata request that allows it creates a topic that is not there.",
    ),
    _broker("broker.rack", Kind.STRING, None, "The rack that this broker reports.", nullable=True),
    _broker("connections.max.idle.ms", Kind.LONG, 600_000, "A connection on which nothing came for so long is closed."),
    _broker("default.replication.factor", Kind.INT, 1, "Replicas of a topic that is created without saying."),
    _broker("delete.topic.enable", Kind.BOOLEAN, True, "Whether DeleteTopics is allowed."),
    _broker("fetch.max.bytes", Kind.INT, 57_671_680, "The most bytes that one Fetch answer holds.", minimum=1024),
    _broker(
        "fetch.wire.cache.bytes",
        Kind.LONG,
        67_108_864,
        "Memory for producers' original bytes, from which consumers at the tail are answered. kafkalake's own.",
        minimum=0,
    ),
    _broker(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3_000,
        "How long a new group waits for more members before its first rebalance.",
        minimum=0,
    ),
    _broker(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "The longest session timeout that a group member may ask for.",
        minimum=1,
    ),
    _broker("group.max.size", Kind.INT, INT_MAX, "The most members of one group.", minimum=1),
    _broker(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        "The shortest session timeout that a group member may ask for.",
        minimum=1,
    ),
    _broker(
        "lease.duration.ms",
        Kind.LONG,
        30_000,
        "How long this broker's lease of the lake lasts without being renewed. kafkalake's own.",
        minimum=1_000,
    ),
    _broker(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        LONG_MAX,
        "Default of log.flush.interval.ms where that is not set.",
    ),
    _broker(
        "log.retention.hours", Kind.INT, 168, "Default of log.retention.ms, in hours, where no finer setting is given."
    ),
    _broker(
        "log.retention.minutes",
        Kind.INT,
        None,
        "Default of log.retention.ms, in minutes, where that is not set.",
        nullable=True,
    ),
    _broker("log.roll.hours", Kind.INT, 168, "Default of log.roll.ms, in hours, where that is not set.", minimum=1),
    _broker(
        "max.connections",
        Kind.INT,
        INT_MAX,
        "The most connections at one time; a further one is closed at once.",
        _CLUSTER,
        minimum=0,
    ),
    _broker(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        "The most connections at one time from one address; a further one is closed at once.",
        _CLUSTER,
        minimum=0,
    ),
    _broker(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "The most fetch sessions that are remembered.",
        minimum=0,
    ),
    _broker(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "The most partitions in one answer to DescribeTopicPartitions.",
        minimum=1,
    ),
    _broker(
        "metadata.publish.interval.ms",
        Kind.LONG,
        1000,
        "State of the partitions goes to Delta at most once in this time. kafkalake's own.",
        minimum=1,
    ),
    _broker("num.partitions", Kind.INT, 1, "Partitions of a topic that is created without saying.", minimum=1),
    _broker(
        "offset.metadata.max.bytes",
        Kind.INT,
        4_096,
        "The longest metadata of a committed offset.",
        minimum=0,
    ),
    _broker(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often committed offsets are looked through for ones that have expired.",
        minimum=1,
    ),
    _broker(
        "offsets.retention.minutes",
        Kind.INT,
        10_080,
        "How long a group's committed offsets are kept once it is empty.",
        minimum=1,
    ),
    _broker(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        "Partitions of __consumer_offsets when it is created; later changes count for nothing.",
        minimum=1,
    ),
    _broker(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        1,
        "Replicas of __consumer_offsets." + _NO_EFFECT,
        minimum=1,
    ),
    _broker(
        "offsets.topic.segment.bytes",
        Kind.INT,
        104_857_600,
        "Segment size of __consumer_offsets when it is created.",
        minimum=1,
    ),
    _broker(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "An idempotent producer that was silent for so long is forgotten.",
        _CLUSTER,
        minimum=1,
    ),
    _broker(
        "request.timeout.ms",
        Kind.INT,
        30_000,
        "How long the broker waits for the metadata store before it answers with an error.",
    ),
    _broker(
        "shutdown.timeout.ms",
        Kind.LONG,
        20_000,
        "How long a graceful stop may take in all. kafkalake's own.",
        minimum=100,
    ),
    _broker(
        "socket.listen.backlog.size",
        Kind.INT,
        50,
        "Connections that may wait to be accepted.",
        minimum=1,
    ),
    _broker("socket.request.max.bytes", Kind.INT, 104_857_600, "The largest request that is taken.", minimum=1),
    _broker(
        "open.files.max",
        Kind.INT,
        1_000,
        "Segment files that are held open at one time, over all partitions. kafkalake's own.",
        minimum=16,
    ),
    _broker(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "The longest transaction timeout that a producer may ask for.",
        minimum=1,
    ),
    _broker(
        "log.level",
        Kind.STRING,
        "info",
        "What goes to stderr: debug, info, warning, error. kafkalake's own.",
        choices=("debug", "info", "warning", "error"),
    ),
)

# Defaults on the broker that may be absent, and what then counts.
_NULLABLE_TOPIC_DEFAULTS = ("log.flush.interval.ms", "log.retention.ms", "log.roll.ms", "log.roll.jitter.ms")

_TOPIC_DEFAULTS = tuple(
    Setting(
        name=setting.broker_name,
        kind=setting.kind,
        default=None if setting.broker_name in _NULLABLE_TOPIC_DEFAULTS else setting.default,
        documentation=f"Default of the topic setting {setting.name}. {setting.documentation}",
        minimum=setting.minimum,
        maximum=setting.maximum,
        choices=setting.choices,
        update=_CLUSTER,
        nullable=setting.broker_name in _NULLABLE_TOPIC_DEFAULTS,
    )
    for setting in TOPIC_SETTINGS.values()
    if setting.broker_name is not None
)

BROKER_SETTINGS: dict[str, Setting] = {
    setting.name: setting for setting in sorted(_OWN_BROKER_SETTINGS + _TOPIC_DEFAULTS, key=lambda each: each.name)
}
"""Broker settings by name, the defaults of the topic settings among them."""

TOPIC_NAME_OF_BROKER_NAME: dict[str, str] = {
    setting.broker_name: setting.name for setting in TOPIC_SETTINGS.values() if setting.broker_name is not None
}
"""The topic setting whose default a broker setting is."""
