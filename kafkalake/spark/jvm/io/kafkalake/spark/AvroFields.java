package io.kafkalake.spark;

import java.util.Arrays;
import org.apache.avro.Schema;
import org.apache.spark.sql.types.StructType;

/**
 * Fields of Avro values as columns, as `kafkalake.reader.avro_values` reads them: a value that is no record of the schema is a row of nulls,
 * a field that does not fit its column is null and leaves the others as they are.
 */
final class AvroFields extends ValueFields {
  private final AvroScanner scanner;
  private final AvroReader[] readers;
  private final int headerBytes;
  private final AvroInput in = new AvroInput();

  /** @param fields of the values, by their names in the schema */
  AvroFields(StructType fields, AvroValues values) {
    super(fields);
    Schema record = values.parse();
    scanner = new AvroScanner(record, Arrays.asList(fields.fieldNames()));
    readers = new AvroReader[fields.size()];
    for (int i = 0; i < readers.length; i++) {
      readers[i] = AvroReader.of(record.getField(fields.apply(i).name()).schema(), fields.apply(i).dataType());
    }
    headerBytes = values.schemaId() == null ? 0 : AvroValues.HEADER_BYTES;
  }

  @Override
  void append(byte[] data, int begin, int end) {
    boolean hasHeader = headerBytes == 0 || (end - begin >= headerBytes && data[begin] == 0);
    in.set(data, begin + (hasHeader ? headerBytes : 0), end);
    if (!hasHeader || !scanner.scan(in)) {
      appendNull();
      return;
    }
    for (int i = 0; i < readers.length; i++) {
      if (scanner.begins[i] == AvroScanner.ABSENT) {
        readers[i].appendNull(column(i));
      } else {
        in.set(data, scanner.begins[i], end);
        readers[i].append(in, column(i));
      }
    }
  }

  @Override
  void appendNull() {
    for (int i = 0; i < readers.length; i++) {
      readers[i].appendNull(column(i));
    }
  }
}
