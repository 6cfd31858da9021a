package io.kafkalake.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.zip.CRC32C;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.spark.util.Utils;

/**
 * A pass over a segment file, message by message, from an offset on.
 *
 * The offset index says where to start; it is a hint: what it points at is checked, and where it was wrong the pass begins with the file.
 */
final class SegmentFile implements Closeable {
  /** What is verified and taken apart soon after it was read, so that it is still in a cache of the processor. */
  private static final int CHUNK_BYTES = 1 << 20;
  /** A channel reads into memory of its own and copies from there: so much of it stays in the nearest cache. */
  private static final int STEP_BYTES = 64 << 10;
  private static final int FIRST_CHUNK_BYTES = 128 << 10;
  private static final int PREFIX_CHUNK_BYTES = 16 << 10;
  private static final int INDEX_ENTRY_BYTES = 16;
  /** Every segment begins with the same bytes, `PREAMBLE` of `kafkalake/record/schema.py`, which no checksum covers. */
  private static final int PREAMBLE_BYTES = 488;

  private static final long END_OF_STREAM = 0xFFFFFFFFL;

  private final String path;
  private final long from;
  private final long to;
  private final FileChannel channel;
  private final long size;
  private final SegmentMessage message;
  private final int last;
  private ByteBuffer chunk;
  private long chunkPosition;
  /** Where the next message begins in the chunk, or behind it. */
  private long next;
  private long messagePosition;
  private int lastRead;
  private int chunkBytes = FIRST_CHUNK_BYTES;
  private boolean isFromIndex;
  private long bytesRead;

  /**
   * @param chunk memory to use, of a file before; null: none yet
   * @param last the last column of the messages that is asked for, `SegmentMessage.NO_COLUMN` if none is: what is behind it is not read
   */
  SegmentFile(SegmentSlice slice, ByteBuffer chunk, int last) throws IOException {
    path = slice.path();
    from = slice.from();
    to = slice.to();
    this.last = last;
    channel = open(path);
    try {
      checkTopic(slice.topicId());
      size = slice.size() < 0 ? channel.size() : Math.min(slice.size(), channel.size());
      message = new SegmentMessage(path);
      this.chunk = chunk == null ? allocate(FIRST_CHUNK_BYTES) : chunk;
      long indexed = positionInIndex();
      isFromIndex = PREAMBLE_BYTES < indexed && indexed < size;
      startAt(isFromIndex ? indexed : PREAMBLE_BYTES);
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
  }

  /** The next message that holds offsets from `from` on; null at the end of a sealed segment. Valid until the next call. */
  SegmentMessage next() throws IOException {
    while (true) {
      boolean isHinted = isFromIndex;
      isFromIndex = false;
      boolean isTaken;
      try {
        isTaken = take();
      } catch (CorruptSegmentError error) {
        if (!isHinted) {
          throw error;
        }
        isTaken = false;
      }
      if (isHinted && !(isTaken && message.baseOffset() <= from)) {
        startAt(PREAMBLE_BYTES);
      } else if (!isTaken) {
        return null;
      } else if (message.nextOffset() > from) {
        return message;
      }
    }
  }

  /** Read the columns up to this one of the message that `next` has returned without them, once. */
  void require(int column) throws IOException {
    if (column <= lastRead) {
      return;
    }
    long end = messagePosition + message.length(column);
    if (messagePosition < chunkPosition || end > chunkPosition + chunk.limit()) {
      startAt(messagePosition);
      fill(message.length(column));
      message.read(chunk, 0, messagePosition, column);
      next = message.length();
    }
    lastRead = column;
  }

  SegmentMessage message() {
    return message;
  }

  long bytesRead() {
    return bytesRead;
  }

  /** The memory that it reads into, for the file after it. */
  ByteBuffer memory() {
    return chunk;
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }

  /**
   * That the file's directory names the topic that was planned: the next topic of its name has the same paths.
   *
   * Looked at when the file is open: who makes a directory names its topic before anything else is put there. A directory of 0.1 does not.
   */
  private void checkTopic(String topicId) throws IOException {
    if (!topicId.isEmpty()) {
      PartitionMetadata.checkTopic(SegmentPath.of(path).getParent(), topicId);
    }
  }

  /** Where the message at `next` begins. */
  private long position() {
    return chunkPosition + next;
  }

  private void startAt(long position) {
    chunkPosition = position;
    next = 0;
    chunk.limit(0);
  }

  /** Take the message at `next`, reading more of the file where the chunk does not hold all of it; false: end of stream. */
  private boolean take() throws IOException {
    while (!isEndOfStream()) {
      long rest = size - position();
      boolean isTaken = message.read(chunk, (int) Math.min(next, chunk.limit()), position(), last);
      if (message.length() > rest) {
        throw message.corrupt("the message is cut short");
      }
      if (isTaken) {
        messagePosition = position();
        lastRead = last;
        next += message.length();
        return true;
      }
      if (rest == 0) {
        throw message.corrupt("the file ends before offset " + (to - 1) + ", which it should hold");
      }
      if (chunk.limit() - next == rest) {
        throw message.corrupt("the message is cut short");
      }
      if (last >= SegmentMessage.VALUE) {
        fill(Math.max(message.needed(), chunkBytes));
        chunkBytes = Math.min(2 * chunkBytes, CHUNK_BYTES);
      } else {
        fill(Math.max(message.needed(), PREFIX_CHUNK_BYTES));
      }
    }
    return false;
  }

  private boolean isEndOfStream() {
    return chunk.limit() - next >= 8 && chunk.getLong((int) next) == END_OF_STREAM;
  }

  /** Have so many bytes from `next` on, or up to the end of what counts: those that are there already are moved, not read again. */
  private void fill(long bytes) throws IOException {
    int length = Math.toIntExact(Math.min(bytes, size - position()));
    ByteBuffer filled = chunk;
    int kept = (int) Math.max(filled.limit() - next, 0);
    if (length > chunk.capacity()) {
      chunk = allocate(length);
    }
    System.arraycopy(filled.array(), filled.limit() - kept, chunk.array(), 0, kept);
    chunkPosition += next;
    next = 0;
    readBehind(kept, length);
  }

  /** Read the bytes [from, to) of the chunk. */
  private void readBehind(int from, int to) throws IOException {
    chunk.clear().limit(from).position(from);
    while (chunk.position() < to) {
      chunk.limit(Math.min(to, chunk.position() + STEP_BYTES));
      if (channel.read(chunk, chunkPosition + chunk.position()) < 0) {
        throw new CorruptSegmentError(path, chunkPosition + chunk.position(), "the file became shorter while it was read");
      }
    }
    bytesRead += to - from;
    // Spark takes the bytes that a task has read from the statistics of Hadoop's file systems.
    FileSystem.getStatistics("file", LocalFileSystem.class).incrementBytesRead(to - from);
  }

  /** Where the index says that the message with the first offset begins; -1 where it does not. */
  private long positionInIndex() {
    Path index = SegmentPath.of(path.substring(0, path.length() - ".arrow".length()) + ".index");
    try (FileChannel entries = FileChannel.open(index)) {
      ByteBuffer entry = ByteBuffer.allocate(INDEX_ENTRY_BYTES).order(ByteOrder.LITTLE_ENDIAN);
      long low = 0;
      long high = entries.size() / INDEX_ENTRY_BYTES;
      while (low < high) {
        long middle = (low + high) >>> 1;
        entries.read(entry.clear(), middle * INDEX_ENTRY_BYTES);
        if (entry.getLong(0) <= from) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      if (low == 0) {
        return -1;
      }
      entries.read(entry.clear(), (low - 1) * INDEX_ENTRY_BYTES);
      CRC32C crc = new CRC32C();
      crc.update(entry.array(), 0, 12);
      return entry.getInt(12) == (int) crc.getValue() ? Integer.toUnsignedLong(entry.getInt(8)) : -1;
    } catch (IOException error) {
      return -1;
    }
  }

  private static ByteBuffer allocate(int bytes) {
    return ByteBuffer.allocate(Math.max(bytes, FIRST_CHUNK_BYTES)).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static FileChannel open(String path) throws IOException {
    try {
      return FileChannel.open(SegmentPath.of(path));
    } catch (IOException error) {
      String reason = error.getMessage();
      if (error instanceof NoSuchFileException) {
        reason = "No such file or directory";
      } else if (error instanceof AccessDeniedException) {
        reason = "Permission denied";
      }
      throw new IOException(
          path
              + " cannot be read on host "
              + Utils.localHostName()
              + ": "
              + reason
              + ". Every executor must see the lake under the same path; where it does, retention or compaction has removed"
              + " the segment since the query was planned",
          error);
    }
  }
}
