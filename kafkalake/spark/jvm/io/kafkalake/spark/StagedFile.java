package io.kafkalake.spark;

import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The result of a task: what the broker must know of its file. No record, and of plain fields, as Kryo may be what serializes it. */
final class StagedFile implements WriterCommitMessage {
  private static final long serialVersionUID = 1L;

  /** Null where the task had no rows, and there is no file. */
  final String name;

  final long bytes;
  final int batches;
  final long records;
  /** The partitions that have records in the file, in order: the topic's number in the high half, the partition in the low. */
  final long[] places;

  StagedFile(String name, long bytes, int batches, long records, long[] places) {
    this.name = name;
    this.bytes = bytes;
    this.batches = batches;
    this.records = records;
    this.places = places;
  }

  static StagedFile none() {
    return new StagedFile(null, 0, 0, 0, new long[0]);
  }

  static long place(int topic, int partition) {
    return (long) topic << 32 | partition;
  }
}
