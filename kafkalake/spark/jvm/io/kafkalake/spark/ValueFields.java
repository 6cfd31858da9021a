package io.kafkalake.spark;

import java.time.ZoneId;
import java.util.Arrays;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/** Fields of values as columns, which stand side by side; the values are JSON or Avro. */
abstract class ValueFields {
  private static final int ROWS = 1024;

  private final OnHeapColumnVector[] columns;

  /** @param fields of the values, by their names in these */
  ValueFields(StructType fields) {
    columns = OnHeapColumnVector.allocateColumns(ROWS, fields);
  }

  /**
   * The fields among the columns of a scan; null where there is none.
   *
   * @param zone of times in JSON that name none
   */
  static ValueFields of(ScanColumn[] columns, ZoneId zone) {
    StructType fields = ScanColumn.fields(columns);
    if (fields.isEmpty()) {
      return null;
    }
    AvroValues avro = Arrays.stream(columns).filter(ScanColumn::isField).findFirst().get().avro();
    return avro == null ? new JsonFields(fields, zone) : new AvroFields(fields, avro);
  }

  WritableColumnVector column(int field) {
    return columns[field];
  }

  WritableColumnVector[] columns() {
    return columns;
  }

  /** Begin anew with no rows. */
  void reset(int rows) {
    for (WritableColumnVector column : columns) {
      column.reset();
      column.reserve(rows);
    }
  }

  /** Add a row with the fields of the value between `begin` and `end`. */
  abstract void append(byte[] data, int begin, int end);

  abstract void appendNull();

  void close() {
    for (WritableColumnVector column : columns) {
      column.close();
    }
  }
}
