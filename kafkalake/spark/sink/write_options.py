"""The options of a write, parsed once into a frozen value.

Names are those of Spark's Kafka sink (`topic`, `kafka.bootstrap.servers`) and of Delta's idempotent writes (`txnAppId`,
`txnVersion`). A table in a catalogue also has read options. Of those, `valueSchema` means that values are built from fields,
and the others are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkalake.config.topic_values import TopicValues
from kafkalake.errors import ConfigurationError
from kafkalake.reader.client_settings import SERVERS, check_client_settings, parse_servers
from kafkalake.reader.option_names import known_options
from kafkalake.reader.read_options import lake_option, parse_whole, typed_values
from kafkalake.topic_names import is_topic_name

COMMIT_TIMEOUT_S = 120
APPLICATION_CHARACTERS = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. topic: the topic of all rows, or None to use the column `topic`.

    application, version: the writing application and the number of its write. None: a unique id each time. servers: broker
    addresses (host, port), or empty to find them in the lake. json_fields: whether non-Kafka columns are fields of a JSON value.
    typed: the values of a topic with a `value.schema`, all of whose columns are fields.
    """

    lake: Path
    topic: str | None
    application: str | None
    version: int
    commit_timeout_s: float
    servers: Sequence[tuple[str, int]] = ()
    json_fields: bool = False
    typed: TopicValues | None = None


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Validate and parse the options, with names in any case. Raise `ConfigurationError` if one is invalid."""
    options = known_options(given)
    check_client_settings(given)
    application = options.get("txnAppId")
    if (application is None) != ("txnVersion" not in options):
        raise ConfigurationError("txnAppId and txnVersion belong together: who writes, and the number of this write")
    if application is not None and not APPLICATION_CHARACTERS.fullmatch(application):
        raise ConfigurationError(f"txnAppId is {application!r}: give 1 to 200 printable characters without spaces")
    return WriteOptions(
        lake=Path(lake_option(options)).absolute(),
        topic=_topic(options),
        application=application,
        version=parse_whole("txnVersion", options.get("txnVersion", "0"), 0),
        commit_timeout_s=_seconds(options.get("commitTimeout")),
        servers=parse_servers(options[SERVERS]) if SERVERS in options else (),
        json_fields="valueSchema" in options,
        typed=typed_values(given),
    )


def _topic(options: Mapping[str, str]) -> str | None:
    """Return `option("topic", ...)`, else `save("clicks")`, else the one topic that a table reads."""
    for name in ("topic", "path", "subscribe"):
        topic = options.get(name, "")
        if name == "path" and "/" in topic:
            continue  # a table in a catalogue has a location
        if not topic:
            continue
        if not is_topic_name(topic):
            raise ConfigurationError(
                f"{topic!r} is not one topic's name, and a write goes to one (or say it row by row)"
            )
        return topic
    return None


def _seconds(text: str | None) -> float:
    if text is None:
        return COMMIT_TIMEOUT_S
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", text.strip())
    seconds = float(found[1]) * {"ms": 0.001, "s": 1, "m": 60, None: 1}[found[2]] if found else 0.0
    if seconds <= 0:
        raise ConfigurationError(f"commitTimeout is {text!r}: give seconds, such as 120s")
    return seconds
