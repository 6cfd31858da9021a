"""`DELETE FROM lake.users WHERE key = X'616e6e'`: tombstones for keys of a compacted topic, all in one transaction.

A tombstone is written to each partition that has the key: who wrote it there may have chosen the partition by another hash than
Kafka's, or by hand. A key that no partition has gets none.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, StructType

from kafkalake.errors import ConfigurationError, LakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.changelog import is_keyed, the_topic
from kafkalake.reader.columns import arrow_schema, project
from kafkalake.reader.plan import plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import ReadOptions
from kafkalake.spark.planner.lakes import lake_path, open_lake
from kafkalake.spark.planner.process import IS_WITHDRAWN
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.statements import named_topic, require_topic
from kafkalake.spark.sink.sink import Sink
from kafkalake.uuid_text import decode_uuid

_COLUMNS = StructType().add("key", BinaryType()).add("value", BinaryType()).add("partition", IntegerType())


def delete_keys(question: Question) -> None:
    """Delete the `keys` (in hexadecimal) of topic `topic_id`, all or, where the statement was withdrawn in time, none.

    Raise `LakeError` if it was withdrawn or the topic deleted and created again meanwhile, `ConfigurationError` if the topic is not
    compacted, the errors of `begin_read`, and those of a write.
    """
    lake, name = question["lake"], named_topic(question)
    options = ReadOptions(str(lake_path(lake)), topics=(name,), fail_on_data_loss=False)
    tables = open_lake(lake)
    topic, topic_id = the_topic(options, tables), decode_uuid(question["topic_id"])
    require_topic(name, topic_id, UUID(topic.topic_id))
    if not is_keyed(lake_path(lake), tables.control_store.load().config, topic):
        raise ConfigurationError(
            f"topic {name} is not compacted, so that no record of it is deleted by its key: DELETE deletes those below an offset "
            "(WHERE offset < 100), and cleanup.policy=compact makes records the states of their keys"
        )
    rows = _found(options, tables, [bytes.fromhex(key) for key in question["keys"]], question[IS_WITHDRAWN])
    if rows.num_rows:
        sink = Sink({"lake": options.lake, "topic": name}, _COLUMNS, overwrite=False, is_stream=False)
        require_topic(name, topic_id, UUID(dict(sink.write.topic_ids)[name]))
        directory = f"job-{uuid.uuid4().hex}"
        try:
            sink.commit(directory, 0, [sink.stage(iter([rows]), directory)])
        except BaseException:
            sink.abort(directory)
            raise


def _found(
    options: ReadOptions, tables: DeltaMetadataStore, keys: Sequence[bytes], is_withdrawn: Callable[[], bool]
) -> pa.RecordBatch:
    """Return the tombstones: each key that is in the topic, once per partition that has it."""
    # Imported here: compiled code, which no other question needs.
    from kafkalake.reader.slice_reader import SliceReader

    wanted = pa.array(keys, pa.binary())
    read = begin_read(options, tables)
    slices = [piece for group in plan_slices(read, Selection()) for piece in group]
    projection = project(arrow_schema({"key": "BINARY", "partition": "INT"}), json_values=False)
    found: set[tuple[int, bytes]] = set()
    for batch in SliceReader(projection, Selection()).read(slices):
        if is_withdrawn():
            raise LakeError("the statement was cancelled, and deleted nothing")
        there = batch.filter(pc.is_in(batch.column("key"), value_set=wanted))
        found.update(zip(there.column("partition").to_pylist(), there.column("key").to_pylist(), strict=True))
    partitions, values = [each[0] for each in sorted(found)], [each[1] for each in sorted(found)]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.nulls(len(values), pa.binary()), pa.array(partitions, pa.int32())],
        names=["key", "value", "partition"],
    )
