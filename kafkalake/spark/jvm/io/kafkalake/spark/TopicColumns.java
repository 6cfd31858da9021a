package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The columns of a topic as a table, as the planner has answered.
 *
 * A topic with a schema of its values has their fields as columns, another one Kafka's; both have Kafka's columns as metadata columns,
 * too, which a query has only where it names them: `_key`, `_offset` and so on.
 */
final class TopicColumns {
  private final StructType columns;
  private final String typed;
  private final AvroValues avro;
  private final Map<String, StructField> metadata = new LinkedHashMap<>();

  private TopicColumns(StructType columns, String typed, AvroValues avro) {
    this.columns = columns;
    this.typed = typed;
    this.avro = avro;
  }

  /** Of the planner's answer to the question `load`. */
  static TopicColumns of(JsonNode loaded) {
    StructType columns = new StructType();
    for (JsonNode each : loaded.get("columns")) {
      StructField column = field(each.get("name"), each.get("type"));
      columns = columns.add(each.hasNonNull("comment") ? column.withComment(each.get("comment").textValue()) : column);
    }
    TopicColumns found = new TopicColumns(columns, loaded.get("typed").textValue(), AvroValues.of(loaded.get("avro")));
    for (Map.Entry<String, JsonNode> each : loaded.get("metadata").properties()) {
      found.metadata.put(each.getKey(), field(each.getValue().get("source"), each.getValue().get("type")));
    }
    return found;
  }

  private static StructField field(JsonNode name, JsonNode type) {
    return new StructField(name.textValue(), ColumnType.of(type.textValue()), true, Metadata.empty());
  }

  /** The same table with other columns: for a write that has some of them. */
  TopicColumns with(StructType others) {
    TopicColumns found = new TopicColumns(others, typed, avro);
    found.metadata.putAll(metadata);
    return found;
  }

  /** The planner's note for the options of reads and writes; null: the topic has no schema of its values. */
  String typed() {
    return typed;
  }

  StructType columns() {
    return columns;
  }

  /** Whether the columns are fields of the values. */
  boolean isTyped() {
    return typed != null;
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
      sources[i] = ofRecord == null ? ScanColumn.ofTopic(column, avro) : ScanColumn.ofSegment(column, ofRecord);
    }
    return sources;
  }

  /** Kafka's name of the column of a record; null for a field of the value. */
  String ofRecord(String column) {
    StructField source = metadata.get(column);
    return source != null ? source.name() : isTyped() ? null : column;
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
