package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The changes of a topic: {@code SELECT * FROM lake.clicks CHANGES FROM VERSION 17}, {@code spark.readStream().changes("lake.clicks")}.
 *
 * Records of a topic are inserted. In a compacted topic a record is the state of its key: it inserts, updates or, as a tombstone, deletes
 * it, and a version changes a key at most once, from what the version before had to what it has itself. Partitions are compacted each
 * for itself, so a row is identified by its key and its partition.
 */
final class TopicChangelog implements Changelog {
  private static final String VERSION = "_commit_version";
  private static final StructType OF_CHANGES =
      new StructType()
          .add("_change_type", DataTypes.StringType, false)
          .add(VERSION, DataTypes.LongType, false)
          .add("_commit_timestamp", DataTypes.TimestampType, false);
  private final String name;
  private final String lake;
  private final String topic;
  private final String topicId;
  private final TopicColumns columns;
  private final String[] row;
  private final StructType records;
  private final ChangelogRange range;
  private final Map<String, String> options;
  private final boolean isKeyed;
  private JsonNode points;

  TopicChangelog(TopicTable table, String lake, String topic, ChangelogContext context, CaseInsensitiveStringMap options) {
    this.name = table.name();
    this.lake = lake;
    this.topic = topic;
    this.topicId = table.id();
    this.columns = table.topicColumns();
    this.range = context.range();
    this.options = options.asCaseSensitiveMap();
    this.isKeyed = ask(question("changes_of")).get("is_keyed").booleanValue();
    this.row = columns.isTyped() ? new String[] {"_partition", "_key"} : new String[] {"partition", "key"};
    this.records = isKeyed && columns.isTyped() ? withRow(columns.columns()) : columns.columns();
  }

  @Override
  public String name() {
    return name + " changes";
  }

  boolean isKeyed() {
    return isKeyed;
  }

  @Override
  public Column[] columns() {
    StructType all = all();
    Column[] columns = new Column[all.size()];
    for (int i = 0; i < columns.length; i++) {
      StructField field = all.apply(i);
      columns[i] = Column.create(field.name(), field.dataType(), field.nullable() && !(isKeyed && isOfRow(field.name())));
    }
    return columns;
  }

  private StructType all() {
    StructType all = records;
    for (StructField field : OF_CHANGES.fields()) {
      all = all.add(field);
    }
    return all;
  }

  /** Of fields of the values: with what identifies a row, which else are metadata columns. */
  private StructType withRow(StructType fields) {
    StructType all = fields;
    for (String column : row) {
      if (columns.ofRecord(column) == null) {
        throw KafkaLakeExtensions.refused("changes of topic " + topic + " are those of keys, which its field " + column + " hides");
      }
      all = all.add(columns.all().apply(column));
    }
    return all;
  }

  private boolean isOfRow(String column) {
    return column.equals(row[0]) || column.equals(row[1]);
  }

  @Override
  public boolean containsCarryoverRows() {
    return false;
  }

  @Override
  public boolean containsIntermediateChanges() {
    return isKeyed;
  }

  @Override
  public boolean representsUpdateAsDeleteAndInsert() {
    return false;
  }

  @Override
  public NamedReference[] rowId() {
    return isKeyed ? new NamedReference[] {Expressions.column(row[0]), Expressions.column(row[1])} : new NamedReference[0];
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    return new Builder();
  }

  /** Spark looks at all filters again; by those on versions, partitions, offsets and timestamps less is read. */
  private final class Builder implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns {
    private StructType wanted = all();
    private final ArrayNode comparisons = Planner.JSON.createArrayNode();
    private final List<String> pushed = new ArrayList<>();

    @Override
    public Predicate[] pushPredicates(Predicate[] offered) {
      ScanColumn[] sources = Arrays.stream(records.fieldNames()).map(TopicChangelog.this::source).toArray(ScanColumn[]::new);
      for (Predicate predicate : offered) {
        ObjectNode comparison = ScanFilter.of(predicate);
        if (comparison != null && !comparison.get("column").textValue().equals(VERSION)) {
          comparison = ScanFilter.ofRecord(predicate, sources);
        }
        if (comparison != null && (!isKeyed || comparison.get("column").textValue().equals("partition"))) {
          comparisons.add(comparison);
          pushed.add(predicate.describe());
        }
      }
      return offered;
    }

    @Override
    public Predicate[] pushedPredicates() {
      return new Predicate[0];
    }

    @Override
    public void pruneColumns(StructType required) {
      wanted = required;
    }

    @Override
    public Scan build() {
      return new ChangesScan(TopicChangelog.this, wanted, comparisons, pushed.isEmpty() ? "" : ", pushed: " + String.join(" AND ", pushed));
    }
  }

  /** Where the column of the records that has this name comes from; null for a column of changes. */
  ScanColumn source(String column) {
    return records.getFieldIndex(column).isDefined() ? columns.sources()[columns.all().fieldIndex(column)] : null;
  }

  boolean isUnbounded() {
    return range instanceof ChangelogRange.UnboundedRange;
  }

  boolean hasEnd() {
    return range instanceof ChangelogRange.VersionRange && ((ChangelogRange.VersionRange) range).endingVersion().isPresent()
        || range instanceof ChangelogRange.TimestampRange && ((ChangelogRange.TimestampRange) range).endingTimestamp().isPresent();
  }

  /** The points `start` and `end` of the range, the same for every scan of a data frame. */
  synchronized JsonNode points() {
    if (points == null) {
      ObjectNode question = question("begin_changes");
      if (range instanceof ChangelogRange.VersionRange) {
        ChangelogRange.VersionRange versions = (ChangelogRange.VersionRange) range;
        question.put("first", LakeCatalog.version(versions.startingVersion())).put("is_after_first", !versions.startingBoundInclusive());
        versions.endingVersion().ifPresent(
            last -> question.put("last", LakeCatalog.version(last)).put("is_before_last", !versions.endingBoundInclusive()));
      } else if (range instanceof ChangelogRange.TimestampRange) {
        ChangelogRange.TimestampRange times = (ChangelogRange.TimestampRange) range;
        // The first millisecond at or after the start, and the last at or before the end, of Spark's microseconds.
        question.put("first_ms", Math.floorDiv(times.startingTimestamp() + (times.startingBoundInclusive() ? 999 : 1000), 1000));
        times.endingTimestamp().ifPresent(
            last -> question.put("last_ms", Math.floorDiv(last - (times.endingBoundInclusive() ? 0 : 1), 1000)));
      }
      points = ask(question);
    }
    return points;
  }

  /** The newest point after `start`; `start` itself where nothing was committed since. */
  JsonNode pointAfter(JsonNode start) {
    return ask(question("next_changes").set("start", start));
  }

  /** The tasks that read the changes after `start`, up to and in `end`, of which the comparisons may be true. */
  JsonNode plan(JsonNode start, JsonNode end, ArrayNode comparisons) {
    ObjectNode question = question("plan_changes").put("is_keyed", isKeyed);
    question.set("filters", comparisons);
    question.set("start", start);
    question.set("end", end);
    return ask(question);
  }

  private ObjectNode question(String ask) {
    ObjectNode question = Planner.question(ask).put("lake", lake).put("topic", topic).put("topic_id", topicId);
    ObjectNode given = question.putObject("options");
    options.forEach(given::put);
    if (columns.isTyped()) {
      given.put("__typed", columns.typed());
    }
    return question;
  }

  private static JsonNode ask(ObjectNode question) {
    try {
      return Planner.ask(question);
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }
}
