package io.kafkalake.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Collection;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A topic as a table of `LakeCatalog`: read and written as a data frame over it is, and its records deleted from their beginning on. */
class TopicTable implements SupportsRead, SupportsWrite, SupportsDeleteV2, SupportsMetadataColumns {
  private static final String KEY = "key";
  private final String name;
  private final String lake;
  private final String topic;
  private final String topicId;
  private final TopicColumns columns;
  private final Map<String, String> properties;
  private final Map<String, String> options;
  private final String deletionTimeout;
  private final KafkaLakeTable records;

  /**
   * @param topicId of the topic that has the name now; null for a table as of the past
   * @param options of the scans: none, or the version or time of which the table is
   * @param deletionTimeout how long a deletion of records may take, as Spark's settings say times
   */
  TopicTable(
      String catalog,
      String lake,
      String topic,
      String topicId,
      TopicColumns columns,
      Map<String, String> properties,
      Map<String, String> options,
      String deletionTimeout) {
    this.name = catalog + "." + topic;
    this.lake = lake;
    this.topic = topic;
    this.topicId = topicId;
    this.columns = columns;
    this.properties = properties;
    this.options = options;
    this.deletionTimeout = deletionTimeout;
    Map<String, String> all = new HashMap<>(options);
    all.put("lake", lake);
    all.put("subscribe", topic);
    if (topicId != null) {
      all.put("__topicid", topicId);
    }
    if (columns.isTyped()) {
      all.put("__typed", columns.typed());
    }
    this.records = new KafkaLakeTable(name, columns.all(), columns::sources, all);
  }

  private TopicTable(TopicTable table, TopicColumns columns) {
    this.name = table.name;
    this.lake = table.lake;
    this.topic = table.topic;
    this.topicId = table.topicId;
    this.columns = columns;
    this.properties = table.properties;
    this.options = table.options;
    this.deletionTimeout = table.deletionTimeout;
    this.records = table.records.with(columns.all(), columns::sources);
  }

  /** Refuses names of properties that are no settings of a topic. A catalogue, which is not told of IF EXISTS, lets them pass. */
  void requireSettings(Collection<String> names) {
    ObjectNode question = Planner.question("require_settings").put("lake", lake).put("topic", topic);
    ArrayNode asked = question.putArray("names");
    names.forEach(asked::add);
    try {
      Planner.ask(question);
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }

  /** This table with some of its columns; with all where none are given. */
  TopicTable with(StructType some) {
    return some.isEmpty() ? this : new TopicTable(this, columns.with(some));
  }

  /** This table as rows are inserted into it, and not read. */
  TopicTable forInsert() {
    return new TopicTable(this, columns.with(KafkaLakeTable.takingText(columns.columns()))) {
      @Override
      public Set<TableCapability> capabilities() {
        Set<TableCapability> writing = EnumSet.copyOf(super.capabilities());
        writing.removeAll(EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ, TableCapability.CONTINUOUS_READ));
        return writing;
      }
    };
  }

  /** This table, of which `undo` makes nothing again. */
  StagedTable staged(Runnable undo) {
    return new Staged(this, undo);
  }

  private static final class Staged extends TopicTable implements StagedTable {
    private final Runnable undo;

    Staged(TopicTable table, Runnable undo) {
      super(table, table.columns);
      this.undo = undo;
    }

    /** Adds to the topic: it is new, and has nothing that would be overwritten. */
    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      WriteBuilder adding = super.newWriteBuilder(info);
      return new SupportsTruncate() {
        @Override
        public WriteBuilder truncate() {
          return this;
        }

        @Override
        public Write build() {
          return adding.build();
        }
      };
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return new CustomTaskMetric[0];
    }

    /** What was written is in the topic. */
    @Override
    public void commitStagedChanges() {}

    @Override
    public void abortStagedChanges() {
      undo.run();
    }
  }

  @Override
  public String name() {
    return name;
  }

  /** The topic's id: a topic that is created again is another table. */
  @Override
  public String id() {
    return topicId;
  }

  @Override
  public StructType schema() {
    return columns.columns();
  }

  /** The columns, with where they come from. */
  TopicColumns topicColumns() {
    return columns;
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return columns.metadata();
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return !options.isEmpty() ? EnumSet.of(TableCapability.BATCH_READ) : records.capabilities();
  }

  /** The topic and the lake are the table's, and no option's. */
  private static void check(CaseInsensitiveStringMap options) {
    for (String option : new String[] {"lake", "path", "topic", "subscribe", "subscribePattern", "assign", "valueSchema"}) {
      if (options.containsKey(option)) {
        throw KafkaLakeExtensions.refused("the option " + option + " is not for a table of a catalogue, which is one topic");
      }
    }
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    check(options);
    return records.newScanBuilder(options);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    check(info.options());
    if (columns.isTyped()) {
      checkFields(info.schema());
    }
    return records.newWriteBuilder(info);
  }

  /** What Spark resolves has the table's columns; what a stream writes is as it is. */
  private void checkFields(StructType given) {
    for (StructField column : given.fields()) {
      scala.Option<StructField> found = columns.columns().find(each -> each.name().equals(column.name()));
      if (found.isEmpty()) {
        throw KafkaLakeExtensions.refused(
            "topic " + topic + " has no column " + column.name() + " but " + String.join(", ", schema().fieldNames()));
      }
      DataType type = found.get().dataType();
      if (!DataType.equalsIgnoreNullability(type, column.dataType())) {
        throw KafkaLakeExtensions.refused(
            "column " + column.name() + " is " + column.dataType().sql() + " in what is written, and in topic " + topic + " it is "
                + type.sql() + ": CAST it");
      }
    }
  }

  /**
   * True if the condition is `offset < n`, of one partition or of all, or a partition: what Kafka's DeleteRecords does; or names keys,
   * which tombstones delete. Others are refused with what is possible, of which Spark's own error says nothing.
   */
  @Override
  public boolean canDeleteWhere(Predicate[] conditions) {
    String texts = Arrays.stream(conditions).map(TopicTable::text).collect(Collectors.joining(" AND "));
    if (deletion(conditions) == null) {
      String offset = columns.isTyped() ? "_offset" : "offset";
      String key = columns.isTyped() ? properties.getOrDefault(KEY, "_key") : KEY;
      throw KafkaLakeExtensions.refused(
          "Cannot delete from " + name + " where " + texts
              + ": a topic loses records from the beginning of its partitions on (WHERE " + offset + " < 100), and a compacted topic also"
              + " those of a key (WHERE " + key + " = '...')");
    }
    return true;
  }

  /** What Spark prints for a condition, as it does with the plan of each statement: it cannot print a NULL of BINARY. */
  private static String text(Predicate condition) {
    try {
      return condition.toString();
    } catch (AssertionError unprintable) {
      throw KafkaLakeExtensions.refused("NULL equals no key and no value: leave it out of the list");
    }
  }

  @Override
  public void deleteWhere(Predicate[] conditions) {
    delete(deletion(conditions));
  }

  @Override
  public boolean truncateTable() {
    delete(deletion(new Predicate[0]));
    return true;
  }

  /** Whether a column is the key of the records: as such, or as the text that a field of the value has. */
  private boolean isKey(String column) {
    boolean isText = columns.isTyped() && column.equals(properties.get(KEY)) && schema().apply(column).dataType() instanceof StringType;
    return isText || KEY.equals(columns.ofRecord(column));
  }

  private void delete(ObjectNode question) {
    try {
      Planner.run("DELETE", question, deletionTimeout);
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }

  /** A question about the topic that had the name when the statement was analyzed. */
  private ObjectNode question(String statement) {
    return Planner.statement(statement).put("lake", lake).put("topic", topic).put("topic_id", topicId);
  }

  /** The question that deletes the records of which the conditions are true; null where that cannot be asked. */
  private ObjectNode deletion(Predicate[] conditions) {
    List<String> keys = KeyCondition.keys(conditions, this::isKey);
    if (keys != null) {
      ObjectNode question = question("delete_keys");
      keys.forEach(question.putArray("keys")::add);
      return question;
    }
    Long before = null;
    Long partition = null;
    for (Predicate condition : conditions) {
      ObjectNode comparison = ScanFilter.of(condition);
      if (condition.name().equals("ALWAYS_TRUE")) {
        continue;
      }
      if (comparison == null || comparison.get("values").size() != 1 || !comparison.get("values").get(0).isIntegralNumber()) {
        return null;
      }
      String column = columns.ofRecord(comparison.get("column").textValue());
      String operator = comparison.get("operator").textValue();
      long number = comparison.get("values").get(0).longValue();
      if ("offset".equals(column) && before == null && (operator.equals("<") || operator.equals("<="))) {
        before = operator.equals("<") || number == Long.MAX_VALUE ? number : number + 1;
      } else if ("partition".equals(column) && partition == null && operator.equals("=")) {
        partition = number;
      } else {
        return null;
      }
    }
    ObjectNode question = question("delete_records").put("before", before);
    if (partition == null) {
      question.putNull("partitions");
    } else {
      question.putArray("partitions").add(partition);
    }
    return question;
  }
}
