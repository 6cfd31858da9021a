"""How the values of an Avro topic are read that has got fields since a query was made: with the schema that it has now.

Nothing in an Avro value tells the schema that it was written with, and a reader finds the end of a value only by all of its fields.
A stream that runs on after ALTER TABLE ... ADD COLUMN, and a dataset that is kept, would take each new value for a broken one.
"""

from __future__ import annotations

from kafkalake.config.topic_values import AvroFormat, topic_values
from kafkalake.errors import LakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.read_options import ReadOptions


def evolved_avro(options: ReadOptions, tables: DeltaMetadataStore) -> AvroFormat | None:
    """Return how the values of the topic are read now, or None if that is as `options.typed` says.

    Call it after the end of the read is known: values before that end have at most these fields. Raise `LakeError` if the topic has
    not all of the fields any more.
    """
    if options.typed is None or options.typed.avro is None or options.topics is None:
        return None
    (name,) = options.topics
    topic = tables.find_topic(name)
    values = options.typed if topic is None else topic_values(topic.config)
    if values.avro == options.typed.avro:
        return None
    types = {field.name: field.type for field in values.fields}
    lost = next((field.name for field in options.typed.fields if types.get(field.name) != field.type), None)
    if values.avro is None or lost is not None:
        raise LakeError(
            f"the schema of topic {name} was changed since this query was made"
            + ("" if lost is None else f", the field {lost} with it")
            + ": make it again, or start the stream again"
        )
    return values.avro
