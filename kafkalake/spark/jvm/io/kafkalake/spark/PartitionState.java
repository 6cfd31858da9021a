package io.kafkalake.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.zip.CRC32C;

/**
 * What a partition's file `state` says of it, as `kafkalake.storage.state`: two slots, of which the newest valid one counts.
 *
 * @param activeBase base offset of the active segment
 * @param activePosition bytes of whole messages in it
 */
record PartitionState(
    long logStart, long highWatermark, long lastStableOffset, long logEnd, long activeBase, long activePosition) {
  static final String FILE = "state";
  private static final int SLOT_BYTES = 128;
  private static final int PREFIX_BYTES = 8;
  private static final int MAGIC = 0x54534C4B; // "KLST", little-endian
  private static final int ATTEMPTS = 8;

  /** Where a read of committed records, or of all, ends. */
  long readableEnd(boolean isCommitted) {
    return isCommitted ? lastStableOffset : highWatermark;
  }

  /** The file, open for a while: the next owner of a log replaces it. */
  static final class Reader implements Closeable {
    private static final long OPEN_NS = 100_000_000;
    private final Path path;
    private final ByteBuffer bytes = ByteBuffer.allocate(2 * SLOT_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    private FileChannel channel;
    private long openedNs;

    Reader(Path directory) {
      path = directory.resolve(FILE);
    }

    /** Throws `NoSuchFileException` where there is none: the partition was deleted. */
    PartitionState read() throws IOException {
      for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (channel == null || System.nanoTime() - openedNs > OPEN_NS) {
          close();
          channel = FileChannel.open(path);
          openedNs = System.nanoTime();
        }
        bytes.clear();
        while (bytes.hasRemaining() && channel.read(bytes, bytes.position()) > 0) {}
        PartitionState newest = newest(bytes.flip());
        if (newest != null) {
          return newest;
        }
      }
      throw new IOException(path + ": neither slot has the right checksum");
    }

    @Override
    public void close() throws IOException {
      if (channel != null) {
        channel.close();
        channel = null;
      }
    }
  }

  private static PartitionState newest(ByteBuffer bytes) {
    long sequence = -1;
    PartitionState newest = null;
    for (int slot = 0; slot + SLOT_BYTES <= bytes.limit(); slot += SLOT_BYTES) {
      CRC32C crc = new CRC32C();
      crc.update(bytes.duplicate().limit(slot + SLOT_BYTES).position(slot + PREFIX_BYTES));
      boolean isValid = bytes.getInt(slot) == MAGIC && bytes.getInt(slot + 4) == (int) crc.getValue();
      int at = slot + PREFIX_BYTES;
      if (isValid && bytes.getLong(at) > sequence) {
        sequence = bytes.getLong(at);
        newest =
            new PartitionState(
                bytes.getLong(at + 8),
                bytes.getLong(at + 16),
                bytes.getLong(at + 24),
                bytes.getLong(at + 32),
                bytes.getLong(at + 44),
                bytes.getLong(at + 52));
      }
    }
    return newest;
  }
}
