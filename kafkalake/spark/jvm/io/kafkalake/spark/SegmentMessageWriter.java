package io.kafkalake.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Base64;
import java.util.zip.CRC32C;

/**
 * Encodes one batch as an Arrow message of a segment, byte for byte as `kafkalake/record/merge.py` and `message.py` do;
 * `kafkalake/record/layout.py` says which byte is what.
 */
final class SegmentMessageWriter {
  /** A message of one batch: what comes before its body, and where that begins. */
  private static final int METADATA_BYTES = (SegmentMessage.FIRST_HEADER + SegmentMessage.HEADER_CHARACTERS + 8) / 8 * 8;
  /** A larger message is not kept as memory for the next. */
  private static final int KEPT_BYTES = 16 << 20;
  private static final short NO_PRODUCER_EPOCH = -1;
  private static final long NO_PRODUCER_ID = -1;
  private static final short NO_CONTROL_TYPE = -1;
  private static final int[] NO_HEADERS = {0};
  private static final byte[] NOTHING = new byte[0];

  private final byte[] template;
  private final CRC32C crc = new CRC32C();
  private final long[] buffers = new long[2 * SegmentMessage.BUFFERS];
  private ByteBuffer out = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);
  private int nextBuffer;

  SegmentMessageWriter(byte[] template) {
    this.template = template;
  }

  /**
   * @param now the time of records that have none, ms since 1970
   * @return the message, valid until the next call
   */
  ByteBuffer write(StagedBatch batch, long now) {
    int rows = batch.rows();
    long[] timestamps = batch.timestamps(now);
    reserve(bound(batch));
    nextBuffer = 0;
    out.clear().position(METADATA_BYTES);
    writeOffsets(rows);
    emptyBuffer();
    begin();
    out.asLongBuffer().put(timestamps, 0, rows);
    out.position(out.position() + 8 * rows);
    end();
    writeBinary(batch.keys(), true);
    writeBinary(batch.values(), true);
    int headers = writeHeaders(batch, rows);
    int bodyLength = out.position() - METADATA_BYTES;
    writeMetadata(batch, rows, headers, bodyLength);
    writeTable(batch, timestamps, bodyLength);
    return out.position(0).limit(METADATA_BYTES + bodyLength);
  }

  private static long bound(StagedBatch batch) {
    long rows = batch.rows();
    long bytes = METADATA_BYTES + 8L * SegmentMessage.BUFFERS + 28 * rows + 64;
    bytes += batch.keys().dataBytes() + (long) batch.values().dataBytes();
    if (batch.hasHeaders()) {
      bytes += batch.headerKeys().dataBytes() + (long) batch.headerValues().dataBytes() + 9L * batch.headerKeys().rows();
    }
    return bytes + rows / 4;
  }

  private void reserve(long bytes) {
    boolean isLarger = bytes > out.capacity();
    if (isLarger || out.capacity() > KEPT_BYTES) {
      long doubled = isLarger && 2 * bytes <= KEPT_BYTES ? 2 * bytes : bytes;
      out = ByteBuffer.allocate(Math.toIntExact(doubled)).order(ByteOrder.LITTLE_ENDIAN);
    }
  }

  private void writeOffsets(int rows) {
    emptyBuffer();
    begin();
    for (int row = 0; row < rows; row++) {
      out.putLong(row);
    }
    end();
  }

  /** @return the number of headers of all records */
  private int writeHeaders(StagedBatch batch, int rows) {
    emptyBuffer();
    if (!batch.hasHeaders()) {
      writeInts(new int[rows + 1], rows + 1);
      emptyBuffer();
      writeBinary(NOTHING, NO_HEADERS, NOTHING, 0, false);
      writeBinary(NOTHING, NO_HEADERS, NOTHING, 0, false);
      return 0;
    }
    writeInts(batch.headerEnds(), rows + 1);
    emptyBuffer();
    writeBinary(batch.headerKeys(), false);
    writeBinary(batch.headerValues(), true);
    return batch.headerKeys().rows();
  }

  private void writeBinary(BinaryColumn column, boolean mayBeNull) {
    writeBinary(column.validity(), column.offsets(), column.data(), column.rows(), mayBeNull && column.nulls() > 0);
  }

  private void writeBinary(byte[] validity, int[] offsets, byte[] data, int rows, boolean hasNulls) {
    begin();
    if (hasNulls) {
      out.put(validity, 0, (rows + 7) / 8);
    }
    end();
    writeInts(offsets, rows + 1);
    begin();
    out.put(data, 0, offsets[rows]);
    end();
  }

  private void writeInts(int[] numbers, int count) {
    begin();
    out.asIntBuffer().put(numbers, 0, count);
    out.position(out.position() + 4 * count);
    end();
  }

  private void emptyBuffer() {
    begin();
    end();
  }

  private void begin() {
    buffers[2 * nextBuffer] = out.position() - METADATA_BYTES;
  }

  /** Ends a buffer, and pads to the next multiple of 8. */
  private void end() {
    buffers[2 * nextBuffer + 1] = out.position() - METADATA_BYTES - buffers[2 * nextBuffer];
    nextBuffer++;
    while ((out.position() & 7) != 0) {
      out.put((byte) 0);
    }
  }

  private void writeMetadata(StagedBatch batch, int rows, int headers, int bodyLength) {
    out.put(0, template);
    out.putInt(SegmentMessage.METADATA_LENGTH, METADATA_BYTES - 8);
    out.putLong(SegmentMessage.BODY_LENGTH, bodyLength);
    out.putLong(SegmentMessage.ROWS, rows);
    for (int node = 0; node < SegmentMessage.NODE_COUNT; node++) {
      out.putLong(SegmentMessage.NODES + 16 * node, node < SegmentMessage.COLUMNS ? rows : headers);
    }
    out.putLong(SegmentMessage.NODES + 16 * SegmentMessage.KEY + 8, batch.keys().nulls());
    out.putLong(SegmentMessage.NODES + 16 * SegmentMessage.VALUE + 8, batch.values().nulls());
    long headerNulls = batch.hasHeaders() ? batch.headerValues().nulls() : 0;
    out.putLong(SegmentMessage.NODES + 16 * (SegmentMessage.NODE_COUNT - 1) + 8, headerNulls);
    for (int i = 0; i < buffers.length; i++) {
      out.putLong(SegmentMessage.BUFFER_TABLE + 8 * i, buffers[i]);
    }
    out.putInt(SegmentMessage.VALUE_LENGTH, SegmentMessage.FIRST_HEADER - SegmentMessage.CHECKSUM + SegmentMessage.HEADER_CHARACTERS);
  }

  /** Writes the checksums and the batch's header. */
  private void writeTable(StagedBatch batch, long[] timestamps, int bodyLength) {
    int bytes = SegmentMessage.TABLE_BYTES + SegmentMessage.HEADER_BYTES;
    ByteBuffer table = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int column = 0; column < SegmentMessage.COLUMNS; column++) {
      int begin = (int) buffers[2 * SegmentMessage.FIRST_BUFFER[column]];
      int end = column + 1 == SegmentMessage.COLUMNS ? bodyLength : (int) buffers[2 * SegmentMessage.FIRST_BUFFER[column + 1]];
      crc.reset();
      crc.update(out.array(), METADATA_BYTES + begin, end - begin);
      table.putInt((int) crc.getValue());
    }
    table.putShort((short) SegmentMessage.NO_CODEC).putInt(1).putInt(0);
    int rows = batch.rows();
    long newest = timestamps[0];
    for (int row = 1; row < rows; row++) {
      newest = Math.max(newest, timestamps[row]);
    }
    long baseOffset = 0;
    short attributes = 0;
    // The destination is in fields that a producer cannot set: `kafkalake/storage/staged_file.py`.
    table.putLong(baseOffset).putInt(rows - 1).putInt(batch.partition()).putLong(NO_PRODUCER_ID).putShort(NO_PRODUCER_EPOCH);
    table.putShort(attributes).putInt(batch.topic()).putLong(timestamps[0]).putLong(newest).putInt(rows).putShort(NO_CONTROL_TYPE);
    byte[] text = Base64.getEncoder().encode(table.array());
    out.put(SegmentMessage.TABLE, text);
    int tableEnd = SegmentMessage.TABLE + text.length;
    Arrays.fill(out.array(), tableEnd, METADATA_BYTES, (byte) 0);
    crc.reset();
    crc.update(out.array(), 0, SegmentMessage.CHECKSUM);
    crc.update(out.array(), SegmentMessage.TABLE, METADATA_BYTES - SegmentMessage.TABLE);
    out.put(SegmentMessage.CHECKSUM, SegmentMessage.hex((int) crc.getValue()));
  }
}
