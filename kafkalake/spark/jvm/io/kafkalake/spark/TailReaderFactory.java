package io.kafkalake.spark;

import java.time.ZoneId;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** Makes readers that follow partitions, on executors. */
final class TailReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;
  private final ScanColumn[] columns;
  private final ZoneId zone = SegmentReaderFactory.sessionZone();

  TailReaderFactory(ScanColumn[] columns) {
    this.columns = columns;
    SegmentReaderFactory.sendJar();
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    TailPartition tail = (TailPartition) partition;
    return new TailReader(ScanColumn.readAs(columns, tail.avro()), zone, tail);
  }
}
