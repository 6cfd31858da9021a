package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** One scan of topics, planned once, when Spark first asks for its size or its tasks, and read in columns. */
final class KafkaLakeScan implements SupportsReportStatistics, Batch {
  private final String name;
  private final StructType schema;
  private final ScanColumn[] columns;
  private final Map<String, String> options;
  private final Predicate[] filters;
  private final String query;
  private JsonNode plan;
  private KafkaLakeStream stream;

  /** @param columns where those of the schema come from */
  KafkaLakeScan(
      String name, StructType schema, ScanColumn[] columns, Map<String, String> options, Predicate[] filters, String query) {
    this.name = name;
    this.schema = schema;
    this.columns = columns;
    this.options = options;
    this.filters = filters;
    this.query = query;
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  /** Every partition, but in Real-Time Mode none, which is of rows; Spark would else ask the readers. */
  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return stream != null && stream.isRealTime() ? ColumnarSupportMode.UNSUPPORTED : ColumnarSupportMode.SUPPORTED;
  }

  /** What Spark shows behind the names of the table and its columns: what is read, and which filters have narrowed it. */
  @Override
  public String description() {
    if (stream != null) {
      return "";
    }
    JsonNode shown;
    try {
      shown = planned();
    } catch (Exception error) { // also Spark's AnalysisException, which is none of those at run time
      return ""; // the query ends with it, its explanation need not
    }
    StringBuilder pushed = new StringBuilder();
    for (JsonNode position : shown.get("narrowed")) {
      pushed.append(pushed.length() == 0 ? ", pushed: " : " AND ").append(filters[position.intValue()].describe());
    }
    return String.format(
        "(snapshot %s, %s partitions, %s of %s segments%s)",
        shown.get("snapshot").asText(), shown.get("partitions"), shown.get("segments"), shown.get("segments_of_all"), pushed);
  }

  /** Upper bounds; of a stream nothing is known. */
  @Override
  public Statistics estimateStatistics() {
    OptionalLong bytes = stream != null ? OptionalLong.empty() : OptionalLong.of(planned().get("bytes").longValue());
    OptionalLong records = stream != null ? OptionalLong.empty() : OptionalLong.of(planned().get("records").longValue());
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return bytes;
      }

      @Override
      public OptionalLong numRows() {
        return records;
      }
    };
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return SlicesPartition.allOf(planned().get("tasks"));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new SegmentReaderFactory(columns);
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    stream = new KafkaLakeStream(columns, options, checkpointLocation);
    return stream;
  }

  /** The comparison with Kafka's name of its column; null where that is a field of the value, by which nothing is narrowed. */
  private ObjectNode ofSegments(ObjectNode comparison) {
    for (ScanColumn column : columns) {
      if (comparison != null && column.name().equals(comparison.get("column").textValue())) {
        return column.isField() ? null : comparison.put("column", column.origin());
      }
    }
    return null;
  }

  /** The planner's answer. */
  private synchronized JsonNode planned() {
    if (plan == null) {
      ObjectNode question = Planner.question("scan").put("query", query);
      ObjectNode given = question.putObject("options");
      options.forEach(given::put);
      ScanColumn.ask(columns, question);
      ArrayNode comparisons = question.putArray("filters");
      for (Predicate filter : filters) {
        comparisons.add(ofSegments(ScanFilter.of(filter)));
      }
      try {
        plan = Planner.ask(question);
      } catch (PlannerException error) {
        throw error.forUsers();
      }
    }
    return plan;
  }
}
