package io.kafkalake.spark;

import com.github.luben.zstd.Zstd;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Base64;
import java.util.zip.CRC32C;
import org.apache.commons.compress.compressors.lz4.FramedLZ4CompressorInputStream;

/**
 * One Arrow message of a segment; `kafkalake/record/layout.py` says which byte is what.
 *
 * `read` believes nothing before its checksum; a column is verified, and decompressed where it has to be, when it is first asked for,
 * so that columns that nobody looks at cost nothing. One object serves for all messages of a file, one after another.
 */
final class SegmentMessage {
  static final int OFFSET = 0;
  static final int TIMESTAMP = 1;
  static final int KEY = 2;
  static final int VALUE = 3;
  static final int HEADERS = 4;
  static final int NO_COLUMN = -1;

  /** The smallest prefix that says how long a message is. */
  static final int FIRST_HEADER = 648;

  static final int COLUMNS = 5;
  static final int BUFFERS = 19;
  static final int NODE_COUNT = 8;
  static final int[] FIRST_BUFFER = {0, 2, 4, 7, 10, BUFFERS};
  static final int METADATA_LENGTH = 4;
  static final int BODY_LENGTH = 32;
  static final int ROWS = 72;
  static final int NODES = 112;
  static final int BUFFER_TABLE = 248;
  static final int VALUE_LENGTH = 596;
  static final int CHECKSUM = 600;
  static final int TABLE = 608;
  static final int TABLE_BYTES = 30;
  static final int HEADER_BYTES = 60;
  static final int HEADER_CHARACTERS = 80;
  private static final int BATCHES_MAX = 65_536;
  static final int NO_CODEC = -1;
  private static final int ZSTD = 1;
  private static final int RAW = -1;
  private static final int LOG_APPEND_TIME = 0x08;
  private static final int TRANSACTIONAL = 0x10;
  private static final int LOST_RECORDS = -2;

  private final String path;
  private final CRC32C crc = new CRC32C();
  private final boolean[] isVerified = new boolean[COLUMNS];
  private final int[] bufferStart = new int[BUFFERS];
  private final int[] bufferLength = new int[BUFFERS];
  private final ByteBuffer[] plain = new ByteBuffer[BUFFERS];
  private ByteBuffer data;
  private ByteBuffer table;
  private int start;
  private long filePosition;
  private int metadataLength;
  private int bodyLength;
  private int batches;
  private int rows;
  private int codec;
  private long needed;
  private long verificationNs;

  SegmentMessage(String path) {
    this.path = path;
  }

  /**
   * Take the message at `start` of `data`, which is little-endian and holds bytes of the file up to its limit.
   *
   * @param last the last column that may be asked for, of those in the body's order: all, `HEADERS`; none, `NO_COLUMN`
   * @return whether all of that is there; if not, `needed` says how many bytes it takes, as far as can be told
   */
  boolean read(ByteBuffer data, int start, long filePosition, int last) {
    this.data = data;
    this.start = start;
    this.filePosition = filePosition;
    metadataLength = 0;
    bodyLength = 0;
    needed = 0;
    int available = data.limit() - start;
    if (available < FIRST_HEADER) {
      return false;
    }
    readFrame();
    needed = last == HEADERS ? length() : metadataLength;
    if (needed > available) {
      return false;
    }
    readMetadata();
    needed = length(last);
    Arrays.fill(isVerified, false);
    return needed <= available;
  }

  /** The bytes of the whole message; 0: too few of them are there to tell. */
  long length() {
    return (long) metadataLength + bodyLength;
  }

  /** The bytes up to the end of this column of a message that was read. */
  long length(int last) {
    return metadataLength + (last == NO_COLUMN ? 0 : endOf(last));
  }

  /** The bytes that the last `read` needs; its metadata alone where these are not there. */
  long needed() {
    return needed;
  }

  int rows() {
    return rows;
  }

  int batches() {
    return batches;
  }

  long baseOffset() {
    return baseOffset(0);
  }

  /** One past the last offset that the message covers. */
  long nextOffset() {
    int last = header(batches - 1);
    return table.getLong(last) + table.getInt(last + 8) + 1;
  }

  long baseOffset(int batch) {
    return table.getLong(header(batch));
  }

  int records(int batch) {
    return table.getInt(header(batch) + 48);
  }

  boolean hasLogAppendTime(int batch) {
    return (attributes(batch) & LOG_APPEND_TIME) != 0;
  }

  boolean isAborted(int batch, SegmentSlice slice) {
    return (attributes(batch) & TRANSACTIONAL) != 0
        && slice.isAborted(table.getLong(header(batch) + 16), baseOffset(batch));
  }

  /** Whether it stands for offsets whose records a power failure lost. */
  boolean marksLostRecords() {
    return table.getShort(header(0) + 52) == LOST_RECORDS;
  }

  /** Nulls of the column `KEY` or `VALUE`. */
  long nulls(int column) {
    return data.getLong(start + NODES + 16 * column + 8);
  }

  /** Where the buffer's bytes are: in `bufferData`, from here on. Its column must have been verified. */
  int bufferStart(int buffer) {
    return codec == NO_CODEC ? start + metadataLength + bufferStart[buffer] : 0;
  }

  ByteBuffer bufferData(int buffer) {
    return codec == NO_CODEC ? data : plain[buffer];
  }

  /** Check the column's bytes, and decompress them. Throws `CorruptSegmentError`. */
  void verify(int column) {
    if (isVerified[column]) {
      return;
    }
    long begin = System.nanoTime();
    check(column);
    verificationNs += System.nanoTime() - begin;
  }

  /** The time that `verify` has taken for the messages of this file. */
  long verificationNs() {
    return verificationNs;
  }

  private void check(int column) {
    int body = start + metadataLength;
    int end = endOf(column);
    int begin = bufferStart[FIRST_BUFFER[column]];
    crc.reset();
    crc.update(data.duplicate().limit(body + end).position(body + begin));
    if ((int) crc.getValue() != table.getInt(4 * column)) {
      throw corrupt("the checksum of a column does not match");
    }
    if (codec != NO_CODEC) {
      for (int buffer = FIRST_BUFFER[column]; buffer < FIRST_BUFFER[column + 1]; buffer++) {
        plain[buffer] = decompressed(body + bufferStart[buffer], bufferLength[buffer]);
      }
    }
    isVerified[column] = true;
  }

  CorruptSegmentError corrupt(String reason) {
    return new CorruptSegmentError(path, filePosition, reason);
  }

  /** Where the column ends in the body. */
  private int endOf(int column) {
    return column + 1 == COLUMNS ? bodyLength : bufferStart[FIRST_BUFFER[column + 1]];
  }

  private int header(int batch) {
    return TABLE_BYTES + HEADER_BYTES * batch;
  }

  private int attributes(int batch) {
    return table.getShort(header(batch) + 26);
  }

  private void readFrame() {
    if (data.getInt(start) != -1) {
      throw corrupt("no message starts here");
    }
    int metadata = 8 + data.getInt(start + METADATA_LENGTH);
    long body = data.getLong(start + BODY_LENGTH);
    int characters = data.getInt(start + VALUE_LENGTH) - 48;
    batches = characters / HEADER_CHARACTERS;
    if (batches < 1 || batches > BATCHES_MAX || batches * HEADER_CHARACTERS != characters) {
      throw corrupt("a length is out of its range");
    }
    if (metadata != (FIRST_HEADER + characters + 8) / 8 * 8 || body < 0 || body > Integer.MAX_VALUE || (body & 7) != 0) {
      throw corrupt("a length is out of its range");
    }
    metadataLength = metadata;
    bodyLength = (int) body;
  }

  private void readMetadata() {
    crc.reset();
    ByteBuffer bytes = data.duplicate();
    crc.update(bytes.limit(start + CHECKSUM).position(start));
    crc.update(bytes.limit(start + metadataLength).position(start + TABLE));
    byte[] text = new byte[8];
    data.get(start + CHECKSUM, text);
    if (!Arrays.equals(text, hex((int) crc.getValue()))) {
      throw corrupt("the checksum of the metadata does not match");
    }
    text = new byte[FIRST_HEADER - TABLE + HEADER_CHARACTERS * batches];
    data.get(start + TABLE, text);
    try {
      table = ByteBuffer.wrap(Base64.getDecoder().decode(text)).order(ByteOrder.LITTLE_ENDIAN);
    } catch (IllegalArgumentException error) {
      throw unknown();
    }
    long counted = data.getLong(start + ROWS);
    codec = table.getShort(20);
    if (table.getInt(22) != batches || counted < 0 || counted > Integer.MAX_VALUE || sumOfRecords() != counted) {
      throw unknown();
    }
    rows = (int) counted;
    long previous = 0;
    for (int buffer = 0; buffer < BUFFERS; buffer++) {
      long begin = data.getLong(start + BUFFER_TABLE + 16 * buffer);
      long length = data.getLong(start + BUFFER_TABLE + 16 * buffer + 8);
      if (begin < previous || length < 0 || (begin & 7) != 0 || length > bodyLength - begin) {
        throw unknown();
      }
      bufferStart[buffer] = (int) begin;
      bufferLength[buffer] = (int) length;
      previous = begin + length;
    }
  }

  private CorruptSegmentError unknown() {
    return corrupt("the metadata is not what kafkalake writes");
  }

  private long sumOfRecords() {
    long sum = 0;
    for (int batch = 0; batch < batches; batch++) {
      sum += records(batch);
    }
    return sum;
  }

  static byte[] hex(int value) {
    byte[] digits = new byte[8];
    for (int i = 0; i < 8; i++) {
      digits[i] = (byte) Character.forDigit((value >>> (28 - 4 * i)) & 15, 16);
    }
    return digits;
  }

  /** A buffer of a compressed body (Arrow's `BodyCompression`): its length without compression, int64, then its bytes. */
  private ByteBuffer decompressed(int begin, int length) {
    byte[] bytes = new byte[0];
    if (length > 0) {
      try {
        long plainLength = data.getLong(begin);
        byte[] stored = new byte[length - 8];
        data.get(begin + 8, stored);
        bytes = plainLength == RAW ? stored : decompress(stored, Math.toIntExact(plainLength));
        if (plainLength != RAW && bytes.length != plainLength) {
          throw corrupt("a column is shorter than it says");
        }
      } catch (CorruptSegmentError error) {
        throw error;
      } catch (IOException | RuntimeException error) {
        throw corrupt("a column cannot be decompressed: " + error);
      }
    }
    return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Blocks of Arrow's LZ4 frames refer to the ones before, which Spark's own LZ4 library does not read. */
  private byte[] decompress(byte[] stored, int length) throws IOException {
    if (codec == ZSTD) {
      return Zstd.decompress(stored, length);
    }
    try (InputStream frame = new FramedLZ4CompressorInputStream(new ByteArrayInputStream(stored))) {
      return frame.readNBytes(length);
    }
  }
}
