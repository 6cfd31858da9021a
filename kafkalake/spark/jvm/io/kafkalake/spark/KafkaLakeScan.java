package io.kafkalake.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spark's scan of a Python source, read in columns; as a stream it is told where its checkpoint is, which Python sources are not. */
final class KafkaLakeScan extends PythonScan {
  private final StructType columns;
  private final Map<String, String> notes;

  KafkaLakeScan(StructType columns, Map<String, String> notes, PythonDataSourceV2 source, Filter[] pushed) {
    super(source, KafkaLakeProvider.NAME, columns, new CaseInsensitiveStringMap(notes), pushed);
    this.columns = columns;
    this.notes = notes;
  }

  /** Every partition; Spark's own scan of a Python source says none, and its plan would then never ask the readers. */
  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    Batch ofPython = super.toBatch();
    return new Batch() {
      @Override
      public InputPartition[] planInputPartitions() {
        InputPartition[] planned = ofPython.planInputPartitions();
        InputPartition[] partitions = new InputPartition[planned.length];
        for (int i = 0; i < planned.length; i++) {
          partitions[i] = SlicesPartition.of(i, ((PythonInputPartition) planned[i]).pickedPartition());
        }
        return partitions;
      }

      @Override
      public PartitionReaderFactory createReaderFactory() {
        return ColumnarReaderFactory.of(ofPython.createReaderFactory());
      }
    };
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    Map<String, String> told = new HashMap<>(notes);
    told.put("__checkpoint", checkpointLocation);
    return KafkaLakeStream.of(columns, new CaseInsensitiveStringMap(told));
  }
}
