package io.kafkalake.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes readers of slices of segments, on executors. */
final class SegmentReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;
  private static final String JAR = "kafkalake-spark.jar";
  private final StructType columns;

  SegmentReaderFactory(StructType columns) {
    this.columns = columns;
    sendJar();
  }

  /** Executors get this jar where they have it not. */
  static void sendJar() {
    SparkContext context = SparkSession.active().sparkContext();
    String jar = SegmentReaderFactory.class.getProtectionDomain().getCodeSource().getLocation().getPath();
    if (!context.isLocal() && !context.listJars().exists(known -> known.endsWith(JAR))) {
      context.addJar(jar);
    }
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("segments are read in columns");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new SegmentReader(columns, ((SlicesPartition) partition).slices());
  }
}
