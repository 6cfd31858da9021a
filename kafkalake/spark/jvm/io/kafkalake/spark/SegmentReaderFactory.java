package io.kafkalake.spark;

import java.time.ZoneId;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes readers of slices of segments, on executors. */
final class SegmentReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;
  private static final String JAR = "kafkalake-spark.jar";
  private final ScanColumn[] columns;
  private final ZoneId zone;
  private final KeyFilter keyFilter;

  SegmentReaderFactory(ScanColumn[] columns) {
    this(columns, null);
  }

  /** @param keyFilter says of which keys records are wanted; null: of all */
  SegmentReaderFactory(ScanColumn[] columns, KeyFilter keyFilter) {
    this.columns = columns;
    this.keyFilter = keyFilter;
    this.zone = sessionZone();
    sendJar();
  }

  /** The zone of times that name none. */
  static ZoneId sessionZone() {
    return DateTimeUtils.getZoneId(SQLConf.get().sessionLocalTimeZone());
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
    SlicesPartition task = (SlicesPartition) partition;
    return new SegmentReader(ScanColumn.readAs(columns, task.avro()), zone, keyFilter, task.slices());
  }
}
