package io.kafkalake.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Serializable;
import java.util.Arrays;
import java.util.Set;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * A column of a scan, and where it comes from: a column of the segment, or a field of the value.
 *
 * @param name in the query
 * @param isField whether it is a field of the value
 * @param origin Kafka's name of the segment's column, or the field's name in the value
 * @param avro how the value is read of which this is a field; null: it is JSON
 */
record ScanColumn(String name, DataType type, boolean isField, String origin, AvroValues avro) implements Serializable {
  private static final Set<String> OF_KAFKA =
      Set.of("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "_topic_id");
  private static final String PREFIX = "value_";

  ScanColumn(String name, DataType type, boolean isField, String origin) {
    this(name, type, isField, origin, null);
  }

  static ScanColumn ofSegment(StructField column, String kafkaName) {
    return new ScanColumn(column.name(), column.dataType(), false, kafkaName);
  }

  /** Throws Spark's exception for users if JSON has no such type. */
  static ScanColumn ofField(StructField column, String field) {
    JsonReader.check(column.name(), column.dataType());
    return new ScanColumn(column.name(), column.dataType(), true, field);
  }

  /** A field of a topic with a schema of its values, by its name there. */
  static ScanColumn ofTopic(StructField column, AvroValues avro) {
    return avro == null ? ofField(column, column.name()) : new ScanColumn(column.name(), column.dataType(), true, column.name(), avro);
  }

  /** The column of a data frame: one of Kafka's by its name, another is a field; `value_key` is the field `key`, as `key` is Kafka's. */
  static ScanColumn ofFrame(StructField column) {
    String name = column.name();
    if (OF_KAFKA.contains(name)) {
      return ofSegment(column, name);
    }
    boolean isPrefixed = name.startsWith(PREFIX) && OF_KAFKA.contains(name.substring(PREFIX.length()));
    return ofField(column, isPrefixed ? name.substring(PREFIX.length()) : name);
  }

  /** The column of Kafka's that has this name in the query; null where there is none. */
  static ScanColumn ofRecord(ScanColumn[] columns, String name) {
    for (ScanColumn column : columns) {
      if (!column.isField && column.name.equals(name)) {
        return column;
      }
    }
    return null;
  }

  static ScanColumn[] ofFrame(StructType columns) {
    ScanColumn[] found = new ScanColumn[columns.size()];
    for (int i = 0; i < found.length; i++) {
      found[i] = ofFrame(columns.apply(i));
    }
    return found;
  }

  /** These columns, the values of their fields read as `avro` says; null: as the columns say. */
  static ScanColumn[] readAs(ScanColumn[] columns, AvroValues avro) {
    if (avro == null) {
      return columns;
    }
    return Arrays.stream(columns)
        .map(column -> column.isField ? new ScanColumn(column.name, column.type, true, column.origin, avro) : column)
        .toArray(ScanColumn[]::new);
  }

  /** Put into a question to the planner which columns are read: of segments with their types in SQL, of values their names. */
  static void ask(ScanColumn[] columns, ObjectNode question) {
    ObjectNode ofSegments = question.putObject("columns");
    ArrayNode fields = question.putArray("fields");
    for (ScanColumn column : columns) {
      if (column.isField) {
        fields.add(column.name);
      } else {
        // Where SHOW CREATE TABLE is carried out again, strings name the collation that they have anyway.
        ofSegments.put(column.origin, column.type.asNullable().sql().replace(" COLLATE UTF8_BINARY", ""));
      }
    }
  }

  /** The fields among the columns, by their names in the values. */
  static StructType fields(ScanColumn[] columns) {
    StructType fields = new StructType();
    for (ScanColumn column : columns) {
      if (column.isField) {
        fields = fields.add(column.origin, column.type);
      }
    }
    return fields;
  }
}
