package io.kafkalake.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes readers of changes, on executors: of inserted records in columns, of the changes of keys in rows. */
final class ChangesReaderFactory implements PartitionReaderFactory {
  /** Names of the columns that the readers need, whatever the query wants. */
  static final String OFFSET = "__offset";
  static final String PARTITION = "__partition";
  static final String KEY = "__key";
  static final String VALUE = "__value";

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
    List<ScanColumn> read = new ArrayList<>();
    for (String name : columns.fieldNames()) {
      ScanColumn source = changelog.source(name);
      if (source != null) {
        read.add(source);
      }
    }
    read.add(new ScanColumn(OFFSET, DataTypes.LongType, false, "offset"));
    read.add(new ScanColumn(PARTITION, DataTypes.IntegerType, false, "partition"));
    ScanColumn key = new ScanColumn(KEY, DataTypes.BinaryType, false, "key");
    if (isKeyed) {
      read.add(key);
      read.add(new ScanColumn(VALUE, DataTypes.BinaryType, false, "value"));
    }
    StructType names = new StructType();
    for (ScanColumn column : read) {
      names = names.add(column.name(), column.type());
    }
    this.read = names;
    this.records = new SegmentReaderFactory(read.toArray(new ScanColumn[0]));
    this.keys = isKeyed ? new SegmentReaderFactory(new ScanColumn[] {key}) : null;
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
