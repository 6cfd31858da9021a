package io.kafkalake.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes readers of changes, on executors: of inserted records in columns, of the changes of keys in rows. */
final class ChangesReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;
  private final boolean isKeyed;
  private final StructType columns;
  private final StructType read;
  private final SegmentReaderFactory records;
  private final SegmentReaderFactory keys;

  /** @param columns of the changes, as Spark wants them */
  ChangesReaderFactory(TopicChangelog changelog, StructType columns) {
    this.isKeyed = changelog.isKeyed();
    this.columns = columns;
    List<StructField> read = new ArrayList<>();
    for (String name : columns.fieldNames()) {
      if (changelog.isRecords(name)) {
        read.add(changelog.record(name));
      }
    }
    for (String name : isKeyed ? new String[] {"key", "value", "offset", "partition"} : new String[] {"offset", "partition"}) {
      if (!read.contains(changelog.record(name))) {
        read.add(changelog.record(name));
      }
    }
    this.read = new StructType(read.toArray(new StructField[0]));
    this.records = new SegmentReaderFactory(ScanColumn.ofFrame(this.read));
    this.keys = isKeyed ? new SegmentReaderFactory(ScanColumn.ofFrame(new StructType().add(changelog.record("key")))) : null;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return !isKeyed;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    ChangesTask task = (ChangesTask) partition;
    return new InsertsReader(records.createColumnarReader(task.changed()), read, columns, task);
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    ChangesTask task = (ChangesTask) partition;
    try {
      KeyChangesReader changes = new KeyChangesReader(read, columns, task);
      changes.sort(keys.createColumnarReader(task.changed()), records.createColumnarReader(task.before()),
          records.createColumnarReader(task.changed()));
      return changes;
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }
}
