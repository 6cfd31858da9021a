"""Broker settings of Apache Kafka without effect here: the accepted ones and the rejected ones.

Kafka's tools and its `server.properties` set threads, buffers and intervals of Kafka's own components. These settings are accepted,
described with Kafka's defaults, and change nothing. Settings that promise a feature, such as encryption or a limit, are rejected
by name with the reason, so that users do not rely on a missing feature. Source: Apache Kafka 4.1, "Broker Configs".
"""

from __future__ import annotations

from kafkalake.config.setting import LONG_MAX, NO_EFFECT, Kind, Setting, Update, Value

_CLUSTER = Update.CLUSTER_WIDE

_ACCEPTED: dict[str, tuple[tuple[str, Kind, Value] | tuple[str, Kind, Value, Update], ...]] = {
    "The directory of the logs, which is in the lake that is given with --lake.": (
        ("log.dir", Kind.STRING, None),
        ("log.dirs", Kind.STRING, None),
    ),
    "The order in which Kafka opens its listeners.": (("early.start.listeners", Kind.STRING, None),),
    "Threads of Kafka's broker.": (
        ("background.threads", Kind.INT, 10, _CLUSTER),
        ("num.io.threads", Kind.INT, 8, _CLUSTER),
        ("num.network.threads", Kind.INT, 3, _CLUSTER),
        ("num.recovery.threads.per.data.dir", Kind.INT, 2, _CLUSTER),
        ("num.replica.alter.log.dirs.threads", Kind.INT, None),
    ),
    "The limit on copying between log directories; here there is one.": (
        ("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, LONG_MAX, Update.PER_BROKER),
    ),
    "Kafka's log cleaner; here a job compacts.": (
        ("log.cleaner.backoff.ms", Kind.LONG, 15_000, _CLUSTER),
        ("log.cleaner.dedupe.buffer.size", Kind.LONG, 134_217_728, _CLUSTER),
        ("log.cleaner.enable", Kind.BOOLEAN, True),
        ("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, _CLUSTER),
        ("log.cleaner.io.buffer.size", Kind.INT, 524_288, _CLUSTER),
        ("log.cleaner.threads", Kind.INT, 1, _CLUSTER),
    ),
    "Intervals of Kafka's log manager.": (
        ("log.dir.failure.timeout.ms", Kind.LONG, 30_000),
        ("log.flush.offset.checkpoint.interval.ms", Kind.INT, 60_000),
        ("log.flush.start.offset.checkpoint.interval.ms", Kind.INT, 60_000),
        ("log.roll.jitter.hours", Kind.INT, 0),
    ),
    "Kafka's quorum of controllers and its log; here the controller is elected and decides by commits to the lake.": (
        ("controller.performance.always.log.threshold.ms", Kind.LONG, 2_000),
        ("controller.performance.sample.period.ms", Kind.LONG, 60_000),
        ("controller.quorum.append.linger.ms", Kind.INT, 25),
        ("controller.quorum.bootstrap.servers", Kind.LIST, ""),
        ("controller.quorum.election.backoff.max.ms", Kind.INT, 1_000),
        ("controller.quorum.fetch.timeout.ms", Kind.INT, 2_000),
        ("controller.quorum.request.timeout.ms", Kind.INT, 2_000),
        ("controller.quorum.retry.backoff.ms", Kind.INT, 20),
        ("controller.quorum.voters", Kind.LIST, ""),
        ("controller.socket.timeout.ms", Kind.INT, 30_000),
        ("metadata.log.dir", Kind.STRING, None),
        ("metadata.log.max.record.bytes.between.snapshots", Kind.LONG, 20_971_520),
        ("metadata.log.max.snapshot.interval.ms", Kind.LONG, 3_600_000),
        ("metadata.log.segment.bytes", Kind.INT, 1_073_741_824),
        ("metadata.log.segment.ms", Kind.LONG, 604_800_000),
        ("metadata.max.idle.interval.ms", Kind.INT, 500),
        ("metadata.max.retention.bytes", Kind.LONG, 104_857_600),
        ("metadata.max.retention.ms", Kind.LONG, 604_800_000),
        ("server.max.startup.time.ms", Kind.LONG, LONG_MAX),
        ("unclean.leader.election.interval.ms", Kind.LONG, 300_000),
    ),
    "Parts of Kafka's replication; the high watermark here is written whenever it moves.": (
        ("replica.high.watermark.checkpoint.interval.ms", Kind.LONG, 5_000),
        ("replica.socket.receive.buffer.bytes", Kind.INT, 65_536),
        ("share.coordinator.state.topic.min.isr", Kind.SHORT, 2),
        ("share.coordinator.state.topic.replication.factor", Kind.SHORT, 3),
    ),
    "Buffers and queues of Kafka's broker.": (
        ("delete.records.purgatory.purge.interval.requests", Kind.INT, 1),
        ("fetch.purgatory.purge.interval.requests", Kind.INT, 1_000),
        ("offsets.commit.timeout.ms", Kind.INT, 5_000),
        ("offsets.load.buffer.size", Kind.INT, 5_242_880),
        ("offsets.topic.compression.codec", Kind.INT, 0),
        ("producer.purgatory.purge.interval.requests", Kind.INT, 1_000),
        ("queued.max.requests", Kind.INT, 500),
        ("socket.receive.buffer.bytes", Kind.INT, 102_400),
        ("socket.send.buffer.bytes", Kind.INT, 102_400),
        ("transaction.partition.verification.enable", Kind.BOOLEAN, True, _CLUSTER),
        ("transaction.state.log.load.buffer.size", Kind.INT, 5_242_880),
    ),
}

ACCEPTED_SETTINGS: tuple[Setting, ...] = tuple(
    Setting(
        name=name,
        kind=kind,
        default=default,
        documentation=documentation + NO_EFFECT,
        update=update[0] if update else Update.READ_ONLY,
        nullable=default is None,
    )
    for documentation, settings in _ACCEPTED.items()
    for name, kind, default, *update in settings
)

_REFUSED = {
    "there is no encryption and no authentication": (
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "listener.name.",
        "principal.builder.class",
        "sasl.",
        "security.providers",
        "ssl.",
    ),
    "there is no access control": ("allow.everyone.if.no.acl.found", "authorizer.", "delegation.token.", "super.users"),
    "there is no such quota, or its window is fixed": (
        "alter.log.dirs.replication.quota.",
        "client.quota.",
        "controller.quota.",
        "max.connection.creation.rate",
        "max.connections.per.ip.overrides",
        "quota.",
        "replication.quota.",
    ),
    "the metadata is in the lake's Delta tables": ("zookeeper.",),
    "segments are not tiered": ("remote.",),
    "there are no share groups and no streams groups": ("group.share.", "group.streams."),
    "no classes are loaded": (
        "alter.config.policy.",
        "create.topic.policy.",
        "metric.reporters",
    ),
}
"""Reason -> names, or prefixes if they end with a dot."""


def reason_for_refusal(name: str) -> str:
    """Return the error message for a rejected or unknown broker setting."""
    reason = _reason(name)
    return (
        f"Unknown broker config name: {name}" if reason is None else f"The broker config {name} cannot be set: {reason}"
    )


def is_refused(name: str) -> bool:
    """Return whether Kafka has a broker setting of this name that is rejected here."""
    return _reason(name) is not None


def _reason(name: str) -> str | None:
    for reason, beginnings in _REFUSED.items():
        if any(name == each or (each.endswith(".") and name.startswith(each)) for each in beginnings):
            return reason
    return None
