package io.kafkalake.spark;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The records of a partition as its leader appends them, for as long as Spark's batch lasts (Real-Time Mode).
 *
 * The broker writes the file `state` when it acknowledges a record; it is looked at every 0.5 ms, and every 4 ms where nothing has come
 * for a while. What it says is new is read as slices of the segments that are there at that moment, so a segment that was rolled, or a
 * broker that was restarted, needs nothing else. Offsets that are gone are data loss, as in any batch. A directory whose broker no longer
 * leads the partition gets the records that its new leader has acknowledged, as long as it is a replica; the next batch follows the
 * leader's. Bytes are verified as in every read.
 */
final class TailReader implements SupportsRealTimeRead<InternalRow> {
  private static final long PAUSE_NS = 500_000;
  private static final long IDLE_PAUSE_NS = 4_000_000;
  private static final long IDLE_AFTER_NS = 100_000_000;
  private static final ScanColumn OFFSET = new ScanColumn("offset", DataTypes.LongType, false, "offset");

  private final ScanColumn[] columns;
  private final ZoneId zone;
  private final int offsetColumn;
  private final TailPartition tail;
  private final TailSegments segments;
  private final PartitionState.Reader state;
  private PartitionReader<ColumnarBatch> records;
  private ColumnarBatch batch;
  private int row;
  private long next;
  private long end;
  /** The topic was created again, or this replica was removed: the next batch follows what there is then. */
  private boolean isOver;

  /**
   * @param columns that are read; the offset is read as well, behind them
   * @param zone of times that name none
   */
  TailReader(ScanColumn[] columns, ZoneId zone, TailPartition tail) {
    this.columns = Arrays.copyOf(columns, columns.length + 1);
    this.columns[columns.length] = OFFSET;
    this.zone = zone;
    offsetColumn = columns.length;
    this.tail = tail;
    segments = new TailSegments(tail);
    state = new PartitionState.Reader(SegmentPath.of(tail.directory()));
    SegmentSlice[] planned = tail.slices();
    next = planned.length == 0 ? tail.from() : planned[0].from();
    read(planned, tail.from());
  }

  @Override
  public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
    long begun = System.nanoTime();
    long deadline = begun + 1_000_000 * timeoutMs;
    while (!next()) {
      if (look()) {
        continue;
      }
      long now = System.nanoTime();
      if (now >= deadline) {
        return RecordStatus.newStatusWithoutArrivalTime(false);
      }
      LockSupport.parkNanos(Math.min(now - begun < IDLE_AFTER_NS ? PAUSE_NS : IDLE_PAUSE_NS, deadline - now));
      if (Thread.currentThread().isInterrupted()) {
        throw new InterruptedIOException("the task was stopped");
      }
    }
    return RecordStatus.newStatusWithoutArrivalTime(true);
  }

  /** Whether there is another record among those that were found when `state` was looked at last. */
  @Override
  public boolean next() throws IOException {
    while (records != null) {
      if (batch != null && ++row < batch.numRows()) {
        next = batch.column(offsetColumn).getLong(row) + 1;
        return true;
      }
      row = -1;
      batch = nextBatch();
      if (batch == null) {
        records.close();
        records = null;
        next = end;
      }
    }
    return false;
  }

  private ColumnarBatch nextBatch() throws IOException {
    try {
      return records.next() ? records.get() : null;
    } catch (AnotherTopicException error) {
      leave(error);
      end = next;
      return null;
    }
  }

  @Override
  public InternalRow get() {
    return batch.getRow(row);
  }

  @Override
  public PartitionOffset getOffset() {
    return tail.endingAt(next);
  }

  @Override
  public void close() throws IOException {
    state.close();
    if (records != null) {
      records.close();
    }
  }

  /** Whether there is something new, which `next` then returns. */
  private boolean look() throws IOException {
    if (isOver) {
      return false;
    }
    PartitionState now;
    try {
      now = state.read();
    } catch (NoSuchFileException error) {
      isOver = segments.hasOtherReplica();
      if (!isOver) {
        lose("it was deleted");
      }
      return false;
    }
    long readable = now.readableEnd(tail.isCommitted());
    if (now.logEnd() < next) {
      try {
        PartitionMetadata.checkTopic(SegmentPath.of(tail.directory()), tail.topicId());
      } catch (AnotherTopicException error) {
        leave(error);
        return false;
      }
      lose(String.format("it ends at offset %d, and %d offsets of it were read", now.logEnd(), next));
      next = readable;
    } else if (now.logStart() > next) {
      lose(String.format("offsets %d to %d were removed before they were read", next, now.logStart() - 1));
      next = Math.min(now.logStart(), readable);
    }
    if (readable <= next) {
      return false;
    }
    read(segments.slices(next, readable, now), readable);
    return true;
  }

  private void read(SegmentSlice[] slices, long end) {
    records = new SegmentReader(columns, zone, slices);
    batch = null;
    this.end = end;
  }

  /** Leaves the topic that was created in the place of this one to the next batch, if loss is allowed. */
  private void leave(AnotherTopicException error) throws AnotherTopicException {
    if (tail.failOnDataLoss()) {
      throw error;
    }
    isOver = true;
  }

  private void lose(String what) throws IOException {
    if (tail.failOnDataLoss()) {
      throw new IOException(
          String.format(
              "%s-%d: %s; with failOnDataLoss=false the stream goes on with what is there", tail.topic(), tail.partition(), what));
    }
  }
}
