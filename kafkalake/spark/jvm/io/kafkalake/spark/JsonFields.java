package io.kafkalake.spark;

import java.time.ZoneId;
import org.apache.spark.sql.types.StructType;

/**
 * Fields of JSON values as columns, as `kafkalake.reader.json_values` reads them: a value that is no JSON object is a row of nulls, a field
 * that does not fit its type is null and leaves the others as they are.
 */
final class JsonFields extends ValueFields {
  private final JsonReader.OfObject object;

  /**
   * @param fields of the values, by their names in JSON
   * @param zone of times that name none
   */
  JsonFields(StructType fields, ZoneId zone) {
    super(fields);
    object = new JsonReader.OfObject(fields, zone);
  }

  @Override
  void append(byte[] data, int begin, int end) {
    object.append(columns(), data, begin, end);
  }

  @Override
  void appendNull() {
    object.appendNulls(columns());
  }
}
