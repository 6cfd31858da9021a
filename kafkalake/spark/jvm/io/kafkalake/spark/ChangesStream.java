package io.kafkalake.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/**
 * A topic's changes as a stream, a batch from one version to another. Without a start its first batch inserts what is there.
 *
 * An offset of it is a version with the ends of the partitions in it, and so a batch is the same whenever it is planned.
 */
final class ChangesStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final TopicChangelog changelog;
  private final StructType columns;
  private final ArrayNode comparisons;
  private boolean isBounded;
  private Point last;

  ChangesStream(TopicChangelog changelog, StructType columns, ArrayNode comparisons) {
    if (changelog.hasEnd()) {
      throw KafkaLakeExtensions.refused("a stream of changes has no end: leave endingVersion and endingTimestamp out");
    }
    this.changelog = changelog;
    this.columns = columns;
    this.comparisons = comparisons;
  }

  /** What was changed up to and in a version. */
  private static final class Point extends Offset {
    private final JsonNode content;

    Point(JsonNode content) {
      this.content = content;
    }

    @Override
    public String json() {
      return content.toString();
    }
  }

  @Override
  public Offset initialOffset() {
    return new Point(changelog.points().get("start"));
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("the end of a batch is found from its start");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    if (last != null) {
      return last;
    }
    Point newest = new Point(changelog.pointAfter(((Point) start).content));
    last = isBounded ? newest : null;
    return newest;
  }

  /** The version that is the newest when the first batch is planned is the last one. */
  @Override
  public void prepareForTriggerAvailableNow() {
    isBounded = true;
  }

  @Override
  public Offset deserializeOffset(String json) {
    try {
      return new Point(Planner.JSON.readTree(json));
    } catch (JsonProcessingException error) {
      throw KafkaLakeExtensions.refused("the checkpoint is not one of a stream of changes: it has " + json);
    }
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return ChangesTask.of(changelog.plan(((Point) start).content, ((Point) end).content, comparisons));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ChangesReaderFactory(changelog, columns);
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  /** What the progress of a query says of its source. */
  @Override
  public String toString() {
    return "KafkaLake[" + changelog.name() + "]";
  }
}
