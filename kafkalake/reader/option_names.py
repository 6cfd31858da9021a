"""The names of the options: those of Spark's Kafka source and sink, and our own, in any case of letters.

An option is done, or has no effect because it says how a Kafka client reads, or is refused (`client_settings`, `read_options`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError
from kafkalake.reader.client_settings import ISOLATION_LEVEL, PREFIX, SERVERS

LAKE = "lake"
OPTIONS = (
    LAKE,
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "isolation",
    "versionAsOf",
    "timestampAsOf",
    "valueSchema",
    "includeHeaders",
    "includeTopicId",
    "failOnDataLoss",
    "group",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
"""Options of a read."""
ONLY_STREAMING = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Without effect in a batch query, as in Spark's Kafka source."""
ONLY_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "versionAsOf", "timestampAsOf")
WITHOUT_EFFECT = (
    "groupIdPrefix",  # no consumer joins a group
    "kafkaConsumer.pollTimeoutMs",  # records are read from files, and nothing is waited for
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxBytesPerTrigger",  # none of Spark's Kafka source either, which passes it over
)
_WRITE_OPTIONS = ("topic", "txnAppId", "txnVersion", "commitTimeout", "checkpointLocation", "queryName")
"""Options of `write_options` only. A table in a catalogue carries both kinds."""
_NAMES = {name.lower(): name for name in (*OPTIONS, *_WRITE_OPTIONS, *WITHOUT_EFFECT, SERVERS)}
_FROM_CATALOGUE = (
    "serialization.format",
    "owner",
    "provider",
    "location",
    "comment",
    "external",
    "is_managed_location",
)
"""Properties that a catalogue adds to the options of a table."""
_TABLE_PREFIX = "option."
"""Prefix under which a catalogue repeats the options of a table among its properties."""
_FOREIGN_PREFIXES = (PREFIX, _TABLE_PREFIX, "__")
"""Prefixes of Kafka client settings, of table properties, and of notes from the JVM side of the source."""


def known_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of this source under their canonical names. Raise `ConfigurationError` for unknown or conflicting ones.

    Unknown names are ignored if a catalogue passes a table's properties along.
    """
    options: dict[str, str] = {}
    of_table = any(key.lower().startswith(_TABLE_PREFIX) for key in given)
    for key, value in given.items():
        name = key.lower()
        if name in _NAMES:
            options[_NAMES[name]] = value
        elif not name.startswith(_FOREIGN_PREFIXES) and name not in _FROM_CATALOGUE and not of_table:
            raise ConfigurationError(f"unknown option {key!r}; {_hint(name) or 'there are ' + ', '.join(OPTIONS)}")
    level = next((value for key, value in given.items() if key.lower() == ISOLATION_LEVEL), None)
    if level is not None and options.setdefault("isolation", level).lower() != level.lower():
        raise ConfigurationError(
            f"isolation is {options['isolation']!r} and {ISOLATION_LEVEL} {level!r}: give one of them"
        )
    return options


def _hint(name: str) -> str | None:
    """Return the advice for a misspelt option. A longer name that begins like an option is another option, not that one."""
    without_effect = {known.lower() for known in WITHOUT_EFFECT}
    possible = [known for known in _NAMES if known not in without_effect and not name.startswith(known)]
    return did_you_mean(name, possible, most=1, cutoff=0.7, show=_NAMES.__getitem__)
