package io.kafkalake.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spark's scan of a Python source, which as a stream is told where its checkpoint is: Python sources are not told. */
final class KafkaLakeScan extends PythonScan {
  private final StructType columns;
  private final Map<String, String> notes;

  KafkaLakeScan(StructType columns, Map<String, String> notes, PythonDataSourceV2 source, Filter[] pushed) {
    super(source, KafkaLakeProvider.NAME, columns, new CaseInsensitiveStringMap(notes), pushed);
    this.columns = columns;
    this.notes = notes;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    Map<String, String> told = new HashMap<>(notes);
    told.put("__checkpoint", checkpointLocation);
    return new PythonScan(
            KafkaLakeProvider.pythonSource(),
            KafkaLakeProvider.NAME,
            columns,
            new CaseInsensitiveStringMap(told),
            new Filter[0])
        .toMicroBatchStream(checkpointLocation);
  }
}
