"""All broker settings of kafkalake: Kafka's name, type, default, range and effect here.

Data only. `config/broker.py` parses and stores the values. The defaults of the topic settings (`config/topics.py`) are broker
settings, too. Source of names, types, defaults and ranges: Apache Kafka 4.1, "Broker Configs".
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalake.config.accepted import ACCEPTED_SETTINGS
from kafkalake.config.groups import GROUP_CONSUMER_SETTINGS
from kafkalake.config.setting import INT_MAX, LONG_MAX, NO_EFFECT, Kind, Setting, Update, Value
from kafkalake.config.topics import TOPIC_SETTINGS

__all__ = [
    "BROKER_SETTINGS",
    "INT_MAX",
    "LONG_MAX",
    "TOPIC_NAME_OF_BROKER_NAME",
    "TOPIC_SETTINGS",
    "Kind",
    "Setting",
    "Update",
    "Value",
]

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


_GIVEN_SETTINGS = (
    _broker("broker.id", Kind.INT, None, "The id of this broker.", option="--broker-id", nullable=True),
    _broker("listeners", Kind.STRING, None, "Where the broker listens.", option="--listen", nullable=True),
    _broker("log.dirs", Kind.STRING, None, "Where the broker's logs are.", option="--lake", nullable=True),
    _broker("node.id", Kind.INT, None, "The id of this broker.", option="--broker-id", nullable=True),
)
"""Settings given by other options of the command line. Described as in Kafka."""

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
    _broker(
        "auto.create.topics.partitions.per.second",
        Kind.INT,
        20,
        "How many partitions a second Metadata requests create, on average over 11 seconds, as Kafka's quota of mutations counts; "
        "a topic beyond it gets LEADER_NOT_AVAILABLE, so that its client asks again. kafkalake's own.",
        minimum=1,
    ),
    _broker("broker.rack", Kind.STRING, None, "The rack that this broker reports.", nullable=True),
    _broker(
        "connection.max.unfinished.ms",
        Kind.LONG,
        30_000,
        "A connection is closed when a request on it has begun and does not arrive: when less than 64 KiB come in this time. "
        "kafkalake's own.",
        minimum=100,
    ),
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
    *GROUP_CONSUMER_SETTINGS,
    _broker(
        "group.coordinator.append.linger.ms",
        Kind.INT,
        5,
        "How long what heartbeats of the consumer protocol change waits for others before it is written. Committed offsets are "
        "grouped without waiting.",
        minimum=0,
        maximum=10_000,
    ),
    _broker(
        "group.coordinator.groups.max",
        Kind.INT,
        1_000_000,
        "The most groups of this broker; a further one is refused until others are gone. kafkalake's own.",
        minimum=1,
    ),
    _broker(
        "group.coordinator.metadata.max.bytes",
        Kind.LONG,
        268_435_456,
        "The most bytes of members of all groups that are held in memory, about: what they say, their names and assignments, "
        "and the names of the groups; a member or group beyond it has to try again later. kafkalake's own.",
        minimum=1_048_576,
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
    _broker(
        "group.member.metadata.max.bytes",
        Kind.INT,
        1_048_576,
        "The most bytes that one member of a group says of itself, protocols in JoinGroup or a subscription. kafkalake's own.",
        minimum=1024,
    ),
    _broker(
        "group.metadata.max.bytes",
        Kind.INT,
        33_554_432,
        "The most bytes of the members of one group held in memory, about 1,024 for each and what it says. kafkalake's own.",
        minimum=1024,
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
        "lake.umask",
        Kind.STRING,
        None,
        "Permissions that files and directories of the lake do not get, as `umask` writes them. Where it is not set: 027 for a new "
        "lake, so that users of the same group read it, and as `metadata` has it for one that is there. kafkalake's own.",
        nullable=True,
    ),
    _broker(
        "lease.duration.ms",
        Kind.LONG,
        30_000,
        "How long this broker's lease of the lake lasts without being renewed. kafkalake's own.",
        minimum=1_000,
    ),
    _broker(
        "lease.wait.ms",
        Kind.LONG,
        120_000,
        "How long a start waits for the lease of a broker that may still run on another machine. kafkalake's own.",
        minimum=0,
    ),
    _broker(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        LONG_MAX,
        "Default of log.flush.interval.ms where that is not set.",
    ),
    _broker(
        "log.initial.task.delay.ms",
        Kind.LONG,
        30_000,
        "How long after its start the broker first looks for segments that retention removes.",
        minimum=0,
    ),
    _broker(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How often the broker looks for segments that retention.ms and retention.bytes no longer keep, and removes them.",
        minimum=1,
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
        "The most connections at one time; a further one is closed at once, but for one from this machine's loopback address.",
        _CLUSTER,
        minimum=1,
    ),
    _broker(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        "The most connections at one time from one address; a further one is closed at once.",
        _CLUSTER,
        minimum=1,
    ),
    _broker(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "The most fetch sessions that are remembered.",
        minimum=0,
    ),
    _broker(
        "max.incremental.fetch.session.partitions",
        Kind.INT,
        200_000,
        "The most partitions that all fetch sessions remember together; a client without a session asks for everything each "
        "time. kafkalake's own.",
        minimum=0,
    ),
    _broker(
        "max.message.uncompressed.bytes",
        Kind.INT,
        -1,
        "The most bytes that the records of one compressed batch may have when decompressed, and never less than the topic's "
        "max.message.bytes. -1: ten times max.message.bytes, at least 16 MiB, at most socket.request.max.bytes. kafkalake's own.",
        minimum=-1,
    ),
    _broker(
        "max.partitions",
        Kind.INT,
        50_000,
        "The most partitions of this broker, without its internal topics; who creates more gets POLICY_VIOLATION. kafkalake's own.",
        _CLUSTER,
        minimum=1,
    ),
    _broker(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "The most partitions in one answer to DescribeTopicPartitions.",
        minimum=1,
    ),
    _broker(
        "max.request.response.bytes",
        Kind.INT,
        104_857_600,
        "The largest answer to a request other than Fetch; a request with a larger one closes its connection. kafkalake's own.",
        minimum=65_536,
    ),
    _broker(
        "metadata.maintenance.interval.ms",
        Kind.LONG,
        3_600_000,
        "The broker removes old log entries and files of the metadata tables so often. kafkalake's own.",
        minimum=100,
    ),
    _broker(
        "metadata.retention.ms",
        Kind.LONG,
        86_400_000,
        "How long the state of topics in the past can be read (time travel): old versions of the table partitions stay so long, "
        "those of segments a day longer. kafkalake's own.",
        Update.CLUSTER_WIDE,
        minimum=1_000,
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
        "Replicas of __consumer_offsets." + NO_EFFECT,
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
        "queued.max.request.bytes",
        Kind.LONG,
        -1,
        "Memory for requests of all connections: those that are arriving, and batches on their way into the logs. "
        "What exceeds it is not read until there is room. -1: a quarter of the machine's memory.",
        minimum=-1,
    ),
    _broker(
        "queued.max.response.bytes",
        Kind.LONG,
        -1,
        "Memory for answers that clients have not read yet, over all connections. Answers become smaller as it is used up, and in "
        "the end a client that does not read is disconnected. -1: an eighth of the machine's memory. kafkalake's own.",
        minimum=-1,
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
        "staged.append.max.bytes",
        Kind.LONG,
        64 << 30,
        "The most bytes that one job of Spark's may have appended at once. kafkalake's own.",
        minimum=1024,
    ),
    _broker(
        "open.files.max",
        Kind.INT,
        1_000,
        "Segment files held open at one time, over all partitions; at most half of the descriptors. kafkalake's own.",
        minimum=16,
    ),
    _broker(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "How often Kafka looks for transactions whose time is up. Here each is aborted at its time, whatever this says.",
        minimum=1,
    ),
    _broker(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "How often transactional ids that have expired are looked for.",
        minimum=1,
    ),
    _broker(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        "Partitions of __transaction_state when it is created.",
        minimum=1,
    ),
    _broker(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        104_857_600,
        "Segment size of __transaction_state when it is created.",
        minimum=1,
    ),
    _broker(
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        "A transactional id that is not used for so long, and has no open transaction, is forgotten.",
        minimum=1,
    ),
    _broker(
        "transactional.ids.max",
        Kind.INT,
        1_000_000,
        "The most transactional ids of this broker; a further one is refused until others expire. kafkalake's own.",
        minimum=1,
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
        "What goes to stderr: debug, info, warning, error; debug has each request of connections made since. kafkalake's own.",
        _CLUSTER,
        choices=("debug", "info", "warning", "error"),
    ),
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
        hidden=setting.hidden,
        allows_empty=setting.allows_empty,
    )
    for setting in TOPIC_SETTINGS.values()
    if setting.broker_name is not None
)


def by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return settings by name, in the order of their names. Raise `ValueError` if a name is defined twice."""
    found: dict[str, Setting] = {}
    for setting in sorted(settings, key=lambda each: each.name):
        if setting.name in found:
            raise ValueError(f"{setting.name} is defined twice")
        found[setting.name] = setting
    return found


BROKER_SETTINGS = by_name(_OWN_BROKER_SETTINGS + _GIVEN_SETTINGS + ACCEPTED_SETTINGS + _TOPIC_DEFAULTS)
"""Broker settings by name, including the defaults of the topic settings."""

TOPIC_NAME_OF_BROKER_NAME: dict[str, str] = {
    setting.broker_name: setting.name for setting in TOPIC_SETTINGS.values() if setting.broker_name is not None
}
"""Broker setting -> topic setting whose default it is."""
