package io.kafkalake.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/**
 * Writes of a stream in every output mode, as Spark's Kafka sink takes them: what the query puts out is added to the topic, the whole
 * result in complete mode, the changed rows in update mode. A batch that would overwrite stays one, and is refused.
 */
final class OutputModes implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
  private final SupportsTruncate rows;
  private boolean isComplete;

  /** @param rows a builder of nobody else's: a batch that overwrites is one of its own */
  OutputModes(WriteBuilder rows) {
    this.rows = (SupportsTruncate) rows;
  }

  @Override
  public WriteBuilder truncate() {
    isComplete = true;
    return this;
  }

  @Override
  public Write build() {
    return isComplete ? new Complete() : rows.build();
  }

  private final class Complete implements Write {
    private final Write adding = rows.build();

    @Override
    public String description() {
      return adding.description();
    }

    @Override
    public BatchWrite toBatch() {
      return rows.truncate().build().toBatch();
    }

    @Override
    public StreamingWrite toStreaming() {
      return adding.toStreaming();
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return adding.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return adding.reportDriverMetrics();
    }
  }
}
