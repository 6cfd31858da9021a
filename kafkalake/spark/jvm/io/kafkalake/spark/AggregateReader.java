package io.kafkalake.spark;

import java.io.IOException;
import java.time.ZoneOffset;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows of a task of an `AggregateScan`: what the planner knew, with what is read of the slices that it knew nothing of. */
final class AggregateReader implements PartitionReader<InternalRow> {
  private final ScanAggregates aggregates;
  private final SegmentReader reader;
  private final Map<List<Object>, RecordFacts> facts = new LinkedHashMap<>();
  private Iterator<Map.Entry<List<Object>, RecordFacts>> rows;
  private InternalRow current;

  AggregateReader(ScanAggregates aggregates, Task task) {
    this.aggregates = aggregates;
    StructType columns = new StructType().add("topic", DataTypes.StringType).add("partition", DataTypes.IntegerType);
    columns = aggregates.hasTimestamps() ? columns.add("timestamp", DataTypes.TimestampType) : columns;
    reader = new SegmentReader(ScanColumn.ofFrame(columns), ZoneOffset.UTC, task.slices);
    if (aggregates.isOfAll()) {
      facts.put(List.of(), RecordFacts.NONE);
    }
    for (Known known : task.known) {
      add(known.topic, known.partition, known.facts);
    }
  }

  @Override
  public boolean next() throws IOException {
    if (rows == null) {
      while (reader.next()) {
        ColumnarBatch batch = reader.get();
        add(batch.column(0).getUTF8String(0).toString(), batch.column(1).getInt(0), of(batch));
      }
      rows = facts.entrySet().iterator();
    }
    if (!rows.hasNext()) {
      return false;
    }
    Map.Entry<List<Object>, RecordFacts> row = rows.next();
    current = aggregates.row(row.getKey(), row.getValue());
    return true;
  }

  @Override
  public InternalRow get() {
    return current;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return reader.currentMetricsValues();
  }

  @Override
  public void close() throws IOException {
    reader.close();
  }

  private void add(String topic, int partition, RecordFacts found) {
    facts.merge(aggregates.group(topic, partition), found, RecordFacts::and);
  }

  private RecordFacts of(ColumnarBatch batch) throws IOException {
    int count = batch.numRows();
    Long minOffset = null;
    Long maxOffset = null;
    Long minTimestamp = null;
    Long maxTimestamp = null;
    if (aggregates.hasOffsets()) {
      minOffset = reader.firstOffset();
      maxOffset = reader.lastOffset();
    }
    if (aggregates.hasTimestamps()) {
      long min = Long.MAX_VALUE;
      long max = Long.MIN_VALUE;
      for (int row = 0; row < count; row++) {
        long timestamp = batch.column(2).getLong(row);
        min = Math.min(min, timestamp);
        max = Math.max(max, timestamp);
      }
      minTimestamp = min;
      maxTimestamp = max;
    }
    return new RecordFacts(count, minOffset, maxOffset, minTimestamp, maxTimestamp);
  }

  /** What is known of a partition's records without reading them. */
  record Known(String topic, int partition, RecordFacts facts) implements java.io.Serializable {}

  /** What one task adds up. */
  record Task(Known[] known, SegmentSlice[] slices) implements InputPartition {}

  /** Makes the readers, on executors. */
  static final class Factory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;
    private final ScanAggregates aggregates;

    Factory(ScanAggregates aggregates) {
      this.aggregates = aggregates;
      SegmentReaderFactory.sendJar();
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new AggregateReader(aggregates, (Task) partition);
    }
  }
}
