package io.kafkalake.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The record that a row is. One object reads all rows of a task; what it returns is valid until the next row. */
final class RowRecord {
  /** The timestamp of a record that is given none. */
  static final long NO_TIMESTAMP = Long.MIN_VALUE;
  /** No partition was chosen. */
  static final long NO_PARTITION = Long.MIN_VALUE;

  /** An upper bound of a record's lengths, offset and timestamp on the wire, and of a header's lengths. */
  private static final int RECORD_OVERHEAD_BYTES = 24;
  private static final int HEADER_OVERHEAD_BYTES = 4;
  private static final int HEADER_FIELDS = 2;
  private static final int MICROSECONDS = 1000;

  private final int keyColumn;
  private final int valueColumn;
  private final int topicColumn;
  private final int partitionColumn;
  private final int timestampColumn;
  private final int headersColumn;
  private final boolean hasTextKey;
  private final boolean hasTextValue;
  private final DataType partitionType;
  /** Null where no column is a field of a JSON value. */
  private final RowFields fields;
  private final RowBytes key = new RowBytes();
  private final RowBytes value = new RowBytes();
  private InternalRow row;

  /** @param plan of a write whose columns the planner has checked */
  RowRecord(WritePlan plan) {
    // All columns of a typed topic are fields, whatever their names.
    StructType columns = plan.isTyped() ? new StructType() : plan.columns();
    keyColumn = position(columns, "key");
    valueColumn = position(columns, "value");
    topicColumn = position(columns, "topic");
    partitionColumn = position(columns, "partition");
    timestampColumn = position(columns, "timestamp");
    headersColumn = position(columns, "headers");
    hasTextKey = isText(columns, keyColumn);
    hasTextValue = isText(columns, valueColumn);
    fields = plan.fields().isEmpty() ? null : new RowFields(plan);
    partitionType = partitionColumn < 0 ? null : columns.apply(partitionColumn).dataType();
  }

  static int position(StructType columns, String name) {
    scala.Option<Object> found = columns.getFieldIndex(name);
    return found.isDefined() ? (Integer) found.get() : -1;
  }

  private static boolean isText(StructType columns, int column) {
    return column >= 0 && columns.apply(column).dataType() instanceof StringType;
  }

  void read(InternalRow row) {
    this.row = row;
    // Null also where there is no such column: the row before may have had a value made of its fields.
    key.setNull();
    value.setNull();
    if (keyColumn >= 0) {
      key.set(row, keyColumn, hasTextKey);
    }
    if (valueColumn >= 0) {
      value.set(row, valueColumn, hasTextValue);
    }
    if (fields != null) {
      fields.read(row, key, value);
    }
  }

  RowBytes key() {
    return key;
  }

  RowBytes value() {
    return value;
  }

  /** The row's topic; null: it has none. */
  UTF8String topic() {
    return topicColumn < 0 || row.isNullAt(topicColumn) ? null : row.getUTF8String(topicColumn);
  }

  long partition() {
    if (partitionColumn < 0 || row.isNullAt(partitionColumn)) {
      return NO_PARTITION;
    }
    if (partitionType instanceof IntegerType) {
      return row.getInt(partitionColumn);
    }
    if (partitionType instanceof ShortType) {
      return row.getShort(partitionColumn);
    }
    return partitionType instanceof ByteType ? row.getByte(partitionColumn) : row.getLong(partitionColumn);
  }

  /** The millisecond since 1970 that the row's time lies in, before 1970 too, or `NO_TIMESTAMP`. */
  long timestamp() {
    boolean isGiven = timestampColumn >= 0 && !row.isNullAt(timestampColumn);
    return isGiven ? Math.floorDiv(row.getLong(timestampColumn), MICROSECONDS) : NO_TIMESTAMP;
  }

  /** Structs of key and value; null: none. */
  ArrayData headers() {
    return headersColumn < 0 || row.isNullAt(headersColumn) ? null : row.getArray(headersColumn);
  }

  /** About how many bytes the record has on the wire. Throws `StagingException` for a header without a key. */
  long size() {
    long size = RECORD_OVERHEAD_BYTES + key.length() + value.length();
    ArrayData headers = headers();
    for (int i = 0; headers != null && i < headers.numElements(); i++) {
      if (headers.isNullAt(i) || headers.getStruct(i, HEADER_FIELDS).isNullAt(0)) {
        throw new StagingException("a header has no key");
      }
      InternalRow header = headers.getStruct(i, HEADER_FIELDS);
      size += HEADER_OVERHEAD_BYTES + header.getUTF8String(0).numBytes();
      size += header.isNullAt(1) ? 0 : header.getBinary(1).length;
    }
    return size;
  }
}
