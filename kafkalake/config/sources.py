"""Where a broker's settings come from: the command line over the environment over a properties file, and Kafka's defaults last.

Variables of the environment name settings as the images of Apache Kafka do: `KAFKA_` and the name in capitals, with `_` for a dot,
`__` for an underscore, `___` for a dash. `KAFKA_NUM_PARTITIONS=3` is `num.partitions=3`. Files are read by `properties`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkalake.config.accepted import is_refused
from kafkalake.config.broker import BROKER_SETTINGS
from kafkalake.config.topics import TOPIC_SETTINGS

PREFIX = "KAFKA_"
_SEPARATORS = {"_": ".", "__": "_", "___": "-"}
_SAME = ({"broker.id", "node.id"},)
"""Names of one setting: a source that gives one of them replaces all of an earlier one."""


def read_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings in an environment, and the names that other variables with the prefix would have, by variable.

    Such variables are no error: Kafka's scripts and images have some, such as `KAFKA_HEAP_OPTS`.
    """
    settings: dict[str, str] = {}
    others: dict[str, str] = {}
    for variable in sorted(environment):
        if variable.startswith(PREFIX):
            name = _name_of(variable)
            if name in BROKER_SETTINGS or name in TOPIC_SETTINGS or is_refused(name):
                settings[name] = environment[variable]
            else:
                others[variable] = name
    return settings, others


def _name_of(variable: str) -> str:
    return re.sub("_{1,3}", lambda found: _SEPARATORS[found[0]], variable.removeprefix(PREFIX).lower())


def combine(*sources: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of all sources. Each goes over those before it."""
    combined: dict[str, str] = {}
    for source in sources:
        for names in _SAME:
            if names & source.keys():
                combined = {name: value for name, value in combined.items() if name not in names}
        combined.update(source)
    return combined
