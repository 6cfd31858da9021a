"""An example: a topic into a Delta table with MERGE, each record once, whatever dies and whatever is run again.

    spark-submit --properties-file spark-conf/spark-defaults.conf jobs/merge_topic.py LAKE clicks DELTA_TABLE CHECKPOINT

It copies what is there and ends; run it again for what has come since. Delete the checkpoint, and it reads everything again, and
adds nothing twice. `kafkalake.spark.exactly_once` is all there is to it.
"""

from __future__ import annotations

import sys

from pyspark.errors import PySparkException

from kafkalake.errors import KafkaLakeError
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.spark import session
from kafkalake.spark.exactly_once import merge_into


def main(lake: str, topic: str, table: str, checkpoint: str) -> int:
    spark = session(app_name=f"merge {topic}")
    stream = (
        spark.readStream.format("kafkalake")
        .option("lake", lake)
        .option("startingOffsets", "earliest")
        .option("includeTopicId", True)
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load(topic)
    )
    query = (
        stream.writeStream.foreachBatch(merge_into(table))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return 0


def reported(*arguments: str) -> int:
    """As `main`, with one sentence where it fails, and 130 after Ctrl-C. What Spark logs of the same is in its log."""
    try:
        return main(*arguments)
    except KeyboardInterrupt:
        return 130  # a batch that was not finished comes again in the next run
    except (KafkaLakeError, PySparkException) as error:
        print(f"merge_topic: {one_line_message(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: merge_topic.py LAKE TOPIC DELTA_TABLE CHECKPOINT")
    sys.exit(reported(*sys.argv[1:]))
