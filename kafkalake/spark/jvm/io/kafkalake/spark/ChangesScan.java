package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** One scan of a topic's changes, in a range or as a stream. */
final class ChangesScan implements SupportsReportStatistics, Batch {
  private final TopicChangelog changelog;
  private final StructType columns;
  private final ArrayNode comparisons;
  private final String pushed;
  private JsonNode plan;
  private boolean isStream;

  /** @param pushed the comparisons as a plan shows them */
  ChangesScan(TopicChangelog changelog, StructType columns, ArrayNode comparisons, String pushed) {
    this.changelog = changelog;
    this.columns = columns;
    this.comparisons = comparisons;
    this.pushed = pushed;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return changelog.isKeyed() ? ColumnarSupportMode.UNSUPPORTED : ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public String description() {
    if (isStream) {
      return changelog.name();
    }
    JsonNode points = changelog.points();
    return String.format(
        "(after version %s, to version %s%s)", points.get("start").get("version"), points.get("end").get("version"), pushed);
  }

  @Override
  public Batch toBatch() {
    if (changelog.isUnbounded()) {
      throw KafkaLakeExtensions.refused("the changes of which versions are asked for: CHANGES FROM VERSION or FROM TIMESTAMP says it");
    }
    return this;
  }

  /** Upper bounds, for what Spark decides by size; of a stream nothing is known. */
  @Override
  public Statistics estimateStatistics() {
    if (isStream || changelog.isUnbounded()) {
      return ScanSize.UNKNOWN;
    }
    return ScanSize.of(2 * planned().get("bytes").longValue(), 2 * planned().get("records").longValue());
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return ChangesTask.of(planned());
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ChangesReaderFactory(changelog, columns);
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    isStream = true;
    return new ChangesStream(changelog, columns, comparisons);
  }

  private synchronized JsonNode planned() {
    if (plan == null) {
      plan = changelog.plan(changelog.points().get("start"), changelog.points().get("end"), comparisons);
    }
    return plan;
  }
}
