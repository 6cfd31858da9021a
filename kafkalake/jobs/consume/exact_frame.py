"""The records between two offsets of each partition, as a data frame, whichever topics the options name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from kafkalake.errors import ConfigurationError

Offsets = Mapping[str, Mapping[str, int]]
_REPLACED = ("subscribe", "assign", "starting", "ending", "group", "path")


def exact_frame(
    spark: SparkSession, options: Mapping[str, str], starting: Offsets, ending: Offsets, columns: Sequence[str]
) -> DataFrame:
    """Return the records from `starting` to `ending` (`positions.to_json`), all columns without `columns`.

    Raise `ConfigurationError` if there is no such column.
    """
    kept = {name: value for name, value in options.items() if not name.lower().startswith(_REPLACED)}
    exact = {
        "assign": json.dumps(
            {topic: [int(number) for number in offsets] for topic, offsets in ending.items() if offsets}
        ),
        "startingOffsets": json.dumps(starting),
        "endingOffsets": json.dumps(ending),
    }
    frame = spark.read.format("kafkalake").options(**kept, **exact).load()
    unknown = [column for column in columns if column not in frame.columns]
    if unknown:
        raise ConfigurationError(f"there is no column {unknown[0]!r} but {', '.join(frame.columns)}")
    return frame.select(*columns) if columns else frame
