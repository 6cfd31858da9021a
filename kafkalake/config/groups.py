"""Settings of the consumer group protocol (KIP-848), under Kafka's names. Data only.

Source: Apache Kafka 4.1, "Broker Configs".
"""

from __future__ import annotations

from kafkalake.config.setting import INT_MAX, Kind, Setting


def _group(name: str, kind: Kind, default: int | str, documentation: str, choices: tuple[str, ...] = ()) -> Setting:
    minimum = 1 if kind is Kind.INT else None
    return Setting(name=name, kind=kind, default=default, documentation=documentation, minimum=minimum, choices=choices)


GROUP_CONSUMER_SETTINGS = (
    _group(
        "group.consumer.assignors",
        Kind.LIST,
        "uniform,range",
        "The server-side assignors of the consumer group protocol; the first is used where no member asks for one.",
        ("uniform", "range"),
    ),
    _group(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        "How often members of the consumer group protocol are told to send a heartbeat.",
    ),
    _group(
        "group.consumer.max.heartbeat.interval.ms",
        Kind.INT,
        15_000,
        "The most that group.consumer.heartbeat.interval.ms may be.",
    ),
    _group(
        "group.consumer.max.session.timeout.ms",
        Kind.INT,
        60_000,
        "The most that group.consumer.session.timeout.ms may be.",
    ),
    _group("group.consumer.max.size", Kind.INT, INT_MAX, "The most members of one group of the consumer protocol."),
    _group(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Whether a group with members may change its protocol: to the consumer protocol (upgrade) when the first member of that "
        "joins, to the classic one (downgrade) when the last one leaves, both, or neither. An empty group always may.",
        ("bidirectional", "disabled", "downgrade", "upgrade"),
    ),
    _group(
        "group.consumer.min.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        "The least that group.consumer.heartbeat.interval.ms may be.",
    ),
    _group(
        "group.consumer.min.session.timeout.ms",
        Kind.INT,
        45_000,
        "The least that group.consumer.session.timeout.ms may be.",
    ),
    _group(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        "How long a member of the consumer group protocol may be silent before it is out.",
    ),
)
