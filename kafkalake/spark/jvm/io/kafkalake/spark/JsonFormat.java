package io.kafkalake.spark;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
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
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes values of one type as JSON, as `kafkalake/reader/json_texts.py` does: null fields of objects are omitted, NaN and the infinities
 * are strings, times keep all their digits and their zone.
 */
interface JsonFormat {
  String NULL = "null";
  String UTC = "UTC";

  /** Writes a value that is not null. */
  void put(JsonOutput out, SpecializedGetters values, int ordinal);

  /** @param zone of times, by the name that the session has for it */
  static JsonFormat of(DataType type, String zone) {
    if (type instanceof StringType) {
      return (out, values, at) -> out.putQuoted(values.getUTF8String(at));
    } else if (type instanceof LongType) {
      return (out, values, at) -> out.put(Long.toString(values.getLong(at)));
    } else if (type instanceof IntegerType) {
      return (out, values, at) -> out.put(Integer.toString(values.getInt(at)));
    } else if (type instanceof ShortType) {
      return (out, values, at) -> out.put(Short.toString(values.getShort(at)));
    } else if (type instanceof ByteType) {
      return (out, values, at) -> out.put(Byte.toString(values.getByte(at)));
    } else if (type instanceof DoubleType) {
      return (out, values, at) -> out.putDouble(values.getDouble(at));
    } else if (type instanceof FloatType) {
      return (out, values, at) -> out.putFloat(values.getFloat(at));
    } else if (type instanceof BooleanType) {
      return (out, values, at) -> out.put(Boolean.toString(values.getBoolean(at)));
    } else if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return (out, values, at) ->
          out.put(values.getDecimal(at, decimal.precision(), decimal.scale()).toJavaBigDecimal().toPlainString());
    } else if (type instanceof DateType) {
      return (out, values, at) -> {
        out.put('"');
        out.putDate(LocalDate.ofEpochDay(values.getInt(at)));
        out.put('"');
      };
    } else if (type instanceof TimestampType || type instanceof TimestampNTZType) {
      ZoneId ofTimes = type instanceof TimestampType ? ZoneId.of(zone) : null;
      return (out, values, at) -> {
        out.put('"');
        putMoment(out, values.getLong(at), ofTimes);
        out.put('"');
      };
    } else if (type instanceof VariantType) {
      return (out, values, at) -> out.put(values.getVariant(at).toJson(ZoneOffset.UTC).getBytes(StandardCharsets.UTF_8));
    } else if (type instanceof StructType) {
      return new OfStruct((StructType) type, zone);
    } else if (type instanceof ArrayType) {
      return new OfArray(of(((ArrayType) type).elementType(), zone));
    } else if (type instanceof MapType) {
      return new OfMap(of(((MapType) type).valueType(), zone));
    }
    throw new IllegalArgumentException("JSON has no " + type.sql());
  }

  /** The text of a value that is a record's key: that of its JSON, without quotes. Of the types that a key can have. */
  static JsonFormat ofKey(DataType type) {
    if (type instanceof StringType) {
      return (out, values, at) -> out.put(values.getUTF8String(at).getBytes());
    } else if (type instanceof DateType) {
      return (out, values, at) -> out.putDate(LocalDate.ofEpochDay(values.getInt(at)));
    }
    return of(type, UTC);
  }

  /** @param zone null: a time without one */
  private static void putMoment(JsonOutput out, long microseconds, ZoneId zone) {
    long seconds = Math.floorDiv(microseconds, 1_000_000L);
    int nanoseconds = (int) Math.floorMod(microseconds, 1_000_000L) * 1000;
    ZoneOffset offset = zone == null ? ZoneOffset.UTC : zone.getRules().getOffset(Instant.ofEpochSecond(seconds));
    // An offset is written in minutes, and zones once had seconds (Paris in 1900: +00:09:21).
    boolean isUtc = zone != null && (zone.getId().equals(UTC) || offset.getTotalSeconds() % 60 != 0);
    out.putTime(LocalDateTime.ofEpochSecond(seconds, nanoseconds, isUtc ? ZoneOffset.UTC : offset));
    if (isUtc) {
      out.put('Z');
    } else if (zone != null) {
      out.putOffset(offset.getTotalSeconds());
    }
  }

  /** Objects whose members are columns side by side. */
  final class OfStruct implements JsonFormat {
    private final byte[][] names;
    private final JsonFormat[] formats;
    private final int[] ordinals;

    OfStruct(StructType type, String zone) {
      this(type, IntStream.range(0, type.size()).toArray(), zone);
    }

    /** @param ordinals of the members in a row, which may have other columns too */
    OfStruct(StructType members, int[] ordinals, String zone) {
      this.ordinals = ordinals;
      names = new byte[members.size()][];
      formats = new JsonFormat[members.size()];
      for (int i = 0; i < formats.length; i++) {
        names[i] = quoted(members.apply(i).name());
        formats[i] = of(members.apply(i).dataType(), zone);
      }
    }

    private static byte[] quoted(String name) {
      JsonOutput out = new JsonOutput();
      out.putQuoted(UTF8String.fromString(name));
      out.put(':');
      return out.text().getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public void put(JsonOutput out, SpecializedGetters values, int ordinal) {
      putMembers(out, values.getStruct(ordinal, formats.length));
    }

    void putMembers(JsonOutput out, SpecializedGetters members) {
      char before = '{';
      for (int i = 0; i < formats.length; i++) {
        if (!members.isNullAt(ordinals[i])) {
          out.put(before);
          out.put(names[i]);
          formats[i].put(out, members, ordinals[i]);
          before = ',';
        }
      }
      out.put(before == '{' ? "{}" : "}");
    }
  }

  /** Arrays. */
  final class OfArray implements JsonFormat {
    private final JsonFormat format;

    OfArray(JsonFormat format) {
      this.format = format;
    }

    @Override
    public void put(JsonOutput out, SpecializedGetters values, int ordinal) {
      ArrayData elements = values.getArray(ordinal);
      out.put('[');
      for (int i = 0; i < elements.numElements(); i++) {
        if (i > 0) {
          out.put(',');
        }
        putOrNull(format, out, elements, i);
      }
      out.put(']');
    }
  }

  /** Objects whose names are a map's keys, which are strings. */
  final class OfMap implements JsonFormat {
    private final JsonFormat format;

    OfMap(JsonFormat format) {
      this.format = format;
    }

    @Override
    public void put(JsonOutput out, SpecializedGetters values, int ordinal) {
      MapData map = values.getMap(ordinal);
      out.put('{');
      for (int i = 0; i < map.numElements(); i++) {
        if (i > 0) {
          out.put(',');
        }
        out.putQuoted(map.keyArray().getUTF8String(i));
        out.put(':');
        putOrNull(format, out, map.valueArray(), i);
      }
      out.put('}');
    }
  }

  private static void putOrNull(JsonFormat format, JsonOutput out, ArrayData values, int ordinal) {
    if (values.isNullAt(ordinal)) {
      out.put(NULL);
    } else {
      format.put(out, values, ordinal);
    }
  }
}
