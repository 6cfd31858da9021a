package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows that the planner answers, a JSON list each, as rows of Spark.
 *
 * TIMESTAMP is microseconds since 1970, BINARY is base64, a MAP is a list of pairs of key and value, a STRUCT is a list like a row.
 */
final class JsonRows {
  private JsonRows() {}

  /**
   * The rows, with the columns `wanted`.
   *
   * @param all the columns that each list has values of, in their order
   */
  static InternalRow[] of(JsonNode rows, StructType all, StructType wanted) {
    int[] places = new int[wanted.length()];
    for (int i = 0; i < places.length; i++) {
      places[i] = all.fieldIndex(wanted.fields()[i].name());
    }
    List<InternalRow> found = new ArrayList<>(rows.size());
    for (JsonNode row : rows) {
      Object[] values = new Object[places.length];
      for (int i = 0; i < places.length; i++) {
        values[i] = value(row.get(places[i]), wanted.fields()[i].dataType());
      }
      found.add(new GenericInternalRow(values));
    }
    return found.toArray(new InternalRow[0]);
  }

  private static Object value(JsonNode json, DataType type) {
    if (json.isNull()) {
      return null;
    }
    if (type instanceof StringType) {
      return UTF8String.fromString(json.textValue());
    } else if (type instanceof LongType || type instanceof TimestampType) {
      return json.longValue();
    } else if (type instanceof IntegerType) {
      return json.intValue();
    } else if (type instanceof DoubleType) {
      return json.doubleValue();
    } else if (type instanceof BooleanType) {
      return json.booleanValue();
    } else if (type instanceof BinaryType) {
      return bytes(json);
    } else if (type instanceof ArrayType) {
      return new GenericArrayData(values(json, ((ArrayType) type).elementType()));
    } else if (type instanceof MapType) {
      return map(json, (MapType) type);
    } else if (type instanceof StructType) {
      StructType struct = (StructType) type;
      Object[] fields = new Object[struct.length()];
      for (int i = 0; i < fields.length; i++) {
        fields[i] = value(json.get(i), struct.fields()[i].dataType());
      }
      return new GenericInternalRow(fields);
    }
    throw new IllegalArgumentException("no column of rows from the planner can be " + type.sql());
  }

  private static Object[] values(JsonNode list, DataType type) {
    Object[] found = new Object[list.size()];
    for (int i = 0; i < found.length; i++) {
      found[i] = value(list.get(i), type);
    }
    return found;
  }

  private static ArrayBasedMapData map(JsonNode pairs, MapType type) {
    Object[] keys = new Object[pairs.size()];
    Object[] values = new Object[pairs.size()];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = value(pairs.get(i).get(0), type.keyType());
      values[i] = value(pairs.get(i).get(1), type.valueType());
    }
    return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values));
  }

  private static byte[] bytes(JsonNode base64) {
    try {
      return base64.binaryValue();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
