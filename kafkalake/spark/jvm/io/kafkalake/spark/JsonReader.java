package io.kafkalake.spark;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.types.UTF8String;

/** Adds JSON values, which `JsonScanner` has found, to a column of one type; null where a value does not fit it. */
interface JsonReader {
  void append(WritableColumnVector column, byte[] data, int begin, int end);

  /** Add a value, of which null is one. */
  default void appendValue(WritableColumnVector column, byte[] data, int begin, int end) {
    if (data[begin] == 'n') {
      appendNull(column);
    } else {
      append(column, data, begin, end);
    }
  }

  default void appendNull(WritableColumnVector column) {
    column.appendNull();
  }

  /**
   * @param zone of times that name none
   */
  static JsonReader of(DataType type, ZoneId zone) {
    if (type instanceof StringType) {
      return JsonScalars::appendText;
    } else if (type instanceof LongType) {
      return (column, data, begin, end) -> JsonScalars.appendWhole(column, data, begin, end, Long.MIN_VALUE, Long.MAX_VALUE, 8);
    } else if (type instanceof IntegerType) {
      return (column, data, begin, end) -> JsonScalars.appendWhole(column, data, begin, end, Integer.MIN_VALUE, Integer.MAX_VALUE, 4);
    } else if (type instanceof ShortType) {
      return (column, data, begin, end) -> JsonScalars.appendWhole(column, data, begin, end, Short.MIN_VALUE, Short.MAX_VALUE, 2);
    } else if (type instanceof ByteType) {
      return (column, data, begin, end) -> JsonScalars.appendWhole(column, data, begin, end, Byte.MIN_VALUE, Byte.MAX_VALUE, 1);
    } else if (type instanceof DoubleType || type instanceof FloatType) {
      boolean isDouble = type instanceof DoubleType;
      return (column, data, begin, end) -> JsonScalars.appendReal(column, data, begin, end, isDouble);
    } else if (type instanceof BooleanType) {
      return JsonScalars::appendBoolean;
    } else if (type instanceof DecimalType) {
      return (column, data, begin, end) -> JsonScalars.appendDecimal(column, data, begin, end, (DecimalType) type);
    } else if (type instanceof TimestampType || type instanceof TimestampNTZType) {
      ZoneId ofTimes = type instanceof TimestampType ? zone : null;
      return (column, data, begin, end) -> JsonScalars.appendTime(column, data, begin, end, ofTimes);
    } else if (type instanceof DateType) {
      return JsonScalars::appendDate;
    } else if (type instanceof StructType) {
      return new OfObject((StructType) type, zone);
    } else if (type instanceof ArrayType) {
      return new OfArray(of(((ArrayType) type).elementType(), zone));
    } else if (type instanceof MapType) {
      return new OfMap(of(((MapType) type).valueType(), zone));
    }
    return new OfVariant();
  }

  /** Throws Spark's exception for users if JSON has no such type. */
  static void check(String column, DataType type) {
    if (type instanceof StructType) {
      for (StructField field : ((StructType) type).fields()) {
        check(column + "." + field.name(), field.dataType());
      }
    } else if (type instanceof ArrayType) {
      check(column + "[]", ((ArrayType) type).elementType());
    } else if (type instanceof MapType) {
      DataType key = ((MapType) type).keyType();
      if (!(key instanceof StringType)) {
        throw KafkaLakeExtensions.refused("column " + column + ": the keys of a JSON object are strings, not " + key.sql());
      }
      check(column + "[]", ((MapType) type).valueType());
    } else if (!(type instanceof StringType
        || type instanceof LongType
        || type instanceof IntegerType
        || type instanceof ShortType
        || type instanceof ByteType
        || type instanceof DoubleType
        || type instanceof FloatType
        || type instanceof BooleanType
        || type instanceof DecimalType
        || type instanceof TimestampType
        || type instanceof TimestampNTZType
        || type instanceof DateType
        || type instanceof VariantType)) {
      throw KafkaLakeExtensions.refused("column " + column + " cannot be " + type.sql() + ": JSON has no such type");
    }
  }

  /** Objects as structs: the members, each with its reader; a scanner of its own, as objects are nested. */
  final class OfObject implements JsonReader {
    private final JsonScanner scanner;
    private final JsonReader[] readers;

    OfObject(StructType fields, ZoneId zone) {
      byte[][] names = new byte[fields.size()][];
      readers = new JsonReader[names.length];
      for (int i = 0; i < names.length; i++) {
        names[i] = fields.apply(i).name().getBytes(StandardCharsets.UTF_8);
        readers[i] = JsonReader.of(fields.apply(i).dataType(), zone);
      }
      scanner = new JsonScanner(names);
    }

    /** Add a row to columns that stand side by side. */
    void append(WritableColumnVector[] columns, byte[] data, int begin, int end) {
      if (!scanner.scan(data, begin, end)) {
        appendNulls(columns);
        return;
      }
      for (int i = 0; i < readers.length; i++) {
        appendMember(columns[i], i, data);
      }
    }

    void appendNulls(WritableColumnVector[] columns) {
      for (int i = 0; i < columns.length; i++) {
        readers[i].appendNull(columns[i]);
      }
    }

    private void appendMember(WritableColumnVector column, int member, byte[] data) {
      int begin = scanner.begins[member];
      if (begin == JsonScanner.ABSENT) {
        readers[member].appendNull(column);
      } else {
        readers[member].appendValue(column, data, begin, scanner.ends[member]);
      }
    }

    @Override
    public void append(WritableColumnVector column, byte[] data, int begin, int end) {
      if (data[begin] != '{' || !scanner.scan(data, begin, end)) {
        appendNull(column);
        return;
      }
      column.appendStruct(false);
      for (int i = 0; i < readers.length; i++) {
        appendMember(column.getChild(i), i, data);
      }
    }

    @Override
    public void appendNull(WritableColumnVector column) {
      column.appendStruct(true);
    }
  }

  /** Arrays. */
  final class OfArray implements JsonReader {
    private final JsonReader reader;

    OfArray(JsonReader reader) {
      this.reader = reader;
    }

    @Override
    public void append(WritableColumnVector column, byte[] data, int begin, int end) {
      if (data[begin] != '[') {
        column.appendNull();
        return;
      }
      JsonParts parts = new JsonParts(data, begin, end);
      column.appendArray(parts.count());
      WritableColumnVector elements = column.arrayData();
      while (parts.next()) {
        reader.appendValue(elements, data, parts.begin, parts.end);
      }
    }
  }

  /** Objects as maps; of members of one name the last counts, at the place of the first. */
  final class OfMap implements JsonReader {
    private final JsonReader reader;

    OfMap(JsonReader reader) {
      this.reader = reader;
    }

    @Override
    public void append(WritableColumnVector column, byte[] data, int begin, int end) {
      Map<UTF8String, int[]> members = data[begin] == '{' ? members(data, begin, end) : null;
      if (members == null) {
        column.appendNull();
        return;
      }
      column.appendArray(members.size());
      WritableColumnVector keys = column.getChild(0);
      WritableColumnVector values = column.getChild(1);
      members.forEach(
          (name, span) -> {
            byte[] bytes = name.getBytes();
            keys.appendByteArray(bytes, 0, bytes.length);
            reader.appendValue(values, data, span[0], span[1]);
          });
    }

    /** By name, where the value begins and ends; null where a name has half of a surrogate pair. */
    private static Map<UTF8String, int[]> members(byte[] data, int begin, int end) {
      Map<UTF8String, int[]> members = new LinkedHashMap<>();
      JsonParts parts = new JsonParts(data, begin, end);
      while (parts.next()) {
        byte[] name = JsonText.unescape(data, parts.begin + 1, parts.end - 1);
        if (name == null) {
          return null;
        }
        parts.next();
        members.put(UTF8String.fromBytes(name), new int[] {parts.begin, parts.end});
      }
      return members;
    }
  }

  /** Any values, as Spark's `parse_json` reads them; of members of one name the last counts. JSON's null is a variant too. */
  final class OfVariant implements JsonReader {
    private static final JsonFactory JSON = JsonFactory.builder().enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS).build();

    @Override
    public void append(WritableColumnVector column, byte[] data, int begin, int end) {
      Variant variant;
      try (JsonParser parser = JSON.createParser(data, begin, end - begin)) {
        parser.nextToken();
        variant = VariantBuilder.parseJson(parser, true);
      } catch (IOException | RuntimeException error) { // larger than a variant can be, for example
        appendNull(column);
        return;
      }
      column.appendStruct(false);
      column.getChild(0).appendByteArray(variant.getValue(), 0, variant.getValue().length);
      column.getChild(1).appendByteArray(variant.getMetadata(), 0, variant.getMetadata().length);
    }

    @Override
    public void appendValue(WritableColumnVector column, byte[] data, int begin, int end) {
      append(column, data, begin, end);
    }

    @Override
    public void appendNull(WritableColumnVector column) {
      column.appendStruct(true);
    }
  }
}
