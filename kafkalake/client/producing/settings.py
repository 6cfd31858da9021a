"""The settings of a producer: Kafka's names, types, ranges, and defaults. Source: Apache Kafka 4.1, "Producer Configs".

*Different from Kafka:* `batch.size` is 256 KiB by default. Memory is taken for the records of a batch only, so a large one costs
nothing when there are few records; when there are many, it saves requests. Rows of `send_arrow` are all there at once: without a
`batch.size` of the user they fill whole requests, of just under 1 MiB: topics take as much by default, and a request that with its
header is larger needs twice the memory on a JVM that gives it out in regions of 1 MiB (7 % more records/s on Apache Kafka).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafkalake.client.network.settings import NetworkSettings
from kafkalake.client.settings import parse_settings
from kafkalake.codecs import NAMES, NUMBERS
from kafkalake.config.setting import INT_MAX, Int, Long, define
from kafkalake.errors import ConfigurationError

_BATCH_BYTES = 262_144
_ARROW_BATCH_BYTES = 1_000_000
_ARGUMENTS = {
    "key.serializer": "key_serializer",
    "value.serializer": "value_serializer",
    "partitioner.class": "partitioner",
    "interceptor.classes": "interceptors",
}
_IDEMPOTENT_IN_FLIGHT_MAX = 5
"""The number of batches by which a broker recognizes one that it has already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(NetworkSettings):
    """Settings of a producer. Fields are Kafka's names with underscores."""

    acks: str = define("all", "Which replicas have a record before it counts as sent.", choices=("all", "-1", "0", "1"))
    batch_size: Int = define(
        _BATCH_BYTES, "The most bytes of records in a batch. A larger record has its own.", minimum=0
    )
    linger_ms: Long = define(5, "How long a batch waits for more records.", minimum=0)
    buffer_memory: Long = define(33_554_432, "Memory for records that wait to be delivered.", minimum=0)
    metadata_max_idle_ms: Long = define(
        300_000, "A topic that nothing is sent to for so long is forgotten.", minimum=5_000
    )
    max_block_ms: Long = define(60_000, "How long a call waits for metadata, room or a coordinator.", minimum=0)
    delivery_timeout_ms: Int = define(120_000, "How long delivering a record may take, with all retries.", minimum=0)
    max_request_size: Int = define(1_048_576, "The most bytes of a request, and of a record.", minimum=0)
    compression_type: str = define("none", "The codec of batches.", choices=NAMES)
    retries: Int = define(INT_MAX, "How often a batch is sent again.", minimum=0)
    enable_idempotence: bool = define(True, "Whether a batch that is sent again is written once, and in order.")
    transactional_id: str | None = define(None, "The name of the producer in transactions, the same after a restart.")
    transaction_timeout_ms: Int = define(60_000, "After this time the broker aborts a transaction.", minimum=1)
    partitioner_ignore_keys: bool = define(False, "Whether records with a key are spread as those without.")
    partitioner_adaptive_partitioning_enable: bool = define(
        True, "Whether partitions of brokers that are behind get fewer of the records without a key (KIP-794)."
    )
    partitioner_availability_timeout_ms: Long = define(
        0, "Partitions of a broker that takes no request for so long get no records without a key. 0: never.", minimum=0
    )

    @property
    def required_acks(self) -> int:
        """The acks of a Produce request: -1 for all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def arrow_batch_size(self) -> int:
        """The most bytes of a batch of Arrow rows: `batch.size`, unless that is the default."""
        if self.batch_size != _BATCH_BYTES:
            return self.batch_size
        return min(_ARROW_BATCH_BYTES, self.max_request_size, self.buffer_memory)

    @property
    def codec(self) -> int:
        """The number of the codec in a batch's attributes."""
        return NUMBERS[self.compression_type]

    @property
    def is_ordered(self) -> bool:
        """Return whether records of a partition keep their order although batches are sent again."""
        return self.enable_idempotence or self.max_in_flight_requests_per_connection == 1


def producer_settings(given: Mapping[str, object]) -> ProducerSettings:
    """Return a producer's settings. Raise `ConfigurationError` for one that is invalid or contradicts another.

    Idempotence is off if it was not asked for and acks, retries or requests in flight exclude it, as in Kafka.
    """
    settings = parse_settings(ProducerSettings, given, _ARGUMENTS)
    names = {name.replace("_", ".") for name in given}
    hindrance = _hindrance(settings)
    if hindrance and settings.enable_idempotence:
        if "enable.idempotence" in names or "transactional.id" in names:
            raise ConfigurationError(f"an idempotent producer needs {hindrance}")
        settings = replace(settings, enable_idempotence=False)
    if settings.transactional_id is not None and not settings.enable_idempotence:
        raise ConfigurationError("a producer with transactional.id needs enable.idempotence=true")
    least = min(settings.linger_ms + settings.request_timeout_ms, INT_MAX)
    if settings.delivery_timeout_ms < least:
        if "delivery.timeout.ms" in names:
            raise ConfigurationError(f"delivery.timeout.ms must be at least linger.ms + request.timeout.ms, {least}")
        settings = replace(settings, delivery_timeout_ms=least)
    return settings


def _hindrance(settings: ProducerSettings) -> str:
    if settings.required_acks != -1:
        return "acks=all"
    if not settings.retries:
        return "retries > 0"
    if settings.max_in_flight_requests_per_connection > _IDEMPOTENT_IN_FLIGHT_MAX:
        return f"max.in.flight.requests.per.connection <= {_IDEMPOTENT_IN_FLIGHT_MAX}"
    return ""
