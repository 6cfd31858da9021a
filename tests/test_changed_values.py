"""What a query that writes may go on writing after its topic was altered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from written_lake import WrittenLake

from kafkalake.config.topic_values import topic_values
from kafkalake.errors import LakeError
from kafkalake.reader.changed_values import require_values

INT, OPTIONAL = {"name": "i", "type": "int"}, {"name": "o", "type": ["null", "int"], "default": None}


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": fields})


JSON, AVRO = {"value.schema": "i INT"}, {"value.format": "avro", "value.schema": avro(INT)}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (JSON, {"value.schema": "i INT, o INT"}, None),
        (JSON, {"value.schema": "i BIGINT"}, "field i"),
        (JSON, {}, "field i"),
        (JSON, {**JSON, "key": "i"}, "key"),
        (JSON, AVRO, "value.format"),
        (AVRO, JSON, "value.format"),
        (AVRO, {**AVRO, "value.schema": avro(INT, OPTIONAL)}, None),
        (AVRO, {**AVRO, "value.schema": avro(OPTIONAL, INT)}, "value.schema"),
        (AVRO, {**AVRO, "value.schema": avro(INT, {"name": "needed", "type": "int"})}, "value.schema"),
        (AVRO, {**AVRO, "value.schema": avro({"name": "i", "type": ["null", "int"]})}, "value.schema"),
        (AVRO, {**AVRO, "value.avro.schema.id": "7"}, "value.avro.schema.id"),
    ],
)
def test_values_are_written_as_long_as_they_are_the_topics(
    before: dict[str, str], after: dict[str, str], changed: str | None, tmp_path: Path
) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("trades", settings=after)
    typed = topic_values(before)
    if changed is None:
        require_values("trades", typed, lake.store)
    else:
        with pytest.raises(LakeError, match=f"^{changed} of topic trades was changed since this query was made"):
            require_values("trades", typed, lake.store)
    require_values("gone", typed, lake.store)
    lake.close()
