package io.kafkalake.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Adds Avro values, which `AvroScanner` has found, to a column of one type; null where a value does not fit it. */
interface AvroReader {
  /** Add the value at the input's place, and go behind it. */
  void append(AvroInput in, WritableColumnVector column);

  default void appendNull(WritableColumnVector column) {
    column.appendNull();
  }

  /** @param type of the column, of those that the planner gives the schema */
  static AvroReader of(Schema schema, DataType type) {
    switch (schema.getType()) {
      case UNION:
        return new OfUnion(schema, type);
      case BOOLEAN:
        return (in, column) -> column.appendBoolean(in.data[in.at++] != 0);
      case INT:
      case LONG:
        return ofWhole(schema, type);
      case FLOAT:
        return ofFloat(type instanceof DoubleType);
      case DOUBLE:
        return (in, column) -> column.appendDouble(Double.longBitsToDouble(in.readFixedLong(Double.BYTES)));
      case ENUM:
        return ofEnum(schema.getEnumSymbols());
      case STRING:
      case BYTES:
        return ofBytes(type, -1);
      case FIXED:
        return ofBytes(type, schema.getFixedSize());
      case ARRAY:
        return new OfArray(of(schema.getElementType(), ((ArrayType) type).elementType()), AvroScanner.Skip.of(schema.getElementType()));
      case MAP:
        return new OfMap(of(schema.getValueType(), ((MapType) type).valueType()), AvroScanner.Skip.of(schema.getValueType()));
      default:
        return new OfRecord(schema, (StructType) type);
    }
  }

  private static AvroReader ofWhole(Schema schema, DataType type) {
    if (type instanceof IntegerType || type instanceof DateType) {
      return (in, column) -> {
        long number = in.readLong();
        if (number == (int) number) {
          column.appendInt((int) number);
        } else {
          column.appendNull();
        }
      };
    } else if (type instanceof ShortType) {
      return (in, column) -> {
        long number = in.readLong();
        if (number == (short) number) {
          column.appendShort((short) number);
        } else {
          column.appendNull();
        }
      };
    } else if (type instanceof ByteType) {
      return (in, column) -> {
        long number = in.readLong();
        if (number == (byte) number) {
          column.appendByte((byte) number);
        } else {
          column.appendNull();
        }
      };
    } else if (!(type instanceof LongType) && AvroValues.isMillis(schema)) {
      return (in, column) -> {
        long millis = in.readLong();
        if (Math.abs(millis) <= Long.MAX_VALUE / 1000 && millis != Long.MIN_VALUE) {
          column.appendLong(1000 * millis);
        } else {
          column.appendNull();
        }
      };
    }
    return (in, column) -> column.appendLong(in.readLong());
  }

  private static AvroReader ofFloat(boolean isDouble) {
    return (in, column) -> {
      float number = Float.intBitsToFloat((int) in.readFixedLong(Float.BYTES));
      if (isDouble) {
        column.appendDouble(number);
      } else {
        column.appendFloat(number);
      }
    };
  }

  private static AvroReader ofEnum(List<String> symbols) {
    byte[][] texts = symbols.stream().map(symbol -> symbol.getBytes(StandardCharsets.UTF_8)).toArray(byte[][]::new);
    return (in, column) -> {
      long number = in.readLong();
      if (number < 0 || number >= texts.length) {
        column.appendNull();
      } else {
        column.appendByteArray(texts[(int) number], 0, texts[(int) number].length);
      }
    };
  }

  /** @param size how many bytes there are; -1: they have their length before them */
  private static AvroReader ofBytes(DataType type, int size) {
    if (type instanceof DecimalType) {
      return (in, column) -> appendDecimal(in, size < 0 ? in.readLength() : size, column, (DecimalType) type);
    }
    boolean isText = type instanceof StringType;
    return (in, column) -> {
      int length = size < 0 ? in.readLength() : size;
      if (isText && !isUtf8(in.data, in.at, length)) {
        column.appendNull();
      } else {
        column.appendByteArray(in.data, in.at, length);
      }
      in.at += length;
    };
  }

  private static boolean isUtf8(byte[] data, int begin, int length) {
    for (int at = begin; at < begin + length; at++) {
      if (data[at] < 0) {
        return UTF8String.fromBytes(data, at, begin + length - at).isValid();
      }
    }
    return true;
  }

  private static void appendDecimal(AvroInput in, int length, WritableColumnVector column, DecimalType type) {
    int begin = in.at;
    in.at += length;
    BigInteger unscaled = length == 0 ? null : new BigInteger(in.data, begin, length);
    if (unscaled == null || new BigDecimal(unscaled).precision() > type.precision()) {
      column.appendNull();
    } else if (type.precision() <= 9) {
      column.appendInt(unscaled.intValue());
    } else if (type.precision() <= 18) {
      column.appendLong(unscaled.longValue());
    } else {
      byte[] bytes = unscaled.toByteArray();
      column.appendByteArray(bytes, 0, bytes.length);
    }
  }

  /** Unions, of one type and null, or of two numbers. */
  final class OfUnion implements AvroReader {
    private final AvroReader[] readers;
    private final AvroReader notNull;

    OfUnion(Schema union, DataType type) {
      List<Schema> branches = union.getTypes();
      readers = new AvroReader[branches.size()];
      for (int i = 0; i < readers.length; i++) {
        readers[i] = branches.get(i).getType() == Schema.Type.NULL ? null : AvroReader.of(branches.get(i), type);
      }
      notNull = AvroReader.of(AvroValues.notNull(union), type);
    }

    @Override
    public void append(AvroInput in, WritableColumnVector column) {
      AvroReader reader = readers[(int) in.readLong()];
      if (reader == null) {
        notNull.appendNull(column);
      } else {
        reader.append(in, column);
      }
    }

    @Override
    public void appendNull(WritableColumnVector column) {
      notNull.appendNull(column);
    }
  }

  /** Records as structs. */
  final class OfRecord implements AvroReader {
    private final AvroReader[] readers;

    OfRecord(Schema record, StructType type) {
      readers = new AvroReader[type.size()];
      for (int i = 0; i < readers.length; i++) {
        readers[i] = AvroReader.of(record.getFields().get(i).schema(), type.apply(i).dataType());
      }
    }

    @Override
    public void append(AvroInput in, WritableColumnVector column) {
      column.appendStruct(false);
      for (int i = 0; i < readers.length; i++) {
        readers[i].append(in, column.getChild(i));
      }
    }

    @Override
    public void appendNull(WritableColumnVector column) {
      column.appendStruct(true);
    }
  }

  /** Arrays, whose elements are counted before they are added. */
  final class OfArray implements AvroReader {
    private final AvroReader reader;
    private final AvroScanner.Skip skip;

    OfArray(AvroReader reader, AvroScanner.Skip skip) {
      this.reader = reader;
      this.skip = skip;
    }

    @Override
    public void append(AvroInput in, WritableColumnVector column) {
      int begin = in.at;
      int elements = 0;
      for (int count = in.readBlock(); count > 0; count = in.readBlock()) {
        elements += count;
        for (int i = 0; i < count; i++) {
          skip.skip(in);
        }
      }
      in.at = begin;
      column.appendArray(elements);
      WritableColumnVector data = column.arrayData();
      for (int count = in.readBlock(); count > 0; count = in.readBlock()) {
        for (int i = 0; i < count; i++) {
          reader.append(in, data);
        }
      }
    }
  }

  /** Maps; of pairs with one key the last counts, at the place of the first. */
  final class OfMap implements AvroReader {
    private final AvroReader reader;
    private final AvroScanner.Skip skip;

    OfMap(AvroReader reader, AvroScanner.Skip skip) {
      this.reader = reader;
      this.skip = skip;
    }

    @Override
    public void append(AvroInput in, WritableColumnVector column) {
      Map<UTF8String, Integer> pairs = new LinkedHashMap<>();
      boolean isText = true;
      for (int count = in.readBlock(); count > 0; count = in.readBlock()) {
        for (int i = 0; i < count; i++) {
          int length = in.readLength();
          isText = isText && isUtf8(in.data, in.at, length);
          UTF8String key = UTF8String.fromBytes(in.data, in.at, length);
          in.at += length;
          pairs.put(key, in.at);
          skip.skip(in);
        }
      }
      if (!isText) {
        column.appendNull();
        return;
      }
      int end = in.at;
      column.appendArray(pairs.size());
      WritableColumnVector keys = column.getChild(0);
      WritableColumnVector values = column.getChild(1);
      pairs.forEach(
          (key, begin) -> {
            byte[] bytes = key.getBytes();
            keys.appendByteArray(bytes, 0, bytes.length);
            in.at = begin;
            reader.append(in, values);
          });
      in.at = end;
    }
  }
}
