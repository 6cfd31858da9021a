package io.kafkalake.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.streaming.ContinuousStream;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** One scan of topics, planned once, when Spark first asks for its size or its tasks, and read in columns. */
final class KafkaLakeScan implements SupportsReportStatistics, SupportsRuntimeV2Filtering, Batch {
  private final StructType schema;
  private final ScanColumn[] columns;
  private final Map<String, String> options;
  private final KeyFilter keyFilter;
  private final ScanPlan plan;
  private List<ObjectNode> atRuntime = List.of();
  private KafkaLakeStream stream;

  /** @param keyFilter says of which keys records are wanted; null: of all */
  KafkaLakeScan(StructType schema, ScanColumn[] columns, Map<String, String> options, KeyFilter keyFilter, ScanPlan plan) {
    this.schema = schema;
    this.columns = columns;
    this.options = options;
    this.keyFilter = keyFilter;
    this.plan = plan;
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

  /** What Spark shows behind the names of the table and its columns. */
  @Override
  public String description() {
    return stream != null ? "" : plan.description("");
  }

  /** Of a stream nothing is known. */
  @Override
  public Statistics estimateStatistics() {
    return stream != null ? ScanSize.UNKNOWN : plan.size();
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return ScanMetric.all();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return stream != null ? new CustomTaskMetric[0] : plan.metrics();
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    List<InputPartition> partitions = new ArrayList<>();
    for (InputPartition each : SlicesPartition.allOf(plan.answer().get("tasks"))) {
      SegmentSlice[] slices = ((SlicesPartition) each).slices();
      SegmentSlice[] left = Arrays.stream(slices).filter(this::isTaken).toArray(SegmentSlice[]::new);
      if (left.length > 0 || slices.length == 0) {
        partitions.add(left.length == slices.length ? each : new SlicesPartition(left, ((SlicesPartition) each).avro()));
      }
    }
    return partitions.toArray(new InputPartition[0]);
  }

  private boolean isTaken(SegmentSlice slice) {
    return atRuntime.stream().allMatch(comparison -> ScanFilter.takes(comparison, slice.topic(), slice.partition()));
  }

  /** Columns by whose values in a join's other side Spark may leave out partitions when that is known. */
  @Override
  public NamedReference[] filterAttributes() {
    return Arrays.stream(columns)
        .filter(column -> !column.isField() && ScanFilter.OF_PARTITIONS.contains(column.origin()))
        .map(column -> Expressions.column(column.name()))
        .toArray(NamedReference[]::new);
  }

  @Override
  public void filter(Predicate[] predicates) {
    List<ObjectNode> found = new ArrayList<>();
    for (Predicate predicate : predicates) {
      ObjectNode comparison = ScanFilter.ofRecord(predicate, columns);
      if (comparison != null && comparison.has("column")) {
        found.add(comparison);
      }
    }
    atRuntime = found;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new SegmentReaderFactory(columns, keyFilter);
  }

  /** Refuses the trigger of Spark's experiment that Real-Time Mode has taken the place of. */
  @Override
  public ContinuousStream toContinuousStream(String checkpointLocation) {
    throw KafkaLakeExtensions.refused(
        "topics are not read with a continuous trigger: Real-Time Mode is as fast, trigger(realTime='5 minutes') with outputMode('update')");
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    stream = new KafkaLakeStream(columns, options, checkpointLocation);
    return stream;
  }
}
