package io.kafkalake.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/** Makes readers that follow partitions, on executors. */
final class TailReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;
  private final StructType columns;

  TailReaderFactory(StructType columns) {
    this.columns = columns;
    SegmentReaderFactory.sendJar();
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    return new TailReader(columns, (TailPartition) partition);
  }
}
