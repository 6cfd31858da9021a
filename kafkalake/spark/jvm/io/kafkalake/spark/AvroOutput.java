package io.kafkalake.spark;

import java.util.Arrays;

/** Bytes that are written, in Avro's binary encoding. */
final class AvroOutput {
  private static final int VARINT_BYTES_MAX = 10;

  private byte[] bytes = new byte[1024];
  private int length;

  byte[] bytes() {
    return bytes;
  }

  int length() {
    return length;
  }

  /** Forgets what was written. */
  void clear() {
    length = 0;
  }

  void putByte(int value) {
    reserve(1);
    bytes[length++] = (byte) value;
  }

  /** An int or a long, of variable length and zigzag. */
  void putLong(long number) {
    reserve(VARINT_BYTES_MAX);
    long left = number << 1 ^ number >> 63;
    for (; (left & ~0x7FL) != 0; left >>>= 7) {
      bytes[length++] = (byte) (left & 0x7F | 0x80);
    }
    bytes[length++] = (byte) left;
  }

  /** The lowest bytes of a number, the lowest of them first. */
  void putFixedLong(long number, int size) {
    reserve(size);
    for (int i = 0; i < size; i++) {
      bytes[length++] = (byte) (number >>> 8 * i);
    }
  }

  /** Bytes, and their length before them. */
  void putBytes(byte[] data) {
    putLong(data.length);
    putRaw(data);
  }

  void putRaw(byte[] data) {
    reserve(data.length);
    System.arraycopy(data, 0, bytes, length, data.length);
    length += data.length;
  }

  private void reserve(int more) {
    int needed = Math.addExact(length, more);
    if (needed > bytes.length) {
      bytes = Arrays.copyOf(bytes, Math.max(needed, bytes.length < 1 << 29 ? 2 * bytes.length : needed));
    }
  }
}
