"""Records of a topic into a Delta table, each once, whatever is repeated: (topic, partition, offset) is the key of a record.

    from kafkalake.spark.exactly_once import merge_into

    stream = spark.readStream.format("kafkalake").option("lake", lake).option("includeTopicId", True).load("clicks")
    stream.writeStream.foreachBatch(merge_into("/data/clicks")).option("checkpointLocation", "/data/checkpoint").start()

It does not matter who repeats: Spark after a crash, a query that lost its checkpoint, two queries at once, a batch job that is run
again. `MERGE` inserts what is not there yet. It works for Spark's Kafka source as well, which has the same columns.

With the column `_topic_id` (option `includeTopicId`) it belongs to the key: offsets of a topic that was deleted and created again
begin at 0 once more, and without it these records would be taken for those that the table has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kafkalake.errors import ConfigurationError
from kafkalake.reader.columns import TOPIC_ID

KEY = ("topic", "partition", "offset")


def merge_into(path: str, *, key: Sequence[str] = KEY) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that adds the batch's records to the Delta table at `path`, those that it lacks."""

    def merge_batch(frame: DataFrame, batch_id: int) -> None:
        merge_records(frame, path, key=key)

    return merge_batch


def merge_records(frame: DataFrame, path: str, *, key: Sequence[str] = KEY) -> None:
    """Add the records of `frame` to the Delta table at `path`, which is made where it is missing; what it has stays as it is.

    Where `frame` has the column `_topic_id`, and the table not yet, the table gets it; rows from before, which have none, count
    as the topic's. `key`: columns that name a row of `frame` and of the table; `topic`, `partition` and `offset` must be among
    them, more are needed where a record became several rows. Rows of `frame` with one key are added once. Only files with
    offsets of the batch are looked into. Raises `ConfigurationError` (a column of the key is missing) and Spark's exceptions; a
    merge that another writer of the same offsets overtakes is a `ConcurrentAppendException`: run it again.
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
    # Literals: Delta leaves out the files whose statistics rule them out.
    within = " OR ".join(
        f"(there.topic = '{row.topic}' AND there.partition = {row.partition}"
        f" AND there.offset BETWEEN {row['first']} AND {row['last']})"
        for row in ranges
    )
    table = DeltaTable.forPath(spark, path).alias("there")
    new = frame.dropDuplicates(list(key)).alias("new")
    table.merge(new, " AND ".join([*same, f"({within})"])).whenNotMatchedInsertAll().execute()
