"""Writes records of a topic into a Delta table exactly once, under any repetition. The key is (topic, partition, offset).

    from kafkalake.spark.exactly_once import merge_into

    stream = spark.readStream.format("kafkalake").option("lake", lake).option("includeTopicId", True).load("clicks")
    stream.writeStream.foreachBatch(merge_into("/data/clicks")).option("checkpointLocation", "/data/checkpoint").start()

The source of the repetition does not matter: Spark after a crash, a query that lost its checkpoint, two concurrent queries, a
batch job that is run again. `MERGE` inserts only missing rows. Spark's Kafka source has the same columns and works as well.

The column `_topic_id` (option `includeTopicId`), if present, is part of the key: offsets of a topic that was deleted and created
again start at 0 again, and without it these records would be taken for existing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kafkalake.errors import ConfigurationError
from kafkalake.reader.columns import TOPIC_ID

KEY = ("topic", "partition", "offset")


def merge_into(path: str, *, key: Sequence[str] = KEY) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that adds the batch's missing records to the Delta table at `path`."""

    def merge_batch(frame: DataFrame, batch_id: int) -> None:
        merge_records(frame, path, key=key)

    return merge_batch


def merge_records(frame: DataFrame, path: str, *, key: Sequence[str] = KEY) -> None:
    """Add the records of `frame` to the Delta table at `path`, which is created if missing. Existing rows stay unchanged.

    If `frame` has the column `_topic_id` and the table has not, the column is added. Earlier rows without an id count
    as the topic's. `key`: columns that identify a row in `frame` and in the table. They must include `topic`, `partition` and
    `offset`, and more if a record became several rows. Rows of `frame` with the same key are added once. Only files with
    offsets of the batch are read. Raise `ConfigurationError` if a key column is missing, and Spark's exceptions.
    `ConcurrentAppendException` means that another writer merged the same offsets first: run the merge again.
    """
    from delta.tables import DeltaTable

    if not set(KEY) <= set(key) <= set(frame.columns):
        raise ConfigurationError(
            f"the key of a record is {', '.join(KEY)}: select these columns, and name them in the key"
        )
    spark = frame.sparkSession
    first, last = f.min("offset").alias("first"), f.max("offset").alias("last")
    ranges = frame.groupBy("topic", "partition").agg(first, last).collect()
    if not ranges:
        return
    DeltaTable.createIfNotExists(spark).location(path).addColumns(frame.schema).execute()
    same = [f"there.`{name}` <=> new.`{name}`" for name in key if name != TOPIC_ID]
    if TOPIC_ID in frame.columns:
        key = [*key, *({TOPIC_ID} - set(key))]
        same.append(f"coalesce(there.{TOPIC_ID}, new.{TOPIC_ID}) <=> new.{TOPIC_ID}")
        if TOPIC_ID not in DeltaTable.forPath(spark, path).toDF().columns:
            spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({TOPIC_ID} STRING)")
    # Use literals, so that Delta skips the files that their statistics rule out.
    within = " OR ".join(
        f"(there.topic = '{row.topic}' AND there.partition = {row.partition}"
        f" AND there.offset BETWEEN {row['first']} AND {row['last']})"
        for row in ranges
    )
    table = DeltaTable.forPath(spark, path).alias("there")
    new = frame.dropDuplicates(list(key)).alias("new")
    table.merge(new, " AND ".join([*same, f"({within})"])).whenNotMatchedInsertAll().execute()
