"""Settings of a Kafka client among the options, `kafka.*`: which are honoured, which change nothing here, and which are refused.

No Kafka client reads or writes here: records are read from the lake's files and written in transactions of the broker. So settings
of connections, of fetches, of batches and of groups change no result. A setting that does change results, or promises security, is
honoured or refused. Spark's Kafka source and sink refuse some of them as well.
Source: Kafka, "Consumer Configs" and "Producer Configs"; Spark, "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping

from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError

logger = logging.getLogger(__name__)

PREFIX = "kafka."
SERVERS = "kafka.bootstrap.servers"
ISOLATION_LEVEL = "kafka.isolation.level"
HONOURED = (SERVERS, ISOLATION_LEVEL)

_SECURING = ("security.", "sasl.", "ssl.")
_UNSECURED = {"security.protocol": "plaintext"}
_REFUSED = {
    "auto.offset.reset": "startingOffsets says where a query begins, and failOnDataLoss what it does where records are gone",
    "enable.auto.commit": "the option group commits what a stream has read",
    "key.deserializer": "keys are binary, and read by the query, as in CAST(key AS STRING)",
    "value.deserializer": "values are binary, and read by the query or by valueSchema",
    "key.serializer": "keys are strings or binary, and made by the query",
    "value.serializer": "values are strings or binary, and made by the query or by valueSchema",
    "interceptor.classes": "no Java class of a client sees the records",
    "partitioner.class": "a record goes to the partition of its column partition, or else of its key, as by Kafka's default",
    "transactional.id": "every write is one transaction; txnAppId and txnVersion make one that may be repeated",
}
"""Setting -> what is to be used instead."""
_ONE_VALUE = {"partitioner.ignore.keys": "false", "exclude.internal.topics": "true"}
"""Settings of which only this value, Kafka's default, is what is done here."""
_WITHOUT_EFFECT = frozenset(
    [
        "acks",
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "batch.size",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "delivery.timeout.ms",
        "enable.idempotence",
        "enable.metrics.push",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
    ]
)
"""Settings of Kafka's clients that change no result here. `group.id`: Spark's Kafka source commits nothing to it either."""


def check_client_settings(given: Mapping[str, str]) -> None:
    """Warn of client settings without effect. Raise `ConfigurationError` for one that would be wrong to ignore."""
    ignored = []
    for key, value in given.items():
        name = key.lower().removeprefix(PREFIX)
        if not key.lower().startswith(PREFIX) or key.lower() in HONOURED:
            continue
        if name.startswith(_SECURING) and _UNSECURED.get(name) != value.lower():
            raise ConfigurationError(
                f"{key} would secure a Kafka client's connection, and there is none: records are read from the lake's files, under "
                "the permissions that these have, and written through the broker without TLS and SASL; leave it out"
            )
        if name in _REFUSED:
            raise ConfigurationError(f"{key} is for a Kafka client, and there is none: {_REFUSED[name]}; leave it out")
        if name in _ONE_VALUE:
            if value.lower() != _ONE_VALUE[name]:
                raise ConfigurationError(f"{key} is {value!r}, and only {_ONE_VALUE[name]} is possible here")
        elif name in _WITHOUT_EFFECT:
            ignored.append(key)
        elif not name.startswith(_SECURING):
            hint = did_you_mean(name, _WITHOUT_EFFECT, most=1, cutoff=0.8, show=lambda found: PREFIX + found)
            warn(f"{key} is no setting of a Kafka client, and has no effect" + (f"; {hint}" if hint else ""))
    if ignored:
        warn(f"no effect, for no Kafka client reads or writes here: {', '.join(sorted(ignored))}")


@functools.lru_cache(256)
def warn(message: str) -> None:
    """Log a warning once: options are parsed several times for a query."""
    logger.warning("%s", message)


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports of `host:port[,host:port...]`. Raise `ConfigurationError` if it is malformed."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = re.sub("^[A-Za-z_]+://", "", part).rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigurationError(f"{SERVERS}: {part!r} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigurationError(f"{SERVERS} names no broker: {text!r}")
    return tuple(found)
