package io.kafkalake.spark;

import java.time.ZoneId;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/**
 * Fields of JSON values as columns, as `kafkalake.reader.json_values` reads them: a value that is no JSON object is a row of nulls, a field
 * that does not fit its type is null and leaves the others as they are.
 */
final class JsonFields {
  private static final int ROWS = 1024;

  private final JsonReader.OfObject object;
  private final OnHeapColumnVector[] columns;

  /**
   * @param fields of the values, by their names in JSON
   * @param zone of times that name none
   */
  JsonFields(StructType fields, ZoneId zone) {
    object = new JsonReader.OfObject(fields, zone);
    columns = OnHeapColumnVector.allocateColumns(ROWS, fields);
  }

  WritableColumnVector column(int field) {
    return columns[field];
  }

  /** Begin anew with no rows. */
  void reset(int rows) {
    for (WritableColumnVector column : columns) {
      column.reset();
      column.reserve(rows);
    }
  }

  /** Add a row with the fields of the value between `begin` and `end`. */
  void append(byte[] data, int begin, int end) {
    object.append(columns, data, begin, end);
  }

  void appendNull() {
    object.appendNulls(columns);
  }

  void close() {
    for (WritableColumnVector column : columns) {
      column.close();
    }
  }
}
