package io.kafkalake.spark;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes values of one type as Avro, as `kafkalake/reader/avro_records.py` does: what the schema does not let be is refused with a
 * `StagingException`.
 */
interface AvroFormat {
  /** Writes a value, which may be null. */
  void put(AvroOutput out, SpecializedGetters values, int ordinal);

  /**
   * @param type of the column, of those that the planner gives the schema; but bytes may be text, as INSERT is offered it
   * @param where the column, for an error
   */
  static AvroFormat of(Schema schema, DataType type, String where) {
    return orNull(schema, ofNotNull(AvroValues.notNull(schema), type, where), where);
  }

  private static AvroFormat orNull(Schema schema, AvroFormat format, String where) {
    if (!schema.isUnion()) {
      return (out, values, at) -> {
        if (values.isNullAt(at)) {
          throw isNull(where);
        }
        format.put(out, values, at);
      };
    }
    List<Schema> branches = schema.getTypes();
    int ofNotNull = branches.indexOf(AvroValues.notNull(schema));
    int ofNull = -1;
    for (int i = 0; i < branches.size(); i++) {
      ofNull = branches.get(i).getType() == Schema.Type.NULL ? i : ofNull;
    }
    int nullBranch = ofNull;
    return (out, values, at) -> {
      if (!values.isNullAt(at)) {
        out.putLong(ofNotNull);
        format.put(out, values, at);
      } else if (nullBranch < 0) {
        throw isNull(where);
      } else {
        out.putLong(nullBranch);
      }
    };
  }

  private static StagingException isNull(String where) {
    return new StagingException("column " + where + " is null in a row, which the Avro schema does not let it be");
  }

  private static AvroFormat ofNotNull(Schema schema, DataType type, String where) {
    switch (schema.getType()) {
      case BOOLEAN:
        return (out, values, at) -> out.putByte(values.getBoolean(at) ? 1 : 0);
      case INT:
      case LONG:
        return ofWhole(schema, type);
      case FLOAT:
        return (out, values, at) -> out.putFixedLong(Float.floatToRawIntBits(values.getFloat(at)), Float.BYTES);
      case DOUBLE:
        return (out, values, at) -> out.putFixedLong(Double.doubleToRawLongBits(values.getDouble(at)), Double.BYTES);
      case ENUM:
        return ofEnum(schema.getEnumSymbols(), where);
      case STRING:
        return (out, values, at) -> {
          UTF8String text = values.getUTF8String(at);
          if (!text.isValid()) {
            throw new StagingException("column " + where + " is no UTF-8 in a row, which strings in Avro are");
          }
          out.putBytes(text.getBytes());
        };
      case BYTES:
        return (out, values, at) -> out.putBytes(bytes(values, at, type));
      case FIXED:
        int size = schema.getFixedSize();
        return (out, values, at) -> out.putRaw(sized(bytes(values, at, type), size, type, where));
      case ARRAY:
        AvroFormat element = of(schema.getElementType(), ((ArrayType) type).elementType(), where + "[]");
        return (out, values, at) -> putArray(out, values.getArray(at), element);
      case MAP:
        AvroFormat value = of(schema.getValueType(), ((MapType) type).valueType(), where + "[]");
        return (out, values, at) -> putMap(out, values.getMap(at), value);
      default:
        return new OfRecord(schema, (StructType) type, where);
    }
  }

  private static AvroFormat ofWhole(Schema schema, DataType type) {
    if (type instanceof IntegerType || type instanceof DateType) {
      return (out, values, at) -> out.putLong(values.getInt(at));
    } else if (type instanceof ShortType) {
      return (out, values, at) -> out.putLong(values.getShort(at));
    } else if (type instanceof ByteType) {
      return (out, values, at) -> out.putLong(values.getByte(at));
    } else if (AvroValues.isMillis(schema)) {
      return (out, values, at) -> out.putLong(Math.floorDiv(values.getLong(at), 1000L));
    }
    return (out, values, at) -> out.putLong(values.getLong(at));
  }

  private static AvroFormat ofEnum(List<String> symbols, String where) {
    Map<UTF8String, Integer> numbers = new HashMap<>();
    symbols.forEach(symbol -> numbers.put(UTF8String.fromString(symbol), numbers.size()));
    return (out, values, at) -> {
      Integer number = numbers.get(values.getUTF8String(at));
      if (number == null) {
        throw new StagingException(
            "column " + where + " is '" + values.getUTF8String(at) + "' in a row, and in Avro one of " + String.join(", ", symbols));
      }
      out.putLong(number);
    };
  }

  /** The bytes of a column, or the unscaled number of a decimal, in as few bytes as it needs. */
  private static byte[] bytes(SpecializedGetters values, int at, DataType type) {
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return values.getDecimal(at, decimal.precision(), decimal.scale()).toJavaBigDecimal().setScale(decimal.scale()).unscaledValue()
          .toByteArray();
    }
    return type instanceof BinaryType ? values.getBinary(at) : values.getUTF8String(at).getBytes();
  }

  private static byte[] sized(byte[] bytes, int size, DataType type, String where) {
    if (bytes.length == size) {
      return bytes;
    }
    if (!(type instanceof DecimalType) || bytes.length > size) {
      throw new StagingException("column " + where + " has not " + size + " bytes in a row, as the Avro schema wants");
    }
    ByteBuffer filled = ByteBuffer.allocate(size);
    Arrays.fill(filled.array(), (byte) (bytes[0] < 0 ? -1 : 0));
    filled.put(size - bytes.length, bytes);
    return filled.array();
  }

  private static void putArray(AvroOutput out, ArrayData elements, AvroFormat format) {
    int count = elements.numElements();
    if (count > 0) {
      out.putLong(count);
    }
    for (int i = 0; i < count; i++) {
      format.put(out, elements, i);
    }
    out.putLong(0);
  }

  private static void putMap(AvroOutput out, MapData pairs, AvroFormat format) {
    int count = pairs.numElements();
    if (count > 0) {
      out.putLong(count);
    }
    for (int i = 0; i < count; i++) {
      out.putBytes(pairs.keyArray().getUTF8String(i).getBytes());
      format.put(out, pairs.valueArray(), i);
    }
    out.putLong(0);
  }

  /** Records whose fields are columns side by side. */
  final class OfRecord implements AvroFormat {
    private final AvroFormat[] formats;
    private final int[] ordinals;
    private final int[] nullBranches;
    private final int columns;

    OfRecord(Schema record, StructType type, String where) {
      this(record, type, where.isEmpty() ? "" : where + ".", type.size());
    }

    /** @param columns of a row: some of the record's fields, by their names, and others. Those that are not there are null. */
    OfRecord(Schema record, StructType columns) {
      this(record, columns, "", columns.size());
    }

    private OfRecord(Schema record, StructType type, String prefix, int columns) {
      this.columns = columns;
      List<Schema.Field> fields = record.getFields();
      formats = new AvroFormat[fields.size()];
      ordinals = new int[formats.length];
      nullBranches = new int[formats.length];
      for (int i = 0; i < formats.length; i++) {
        Schema.Field field = fields.get(i);
        ordinals[i] = RowRecord.position(type, field.name());
        if (ordinals[i] >= 0) {
          formats[i] = of(field.schema(), type.apply(ordinals[i]).dataType(), prefix + field.name());
        } else {
          nullBranches[i] = field.schema().isUnion() ? field.schema().getTypes().indexOf(Schema.create(Schema.Type.NULL)) : -1;
        }
      }
    }

    @Override
    public void put(AvroOutput out, SpecializedGetters values, int ordinal) {
      putFields(out, values.getStruct(ordinal, columns));
    }

    void putFields(AvroOutput out, SpecializedGetters row) {
      for (int i = 0; i < formats.length; i++) {
        if (ordinals[i] >= 0) {
          formats[i].put(out, row, ordinals[i]);
        } else {
          out.putLong(nullBranches[i]); // the planner has refused a write that lacks a field that cannot be null
        }
      }
    }
  }
}
