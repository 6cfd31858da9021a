package io.kafkalake.spark;

import java.nio.ByteBuffer;
import java.time.ZoneId;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The columns of rows that are fields of a value, and the key and the value that they make, as `kafkalake/reader/json_texts.py` makes
 * them: an object for every row of a typed topic, or a record if its values are Avro (`avro_records.py`); else an object where a field is
 * not null and no value is given, with which the fields must agree.
 */
final class RowFields {
  private final WritePlan plan;
  private final int[] columns;
  private final StructType types;
  /** Null where values are Avro. */
  private final JsonFormat.OfStruct object;
  /** Null where values are JSON. */
  private final AvroFormat.OfRecord record;
  private final int keyColumn;
  private final JsonFormat keyFormat;
  private final JsonOutput valueOut = new JsonOutput();
  private final AvroOutput avroOut = new AvroOutput();
  private final JsonOutput keyOut = new JsonOutput();
  /** Null until a row has a value and fields. */
  private GivenValue given;

  RowFields(WritePlan plan) {
    this.plan = plan;
    StructType all = plan.columns();
    columns = IntStream.range(0, all.size()).filter(i -> plan.fields().containsKey(all.apply(i).name())).toArray();
    StructType found = new StructType();
    for (int column : columns) {
      StructField field = all.apply(column);
      found = found.add(plan.fields().get(field.name()), field.dataType());
    }
    types = found;
    boolean isAvro = plan.avro() != null;
    object = isAvro ? null : new JsonFormat.OfStruct(types, columns, plan.zone());
    record = isAvro ? new AvroFormat.OfRecord(plan.avro().parse(), all) : null;
    keyColumn = plan.key() == null ? -1 : RowRecord.position(all, plan.key());
    keyFormat = keyColumn < 0 ? null : JsonFormat.ofKey(all.apply(keyColumn).dataType());
  }

  /** Sets the key and the value, where the fields make them. Throws `StagingException` where a value says something else. */
  void read(InternalRow row, RowBytes key, RowBytes value) {
    if (plan.isTyped()) {
      makeKey(row, key);
      makeValue(row, value);
    } else if (hasField(row)) {
      if (value.isNull()) {
        makeValue(row, value);
      } else {
        check(row, value.toArray());
      }
    }
  }

  private boolean hasField(InternalRow row) {
    for (int column : columns) {
      if (!row.isNullAt(column)) {
        return true;
      }
    }
    return false;
  }

  private void makeKey(InternalRow row, RowBytes key) {
    if (keyColumn < 0 || row.isNullAt(keyColumn)) {
      key.setNull();
      return;
    }
    keyOut.clear();
    keyFormat.put(keyOut, row, keyColumn);
    key.set(keyOut.bytes(), keyOut.length());
  }

  private void makeValue(InternalRow row, RowBytes value) {
    if (record != null) {
      makeRecord(row, value);
      return;
    }
    valueOut.clear();
    object.putMembers(valueOut, row);
    value.set(valueOut.bytes(), valueOut.length());
  }

  private void makeRecord(InternalRow row, RowBytes value) {
    avroOut.clear();
    if (plan.avro().schemaId() != null) {
      avroOut.putByte(0);
      avroOut.putRaw(ByteBuffer.allocate(Integer.BYTES).putInt(plan.avro().schemaId()).array());
    }
    record.putFields(avroOut, row);
    value.set(avroOut.bytes(), avroOut.length());
  }

  private void check(InternalRow row, byte[] value) {
    if (given == null) {
      given = new GivenValue(types, plan.zone());
    }
    InternalRow read = given.read(value);
    for (int i = 0; i < columns.length; i++) {
      if (row.isNullAt(columns[i])) {
        continue;
      }
      String there = text(given.formats[i], row, columns[i]);
      String said = read.isNullAt(i) ? "nothing" : text(given.formats[i], read, i);
      if (!there.equals(said)) {
        throw new StagingException(
            "a row has a value, and column " + plan.columns().apply(columns[i]).name() + " is " + there + ", where the value has " + said
                + ": give the value, or the fields of valueSchema");
      }
    }
  }

  /** The fields of a value that a row has beside them. */
  private static final class GivenValue {
    private final JsonFormat[] formats;
    private final JsonFields fields;
    private final ColumnarBatch columns;

    GivenValue(StructType types, String zone) {
      formats = IntStream.range(0, types.size()).mapToObj(i -> JsonFormat.of(types.apply(i).dataType(), zone)).toArray(JsonFormat[]::new);
      fields = new JsonFields(types, ZoneId.of(zone));
      columns = new ColumnarBatch(IntStream.range(0, types.size()).mapToObj(fields::column).toArray(ColumnVector[]::new), 1);
    }

    InternalRow read(byte[] value) {
      fields.reset(1);
      fields.append(value, 0, value.length);
      return columns.getRow(0);
    }
  }

  private String text(JsonFormat format, InternalRow row, int ordinal) {
    valueOut.clear();
    format.put(valueOut, row, ordinal);
    return valueOut.text();
  }
}
