package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The columns of a topic as a table, as the planner has answered.
 *
 * A topic with a schema of its values has their fields as columns, another one Kafka's; both have Kafka's columns as metadata columns,
 * too, which a query has only where it names them: `_key`, `_offset` and so on.
 */
final class TopicColumns {
  private final String ddl;
  private final StructType columns;
  private final boolean isTyped;
  private final Map<String, StructField> metadata = new LinkedHashMap<>();

  private TopicColumns(String ddl, StructType columns, boolean isTyped) {
    this.ddl = ddl;
    this.columns = columns;
    this.isTyped = isTyped;
  }

  /** Of the planner's answer to the question `load`. */
  static TopicColumns of(JsonNode loaded) {
    String ddl = loaded.get("columns").textValue();
    TopicColumns found = new TopicColumns(ddl, StructType.fromDDL(ddl), loaded.get("is_typed").booleanValue());
    for (Map.Entry<String, JsonNode> each : loaded.get("metadata").properties()) {
      StructType source = StructType.fromDDL(each.getValue().get("source").textValue() + " " + each.getValue().get("type").textValue());
      found.metadata.put(each.getKey(), source.apply(0));
    }
    return found;
  }

  /** The same table with other columns: for a write that has some of them. */
  TopicColumns with(StructType others) {
    TopicColumns found = new TopicColumns(ddl, others, isTyped);
    found.metadata.putAll(metadata);
    return found;
  }

  /** The topic's columns, all of them, as the planner has named them. */
  String ddl() {
    return ddl;
  }

  StructType columns() {
    return columns;
  }

  /** Whether the columns are fields of the values. */
  boolean isTyped() {
    return isTyped;
  }

  /** The columns, and the metadata columns behind them. */
  StructType all() {
    StructType all = columns;
    for (Map.Entry<String, StructField> each : metadata.entrySet()) {
      all = all.add(each.getKey(), each.getValue().dataType());
    }
    return all;
  }

  /** Where each of all these columns comes from. */
  ScanColumn[] sources() {
    StructType all = all();
    ScanColumn[] sources = new ScanColumn[all.size()];
    for (int i = 0; i < sources.length; i++) {
      StructField column = all.apply(i);
      String ofRecord = ofRecord(column.name());
      sources[i] = ofRecord == null ? ScanColumn.ofField(column, column.name()) : ScanColumn.ofSegment(column, ofRecord);
    }
    return sources;
  }

  /** Kafka's name of the column of a record; null for a field of the value. */
  String ofRecord(String column) {
    StructField source = metadata.get(column);
    return source != null ? source.name() : isTyped ? null : column;
  }

  MetadataColumn[] metadata() {
    return metadata.entrySet().stream().map(each -> metadataColumn(each.getKey(), each.getValue())).toArray(MetadataColumn[]::new);
  }

  private static MetadataColumn metadataColumn(String name, StructField source) {
    return new MetadataColumn() {
      @Override
      public String name() {
        return name;
      }

      @Override
      public DataType dataType() {
        return source.dataType();
      }

      @Override
      public String comment() {
        return "the record's " + source.name();
      }
    };
  }
}
