package io.kafkalake.spark;

import java.util.Arrays;

/** A column of byte strings that grows row by row, in Arrow's three buffers: validity, offsets, data. */
final class BinaryColumn {
  private static final int FIRST_ROWS = 16;
  private static final int FIRST_BYTES = 256;
  /** Up to here memory is doubled; beyond it is what is needed, since a batch is written when it has so many bytes. */
  private static final int DOUBLED_BYTES = 1 << 20;

  private byte[] validity = new byte[FIRST_ROWS / 8];
  private int[] offsets = new int[FIRST_ROWS + 1];
  private byte[] data = new byte[FIRST_BYTES];
  private int rows;
  private int nulls;

  void add(RowBytes bytes) {
    if (rows + 1 == offsets.length) {
      offsets = Arrays.copyOf(offsets, 2 * rows + 1);
      validity = Arrays.copyOf(validity, 2 * rows / 8);
    }
    int begin = offsets[rows];
    int end = Math.addExact(begin, bytes.length());
    if (end > data.length) {
      data = Arrays.copyOf(data, Math.max(end, Math.min(2 * data.length, DOUBLED_BYTES)));
    }
    if (bytes.isNull()) {
      nulls++;
    } else {
      validity[rows >> 3] |= (byte) (1 << (rows & 7));
      bytes.copyTo(data, begin);
    }
    offsets[++rows] = end;
  }

  /** Forgets the rows and keeps the memory. */
  void clear() {
    Arrays.fill(validity, 0, (rows + 7) / 8, (byte) 0);
    rows = 0;
    nulls = 0;
  }

  int rows() {
    return rows;
  }

  int nulls() {
    return nulls;
  }

  byte[] validity() {
    return validity;
  }

  /** `rows + 1` ends, the first of them 0. */
  int[] offsets() {
    return offsets;
  }

  byte[] data() {
    return data;
  }

  int dataBytes() {
    return offsets[rows];
  }

  /** The bytes of memory that it holds. */
  long memory() {
    return data.length + 4L * offsets.length + validity.length;
  }
}
