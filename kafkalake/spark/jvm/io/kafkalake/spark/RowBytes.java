package io.kafkalake.spark;

import java.nio.ByteOrder;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Bytes where they are: in a row, or in an array. One object serves for all rows of a task, so that a row makes no garbage. */
final class RowBytes {
  private static final int MURMUR_SEED = 0x9747b28c;
  private static final int MURMUR_MULTIPLIER = 0x5bd1e995;
  private static final boolean IS_LITTLE_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

  private Object base;
  private long address;
  private int length = -1;

  void setNull() {
    base = null;
    length = -1;
  }

  void set(byte[] bytes, int count) {
    base = bytes;
    address = Platform.BYTE_ARRAY_OFFSET;
    length = count;
  }

  /** Takes a column of a row, which is a string (its UTF-8) or binary. */
  void set(SpecializedGetters row, int ordinal, boolean isString) {
    if (row.isNullAt(ordinal)) {
      setNull();
    } else if (row instanceof UnsafeRow) {
      UnsafeRow unsafe = (UnsafeRow) row;
      long place = unsafe.getLong(ordinal);
      base = unsafe.getBaseObject();
      address = unsafe.getBaseOffset() + (place >>> 32);
      length = (int) place;
    } else if (isString) {
      UTF8String text = row.getUTF8String(ordinal);
      base = text.getBaseObject();
      address = text.getBaseOffset();
      length = text.numBytes();
    } else {
      byte[] bytes = row.getBinary(ordinal);
      set(bytes, bytes.length);
    }
  }

  boolean isNull() {
    return length < 0;
  }

  /** The number of bytes; 0 of null. */
  int length() {
    return Math.max(length, 0);
  }

  byte[] toArray() {
    byte[] bytes = new byte[length];
    copyTo(bytes, 0);
    return bytes;
  }

  void copyTo(byte[] target, int position) {
    Platform.copyMemory(base, address, target, Platform.BYTE_ARRAY_OFFSET + position, length);
  }

  /** The partition of a key as in Kafka's clients: `kafkalake/client/partitioner.py` has the source. */
  int partition(int partitions) {
    return (murmur2() & 0x7fffffff) % partitions;
  }

  private int murmur2() {
    int hash = MURMUR_SEED ^ length;
    int whole = length & ~3;
    for (int i = 0; i < whole; i += 4) {
      int word = Platform.getInt(base, address + i);
      word = (IS_LITTLE_ENDIAN ? word : Integer.reverseBytes(word)) * MURMUR_MULTIPLIER;
      word ^= word >>> 24;
      hash = hash * MURMUR_MULTIPLIER ^ word * MURMUR_MULTIPLIER;
    }
    if (whole < length) {
      for (int i = whole; i < length; i++) {
        hash ^= (Platform.getByte(base, address + i) & 0xff) << 8 * (i - whole);
      }
      hash *= MURMUR_MULTIPLIER;
    }
    hash ^= hash >>> 13;
    hash *= MURMUR_MULTIPLIER;
    return hash ^ hash >>> 15;
  }
}
