package io.kafkalake.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.zip.CRC32C;

/**
 * The segments of a partition's directory that hold some offsets, as `kafkalake.reader.snapshot` lists those that Delta does not have yet.
 *
 * In most cases that is the active segment, whose name `state` says; the directory is listed only where a segment was rolled since.
 */
final class TailSegments {
  private static final int ABORTED_BYTES = 40;
  private static final int LOST_SEGMENT_BYTES = 1826;

  private final TailPartition tail;
  private final Path directory;

  TailSegments(TailPartition tail) {
    this.tail = tail;
    directory = SegmentPath.of(tail.directory());
  }

  /** Slices with the offsets [from, to), which `state` says are there. */
  SegmentSlice[] slices(long from, long to, PartitionState state) throws IOException {
    TreeMap<Long, Path> segments = new TreeMap<>();
    if (from >= state.activeBase()) {
      segments.put(state.activeBase(), directory.resolve(String.format("%020d.arrow", state.activeBase())));
    } else {
      list(segments);
    }
    Long first = segments.floorKey(from);
    if (first == null) {
      throw gone(from);
    }
    long[][] aborted = tail.isCommitted() ? aborted(segments.tailMap(first), from) : new long[0][];
    List<SegmentSlice> slices = new ArrayList<>();
    for (long base : segments.subMap(first, to).keySet()) {
      Long next = segments.higherKey(base);
      boolean isActive = base == state.activeBase();
      SegmentSlice slice =
          new SegmentSlice(
              tail.directory() + "/" + segments.get(base).getFileName(),
              tail.topic(),
              tail.topicId(),
              tail.partition(),
              Math.max(from, base),
              next == null ? to : Math.min(to, next),
              isActive ? state.activePosition() : -1,
              aborted);
      if (!isActive) {
        checkEnd(slice);
        if (tail.failOnDataLoss()) {
          refuseLosses(slice);
        }
      }
      slices.add(slice);
    }
    return slices.toArray(new SegmentSlice[0]);
  }

  private void list(TreeMap<Long, Path> segments) throws IOException {
    try (DirectoryStream<Path> found = Files.newDirectoryStream(directory, "*.arrow")) {
      for (Path path : found) {
        String name = path.getFileName().toString();
        if (name.matches("\\d{20}\\.arrow")) {
          segments.put(Long.parseLong(name.substring(0, 20)), path);
        }
      }
    }
  }

  /** Whether another broker has a directory of the partition: this one was removed by a reassignment, and not with its topic. */
  boolean hasOtherReplica() throws IOException {
    try (DirectoryStream<Path> brokers = Files.newDirectoryStream(directory.getParent().getParent())) {
      for (Path broker : brokers) {
        Path replica = broker.resolve(directory.getFileName());
        if (Files.exists(replica.resolve(PartitionState.FILE)) && tail.topicId().equals(PartitionMetadata.readTopicId(replica))) {
          return true;
        }
      }
    }
    return false;
  }

  /** Throws if the segment ends before the slice does: the one behind it was removed, and that before it is there still. */
  private void checkEnd(SegmentSlice slice) throws IOException {
    long last = slice.to() - 1;
    SegmentSlice end =
        new SegmentSlice(slice.path(), slice.topic(), "", slice.partition(), last, slice.to(), slice.size(), slice.aborted());
    try (SegmentFile file = new SegmentFile(end, null, SegmentMessage.NO_COLUMN)) {
      if (file.next() == null) {
        throw gone(last);
      }
    }
  }

  private IOException gone(long offset) {
    return new IOException(
        name() + ": no segment in " + directory + " holds offset " + offset + ": it was removed or rewritten since the batch began");
  }

  /** Throws if the segment marks offsets whose records a power failure lost, as `kafkalake.storage.lost_records` says. */
  private void refuseLosses(SegmentSlice slice) throws IOException {
    if (Files.size(SegmentPath.of(slice.path())) != LOST_SEGMENT_BYTES) {
      return;
    }
    try (SegmentFile file = new SegmentFile(slice, null, SegmentMessage.NO_COLUMN)) {
      SegmentMessage message = file.next();
      if (message == null || !message.marksLostRecords()) {
        return;
      }
    }
    throw new IOException(
        String.format(
            "%s: offsets %d to %d were acknowledged, and lost when the machine stopped before they were on the disk;"
                + " with failOnDataLoss=false they are passed over",
            name(), slice.from(), slice.to() - 1));
  }

  /** The aborted transactions with records at or after `from`: their markers are in these segments. */
  private static long[][] aborted(SortedMap<Long, Path> segments, long from) throws IOException {
    List<long[]> aborted = new ArrayList<>();
    for (Path segment : segments.values()) {
      String name = segment.getFileName().toString();
      Path path = segment.resolveSibling(name.substring(0, name.length() - ".arrow".length()) + ".txnindex");
      byte[] bytes;
      try {
        bytes = Files.readAllBytes(path);
      } catch (NoSuchFileException error) {
        continue;
      }
      addAborted(aborted, bytes, path.toString(), from);
    }
    return aborted.toArray(new long[0][]);
  }

  /** As `kafkalake.storage.txn_index.decode_aborted`, of a segment that may still be written. */
  private static void addAborted(List<long[]> aborted, byte[] bytes, String path, long from) {
    ByteBuffer entries = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int at = 0, number = 0; at + ABORTED_BYTES <= bytes.length; at += ABORTED_BYTES, number++) {
      CRC32C crc = new CRC32C();
      crc.update(bytes, at, ABORTED_BYTES - 4);
      boolean isSeal = entries.getLong(at) == -1;
      if (entries.getInt(at + 36) != (int) crc.getValue() || entries.getInt(at + 32) != number) {
        throw new CorruptSegmentError(path, at, "the checksum of an aborted transaction does not match");
      }
      if (!isSeal && entries.getLong(at + 16) >= from) {
        aborted.add(new long[] {entries.getLong(at), entries.getLong(at + 8), entries.getLong(at + 16)});
      }
    }
  }

  private String name() {
    return tail.topic() + "-" + tail.partition();
  }
}
