package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.connector.PredicateUtils;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One scan of topics, planned once, when Spark first asks for its size or its tasks, and read in columns.
 *
 * Fields of JSON values are read by Spark's Python workers, by way of a scan of the Python source; all else by `SegmentReader`.
 */
final class KafkaLakeScan implements SupportsReportStatistics, Batch {
  private static final Set<String> OF_SEGMENTS =
      Set.of("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "_topic_id");
  private final String name;
  private final StructType columns;
  private final Map<String, String> options;
  private final Predicate[] filters;
  private final String query;
  private JsonNode plan;
  private Batch ofPython;
  private KafkaLakeStream stream;

  KafkaLakeScan(String name, StructType columns, Map<String, String> options, Predicate[] filters, String query) {
    this.name = name;
    this.columns = columns;
    this.options = options;
    this.filters = filters;
    this.query = query;
  }

  @Override
  public StructType readSchema() {
    return columns;
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
    if (isOfSegments(columns)) {
      JsonNode tasks = planned().get("tasks");
      InputPartition[] partitions = new InputPartition[tasks.size()];
      boolean inJvm = true;
      for (int i = 0; i < partitions.length; i++) {
        partitions[i] = SlicesPartition.of(i, tasks.get(i));
        inJvm &= partitions[i] instanceof SlicesPartition;
      }
      if (inJvm) {
        return partitions;
      }
    }
    return pythonPartitions();
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    planInputPartitions();
    return ofPython == null ? new SegmentReaderFactory(columns) : ColumnarReaderFactory.of(ofPython.createReaderFactory());
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    stream = new KafkaLakeStream(columns, options, checkpointLocation);
    return stream;
  }

  /** Whether `SegmentReader` reads all of these columns. */
  static boolean isOfSegments(StructType columns) {
    return OF_SEGMENTS.containsAll(java.util.List.of(columns.fieldNames()));
  }

  /** Those of the columns that `SegmentReader` reads, with their types in SQL. */
  static ObjectNode columnsOfSegments(StructType columns) {
    ObjectNode types = Planner.JSON.createObjectNode();
    for (StructField field : columns.fields()) {
      if (OF_SEGMENTS.contains(field.name())) {
        types.put(field.name(), field.dataType().asNullable().sql());
      }
    }
    return types;
  }

  /** The planner's answer; for columns that Python reads, of the values that they are read from. */
  private synchronized JsonNode planned() {
    if (plan == null) {
      ObjectNode question = Planner.question("scan").put("query", query);
      ObjectNode given = question.putObject("options");
      options.forEach(given::put);
      question.set("columns", columnsOfSegments(columns));
      ArrayNode comparisons = question.putArray("filters");
      for (Predicate filter : filters) {
        comparisons.add(ScanFilter.of(filter));
      }
      try {
        plan = Planner.ask(question);
      } catch (PlannerException error) {
        throw error.forUsers();
      }
    }
    return plan;
  }

  private InputPartition[] pythonPartitions() {
    if (ofPython == null) {
      Map<String, String> notes = new HashMap<>(options);
      boolean push = filters.length > 0 && SQLConf.get().pythonFilterPushDown();
      notes.put("__pushFilters", Boolean.toString(push));
      notes.put("__query", query);
      PythonDataSourceV2 source = KafkaLakeProvider.pythonSource();
      PythonScanBuilder scan = new PythonScanBuilder(source, KafkaLakeProvider.NAME, columns, new CaseInsensitiveStringMap(notes));
      if (push) {
        scan.pushFilters(PredicateUtils.toV1(filters));
      }
      ofPython = scan.build().toBatch();
    }
    InputPartition[] planned = ofPython.planInputPartitions();
    InputPartition[] partitions = new InputPartition[planned.length];
    for (int i = 0; i < planned.length; i++) {
      partitions[i] = SlicesPartition.of(i, ((PythonInputPartition) planned[i]).pickedPartition());
    }
    return partitions;
  }
}
