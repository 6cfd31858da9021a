package io.kafkalake.spark;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Queue;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.ByteArray;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;
import org.apache.spark.util.collection.unsafe.sort.RecordComparator;
import org.apache.spark.util.sketch.BloomFilter;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The changes of the keys of one partition: what a version made of a key, against what it was before.
 *
 * The records are sorted by key and offset, by Spark's sorter, which spills to disk. Of those before the range only the keys count that
 * the range may have; a filter of at most 16 MiB says which those are. A record without a key is no row of a compacted topic.
 */
final class KeyChangesReader implements PartitionReader<InternalRow> {
  private static final long FILTER_KEYS_MAX = 8L << 20;
  private static final double FILTER_FALSE_POSITIVES = 0.01;
  private static final int NONE = -2;

  private final StructType read;
  private final StructType columns;
  private final ChangesTask task;
  private final StructType rows;
  private final int keyAt;
  private final int offsetAt;
  private final int tombstoneAt;
  private final UnsafeProjection projection;
  private final UnsafeExternalRowSorter sorter;
  private final Queue<InternalRow> changes = new ArrayDeque<>();
  private scala.collection.Iterator<InternalRow> sorted;
  private ChangesTask.Commits commits;
  private UTF8String key;
  private UnsafeRow before;
  private UnsafeRow pending;
  private int pendingCommit = NONE;
  private InternalRow current;

  /** @param read the columns that are read of a record, with those of `ChangesReaderFactory` */
  KeyChangesReader(StructType read, StructType columns, ChangesTask task) throws IOException {
    this.read = read;
    this.columns = columns;
    this.task = task;
    List<Expression> kept = new ArrayList<>();
    List<StructField> fields = new ArrayList<>();
    for (int i = 0; i < read.size(); i++) {
      // The value is not copied for the reader's sake: whether there is one says the last column.
      StructField field = read.apply(i);
      if (!field.name().equals(ChangesReaderFactory.VALUE)) {
        kept.add(new BoundReference(i, field.dataType(), true));
        fields.add(field);
      }
    }
    int value = read.fieldIndex(ChangesReaderFactory.VALUE);
    kept.add(new IsNull(new BoundReference(value, read.apply(value).dataType(), true)));
    fields.add(new StructField("is_tombstone", DataTypes.BooleanType, false, org.apache.spark.sql.types.Metadata.empty()));
    rows = new StructType(fields.toArray(new StructField[0]));
    keyAt = rows.fieldIndex(ChangesReaderFactory.KEY);
    offsetAt = rows.fieldIndex(ChangesReaderFactory.OFFSET);
    tombstoneAt = rows.size() - 1;
    projection = UnsafeProjection.create(CollectionConverters.asScala(kept).toSeq());
    int[] at = {rows.size(), keyAt, offsetAt};
    sorter =
        UnsafeExternalRowSorter.createWithRecordComparator(
            rows,
            () -> new ByKeyAndOffset(at[0], at[1], at[2]),
            PrefixComparators.BINARY,
            new KeyPrefix(keyAt),
            SparkEnv.get().memoryManager().pageSizeBytes(),
            false);
  }

  /** Sort what the readers have. */
  void sort(PartitionReader<ColumnarBatch> keys, PartitionReader<ColumnarBatch> earlier, PartitionReader<ColumnarBatch> changed)
      throws IOException {
    long records = 0;
    for (SegmentSlice slice : task.changed().slices()) {
      records += slice.to() - slice.from();
    }
    BloomFilter known = BloomFilter.create(Math.min(Math.max(records, 1), FILTER_KEYS_MAX), FILTER_FALSE_POSITIVES);
    try (keys) {
      while (keys.next()) {
        for (Iterator<InternalRow> batch = keys.get().rowIterator(); batch.hasNext(); ) {
          InternalRow row = batch.next();
          if (!row.isNullAt(0)) {
            known.putBinary(row.getBinary(0));
          }
        }
      }
    }
    insert(earlier, known);
    insert(changed, null);
    sorted = sorter.sort();
  }

  private void insert(PartitionReader<ColumnarBatch> records, BloomFilter known) throws IOException {
    int key = read.fieldIndex(ChangesReaderFactory.KEY);
    int partition = read.fieldIndex(ChangesReaderFactory.PARTITION);
    try (records) {
      while (records.next()) {
        for (Iterator<InternalRow> batch = records.get().rowIterator(); batch.hasNext(); ) {
          InternalRow row = batch.next();
          if (commits == null) {
            commits = task.commits(row.getInt(partition));
          }
          if (!row.isNullAt(key) && (known == null || known.mightContainBinary(row.getBinary(key)))) {
            sorter.insertRow(projection.apply(row));
          }
        }
      }
    }
  }

  @Override
  public boolean next() {
    while (changes.isEmpty()) {
      if (sorted.hasNext()) {
        take((UnsafeRow) sorted.next());
      } else if (pendingCommit != NONE) {
        settle();
      } else {
        return false;
      }
    }
    current = changes.poll();
    return true;
  }

  /** Take the next record of a key, or the first of the next key. The last one of a version is what the version made of the key. */
  private void take(UnsafeRow record) {
    UTF8String of = record.getUTF8String(keyAt);
    if (!of.equals(key)) {
      settle();
      key = of.copy();
      before = null;
    }
    int commit = commits.of(record.getLong(offsetAt));
    if (commit != pendingCommit) {
      settle();
      pendingCommit = commit;
    }
    pending = record.getBoolean(tombstoneAt) ? null : record.copy();
  }

  /** Say what the pending version made of the key. */
  private void settle() {
    if (pendingCommit >= 0) {
      if (before == null && pending != null) {
        add(Changelog.CHANGE_TYPE_INSERT, pending);
      } else if (before != null && pending == null) {
        add(Changelog.CHANGE_TYPE_DELETE, before);
      } else if (before != null) {
        add(Changelog.CHANGE_TYPE_UPDATE_PREIMAGE, before);
        add(Changelog.CHANGE_TYPE_UPDATE_POSTIMAGE, pending);
      }
    }
    if (pendingCommit != NONE) {
      before = pending;
      pendingCommit = NONE;
    }
  }

  private void add(String change, UnsafeRow record) {
    Object[] values = new Object[columns.size()];
    for (int i = 0; i < values.length; i++) {
      String name = columns.apply(i).name();
      switch (name) {
        case "_change_type":
          values[i] = UTF8String.fromString(change);
          break;
        case "_commit_version":
          values[i] = commits.versions()[pendingCommit];
          break;
        case "_commit_timestamp":
          values[i] = commits.times()[pendingCommit];
          break;
        default:
          int at = rows.fieldIndex(name);
          values[i] = record.isNullAt(at) ? null : record.get(at, rows.apply(at).dataType());
      }
    }
    changes.add(new GenericInternalRow(values));
  }

  @Override
  public InternalRow get() {
    return current;
  }

  @Override
  public void close() {
    sorter.cleanupResources();
  }

  /** The first bytes of a key, as Spark's sorter compares them. */
  private static final class KeyPrefix extends UnsafeExternalRowSorter.PrefixComputer {
    private final Prefix prefix = new Prefix();
    private final int keyAt;

    KeyPrefix(int keyAt) {
      this.keyAt = keyAt;
    }

    @Override
    public Prefix computePrefix(InternalRow row) {
      prefix.value = ByteArray.getPrefix(row.getBinary(keyAt));
      return prefix;
    }
  }

  private static final class ByKeyAndOffset extends RecordComparator {
    private final UnsafeRow left;
    private final UnsafeRow right;
    private final int keyAt;
    private final int offsetAt;

    ByKeyAndOffset(int columns, int keyAt, int offsetAt) {
      left = new UnsafeRow(columns);
      right = new UnsafeRow(columns);
      this.keyAt = keyAt;
      this.offsetAt = offsetAt;
    }

    @Override
    public int compare(Object leftObject, long leftAt, int leftBytes, Object rightObject, long rightAt, int rightBytes) {
      left.pointTo(leftObject, leftAt, leftBytes);
      right.pointTo(rightObject, rightAt, rightBytes);
      // A binary column has the layout of a string, whose bytes are compared where they are.
      int keys = left.getUTF8String(keyAt).binaryCompare(right.getUTF8String(keyAt));
      return keys != 0 ? keys : Long.compare(left.getLong(offsetAt), right.getLong(offsetAt));
    }
  }
}
