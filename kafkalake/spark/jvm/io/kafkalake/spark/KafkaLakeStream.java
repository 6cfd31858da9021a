package io.kafkalake.spark;

import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** Spark's stream of a Python source, whose batches are read in columns, as those of a batch query are. */
final class KafkaLakeStream extends PythonMicroBatchStreamWithTriggerAvailableNow {
  private KafkaLakeStream(
      PythonDataSourceV2 source, StructType columns, CaseInsensitiveStringMap options, PythonStreamingSourceRunner runner) {
    super(source, KafkaLakeProvider.NAME, columns, options, runner);
  }

  /** Starts the Python process that answers for the stream. */
  static KafkaLakeStream of(StructType columns, CaseInsensitiveStringMap options) {
    PythonDataSourceV2 source = KafkaLakeProvider.pythonSource();
    byte[] pickled =
        source.getOrCreateDataSourceInPython(KafkaLakeProvider.NAME, options, Option.apply(columns)).dataSource();
    PythonStreamingSourceRunner runner = new StreamProcess(source.source().createPythonFunction(pickled), columns);
    runner.init();
    return new KafkaLakeStream(source, columns, options, runner);
  }

  /** Spark's process of a Python source, which begins sooner: `kafkalake/spark/stream/process.py`. */
  private static final class StreamProcess extends PythonStreamingSourceRunner {
    StreamProcess(PythonFunction source, StructType columns) {
      super(source, columns);
    }

    @Override
    public String workerModule() {
      return "kafkalake.spark.stream.process";
    }
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    InputPartition[] planned = super.planInputPartitions(start, end);
    InputPartition[] partitions = new InputPartition[planned.length];
    for (int i = 0; i < planned.length; i++) {
      partitions[i] = SlicesPartition.of(i, ((PythonStreamingInputPartition) planned[i]).pickedPartition());
    }
    return partitions;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    PythonStreamingPartitionReaderFactory ofPython = (PythonStreamingPartitionReaderFactory) super.createReaderFactory();
    return ColumnarReaderFactory.of(
        new PythonPartitionReaderFactory(
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$source,
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$pickledReadFunc,
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$outputSchema,
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$jobArtifactUUID,
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$sessionUUID));
  }
}
