package io.kafkalake.spark;

/** A place in bytes that are to be Avro; once they are found to be none, all that is read is 0. */
final class AvroInput {
  private static final int VARINT_BITS_MAX = 63;

  byte[] data;
  int at;
  int end;
  private boolean isBroken;

  /** Begin anew. */
  void set(byte[] data, int begin, int end) {
    this.data = data;
    this.at = begin;
    this.end = end;
    this.isBroken = false;
  }

  boolean isBroken() {
    return isBroken;
  }

  void setBroken() {
    isBroken = true;
    at = end;
  }

  /** An int or a long, of variable length and zigzag. */
  long readLong() {
    long number = 0;
    for (int shift = 0; shift <= VARINT_BITS_MAX; shift += 7) {
      if (at >= end) {
        break;
      }
      byte next = data[at++];
      number |= (next & 0x7FL) << shift;
      if (next >= 0) {
        return number >>> 1 ^ -(number & 1);
      }
    }
    setBroken();
    return 0;
  }

  /** The length of bytes that follow, all of which are there. */
  int readLength() {
    long length = readLong();
    if (length < 0 || length > end - at) {
      setBroken();
      return 0;
    }
    return (int) length;
  }

  /** How many elements the next block of an array or a map has; 0: there is none. Each has at least a byte. */
  int readBlock() {
    long count = readLong();
    if (count < 0) {
      count = -count;
      readLong(); // how many bytes the block has
    }
    if (count < 0 || count > end - at) {
      setBroken();
      return 0;
    }
    return (int) count;
  }

  void skip(int bytes) {
    if (bytes > end - at) {
      setBroken();
    } else {
      at += bytes;
    }
  }

  long readFixedLong(int bytes) {
    if (bytes > end - at) {
      setBroken();
      return 0;
    }
    long number = 0;
    for (int i = 0; i < bytes; i++) {
      number |= (data[at + i] & 0xFFL) << 8 * i;
    }
    at += bytes;
    return number;
  }
}
