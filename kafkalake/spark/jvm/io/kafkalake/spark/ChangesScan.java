package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
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
  private JsonNode plan;
  private boolean isStream;

  ChangesScan(TopicChangelog changelog, StructType columns) {
    this.changelog = changelog;
    this.columns = columns;
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
        "(after version %s, to version %s)", points.get("start").get("version"), points.get("end").get("version"));
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
    return new ChangesStream(changelog, columns);
  }

  private synchronized JsonNode planned() {
    if (plan == null) {
      plan = changelog.plan(changelog.points().get("start"), changelog.points().get("end"));
    }
    return plan;
  }
}
