package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/**
 * A scan that answers counts and extremes, from the lake's metadata where that is exact (`planner/aggregates.py`).
 *
 * Where little is left to be read, it is complete: one task has the result, which the driver is (`AggregateStrategy`) where the query takes
 * nothing else. Else Spark adds up what the tasks have.
 */
final class AggregateScan implements SupportsReportStatistics, Batch {
  private final ScanAggregates aggregates;
  private final ScanPlan plan;

  AggregateScan(ScanAggregates aggregates, ScanPlan plan) {
    this.aggregates = aggregates;
    this.plan = plan;
    plan.question().put("offsets", aggregates.hasOffsets()).put("times", aggregates.hasTimestamps());
  }

  /** Whether the planner can answer; if not, a scan of the records says why. */
  boolean isPossible() {
    try {
      plan.answer();
      return true;
    } catch (Exception error) { // also Spark's AnalysisException, which is none of those at run time
      return false;
    }
  }

  boolean isComplete() {
    return plan.answer().get("is_complete").booleanValue();
  }

  @Override
  public StructType readSchema() {
    return aggregates.schema();
  }

  @Override
  public String description() {
    return plan.description(", aggregates: " + aggregates.described());
  }

  /** Upper bounds of what the tasks return: a row of each group, and of all together one of each task. */
  @Override
  public Statistics estimateStatistics() {
    JsonNode tasks = plan.answer().get("tasks");
    long rows = plan.answer().get("known").size();
    for (JsonNode task : tasks) {
      rows += task.get("slices").size();
    }
    rows = aggregates.isOfAll() ? tasks.size() : rows;
    return ScanSize.of(rows * readSchema().defaultSize(), rows);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return ScanMetric.all();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return plan.metrics();
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return tasks();
  }

  private AggregateReader.Task[] tasks() {
    JsonNode listed = plan.answer().get("known");
    AggregateReader.Known[] known = new AggregateReader.Known[listed.size()];
    for (int i = 0; i < known.length; i++) {
      JsonNode each = listed.get(i);
      known[i] = new AggregateReader.Known(each.get(0).textValue(), each.get(1).intValue(), RecordFacts.of(each));
    }
    InputPartition[] partitions = SlicesPartition.allOf(plan.answer().get("tasks"));
    AggregateReader.Task[] tasks = new AggregateReader.Task[partitions.length];
    for (int i = 0; i < tasks.length; i++) {
      SegmentSlice[] slices = ((SlicesPartition) partitions[i]).slices();
      tasks[i] = new AggregateReader.Task(i == 0 ? known : new AggregateReader.Known[0], slices);
    }
    return tasks;
  }

  /** What the task of a complete scan returns, read here. */
  Result result() {
    List<InternalRow> rows = new ArrayList<>();
    List<CustomTaskMetric> metrics = new ArrayList<>(List.of(plan.metrics()));
    try (AggregateReader reader = new AggregateReader(aggregates, tasks()[0])) {
      while (reader.next()) {
        rows.add(reader.get());
      }
      metrics.addAll(List.of(reader.currentMetricsValues()));
    } catch (IOException error) {
      throw KafkaLakeExtensions.unchecked(error);
    }
    return new Result(rows, metrics);
  }

  /** Rows, and what the UI shows of the scan that found them. */
  record Result(List<InternalRow> rows, List<CustomTaskMetric> metrics) {}

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new AggregateReader.Factory(aggregates);
  }
}
