package io.kafkalake.spark;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;

/** Records for one partition that are not written yet, in the columns of a segment. */
final class StagedBatch {
  /** The size of the header of a record batch v2. */
  static final int OVERHEAD_BYTES = 61;
  private static final int HEADER_FIELDS = 2;
  private static final int FIRST_ROWS = 16;

  private final int topic;
  private final int partition;
  private final BinaryColumn keys = new BinaryColumn();
  private final BinaryColumn values = new BinaryColumn();
  private final RowBytes headerPart = new RowBytes();
  private long[] timestamps = new long[FIRST_ROWS];
  private int rows;
  private long bytes = OVERHEAD_BYTES;
  /** Null until a record has headers. */
  private BinaryColumn headerKeys;
  private BinaryColumn headerValues;
  private int[] headerEnds;

  /** @param topic its number */
  StagedBatch(int topic, int partition) {
    this.topic = topic;
    this.partition = partition;
  }

  void add(RowRecord record, long size) {
    keys.add(record.key());
    values.add(record.value());
    if (rows == timestamps.length) {
      timestamps = Arrays.copyOf(timestamps, 2 * rows);
    }
    timestamps[rows] = record.timestamp();
    addHeaders(record.headers());
    rows++;
    bytes += size;
  }

  private void addHeaders(ArrayData headers) {
    if (headerKeys == null) {
      if (headers == null || headers.numElements() == 0) {
        return;
      }
      headerKeys = new BinaryColumn();
      headerValues = new BinaryColumn();
      headerEnds = new int[timestamps.length + 1];
    }
    int count = headers == null ? 0 : headers.numElements();
    for (int i = 0; i < count; i++) {
      InternalRow header = headers.getStruct(i, HEADER_FIELDS);
      headerPart.set(header, 0, true);
      headerKeys.add(headerPart);
      headerPart.set(header, 1, false);
      headerValues.add(headerPart);
    }
    if (rows + 1 >= headerEnds.length) {
      headerEnds = Arrays.copyOf(headerEnds, timestamps.length + 1);
    }
    headerEnds[rows + 1] = headerKeys.rows();
  }

  /** Forgets the records and keeps the memory, but for that of headers, which most records do not have. */
  void clear() {
    keys.clear();
    values.clear();
    headerKeys = null;
    headerValues = null;
    headerEnds = null;
    rows = 0;
    bytes = OVERHEAD_BYTES;
  }

  /** Milliseconds since 1970; those that no record has become `now`. */
  long[] timestamps(long now) {
    for (int row = 0; row < rows; row++) {
      if (timestamps[row] == RowRecord.NO_TIMESTAMP) {
        timestamps[row] = now;
      }
    }
    return timestamps;
  }

  int topic() {
    return topic;
  }

  int partition() {
    return partition;
  }

  int rows() {
    return rows;
  }

  /** The bytes of the records on the wire, about. */
  long bytes() {
    return bytes;
  }

  BinaryColumn keys() {
    return keys;
  }

  BinaryColumn values() {
    return values;
  }

  /** Whether a record has headers; if not, there is nothing in the columns below. */
  boolean hasHeaders() {
    return headerKeys != null;
  }

  BinaryColumn headerKeys() {
    return headerKeys;
  }

  BinaryColumn headerValues() {
    return headerValues;
  }

  /** `rows + 1` numbers: how many headers there are before each record, and in all. */
  int[] headerEnds() {
    return headerEnds;
  }

  /** The bytes of memory that it holds. */
  long memory() {
    long ofHeaders = headerKeys == null ? 0 : headerKeys.memory() + headerValues.memory() + 4L * headerEnds.length;
    return keys.memory() + values.memory() + 8L * timestamps.length + ofHeaders;
  }
}
