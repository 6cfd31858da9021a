package io.kafkalake.spark;

import java.io.IOException;
import java.util.function.LongUnaryOperator;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** Records as changes that insert them: their columns as they are read, beside the version that committed each. */
final class InsertsReader implements PartitionReader<ColumnarBatch> {
  private static final UTF8String INSERT = UTF8String.fromString(Changelog.CHANGE_TYPE_INSERT);
  private final PartitionReader<ColumnarBatch> records;
  private final StructType read;
  private final StructType columns;
  private final ChangesTask task;

  InsertsReader(PartitionReader<ColumnarBatch> records, StructType read, StructType columns, ChangesTask task) {
    this.records = records;
    this.read = read;
    this.columns = columns;
    this.task = task;
  }

  @Override
  public boolean next() throws IOException {
    return records.next();
  }

  @Override
  public ColumnarBatch get() {
    ColumnarBatch batch = records.get();
    ColumnVector offsets = batch.column(read.fieldIndex(ChangesReaderFactory.OFFSET));
    ChangesTask.Commits commits = task.commits(batch.column(read.fieldIndex(ChangesReaderFactory.PARTITION)).getInt(0));
    ColumnVector[] vectors = new ColumnVector[columns.size()];
    for (int i = 0; i < vectors.length; i++) {
      DataType type = columns.apply(i).dataType();
      switch (columns.apply(i).name()) {
        case "_change_type":
          ConstantColumnVector change = new ConstantColumnVector(batch.numRows(), type);
          change.setUtf8String(INSERT);
          vectors[i] = change;
          break;
        case "_commit_version":
          vectors[i] = of(type, offsets, batch.numRows(), commits, commit -> commits.versions()[(int) commit]);
          break;
        case "_commit_timestamp":
          vectors[i] = of(type, offsets, batch.numRows(), commits, commit -> commits.times()[(int) commit]);
          break;
        default:
          vectors[i] = batch.column(read.fieldIndex(columns.apply(i).name()));
      }
    }
    return new ColumnarBatch(vectors, batch.numRows());
  }

  /** A number of the commit of each row; offsets ascend, so rows of one commit stand together. */
  private static ColumnVector of(DataType type, ColumnVector offsets, int rows, ChangesTask.Commits commits, LongUnaryOperator number) {
    OnHeapColumnVector vector = new OnHeapColumnVector(rows, type);
    int row = 0;
    while (row < rows) {
      int commit = commits.of(offsets.getLong(row));
      long end = commits.ends()[commit];
      long value = number.applyAsLong(commit);
      if (offsets.getLong(rows - 1) < end) {
        vector.putLongs(row, rows - row, value);
        break;
      }
      for (; offsets.getLong(row) < end; row++) {
        vector.putLong(row, value);
      }
    }
    return vector;
  }

  @Override
  public void close() throws IOException {
    records.close();
  }
}
