package io.kafkalake.spark;

import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Records in columns, as from Parquet: of segments that this JVM reads itself, or, where a query wants fields of JSON values, of Spark's
 * reader of a Python source without its last step.
 *
 * That step copies every record of an Arrow batch into a row of its own before the query sees it (65 ns a record, more than reading and
 * verifying it). What runs in Python is the same function in the same kind of worker.
 */
final class ColumnarReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;
  private final PythonPartitionReaderFactory ofPython;

  private ColumnarReaderFactory(PythonPartitionReaderFactory ofPython) {
    this.ofPython = ofPython;
  }

  /** For what Spark's factory of a Python source reads. */
  static PartitionReaderFactory of(PartitionReaderFactory ofPython) {
    SegmentReaderFactory.sendJar();
    return new ColumnarReaderFactory((PythonPartitionReaderFactory) ofPython);
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    return ofPython.createReader(partition);
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    if (partition instanceof SlicesPartition) {
      StructType schema =
          ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$outputSchema;
      return new SegmentReader(schema, ((SlicesPartition) partition).slices());
    }
    return createPythonReader((PythonInputPartition) partition);
  }

  private PartitionReader<ColumnarBatch> createPythonReader(PythonInputPartition partition) {
    Map<String, SQLMetric> metrics = PythonCustomMetric.pythonMetrics();
    UserDefinedPythonDataSource source =
        ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
    scala.collection.Iterator<ColumnarBatch> batches = start(partition, source, metrics);
    return new PartitionReader<ColumnarBatch>() {
      @Override
      public boolean next() {
        return batches.hasNext();
      }

      @Override
      public ColumnarBatch get() {
        return columnsOf(batches.next());
      }

      /** Spark ends the worker's part with the task. */
      @Override
      public void close() {}

      @Override
      public CustomTaskMetric[] currentMetricsValues() {
        java.util.Map<String, Object> values = new java.util.HashMap<>();
        CollectionConverters.asJava(metrics).forEach((name, metric) -> values.put(name, metric.value()));
        return source.createPythonTaskMetrics(Map.from(CollectionConverters.asScala(values)));
      }
    };
  }

  /** The function's Arrow batches, as a worker of this executor sends them. */
  private scala.collection.Iterator<ColumnarBatch> start(
      PythonInputPartition partition, UserDefinedPythonDataSource source, Map<String, SQLMetric> metrics) {
    StructType input = UserDefinedPythonDataSource.readInputSchema();
    MapInBatchEvaluatorFactory function =
        source.createMapInBatchEvaluatorFactory(
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc,
            "read_from_data_source",
            input,
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$outputSchema,
            metrics,
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID,
            ofPython.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID);
    ArrowPythonRunner runner =
        new ArrowPythonRunner(
            function.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$chainedFunc,
            function.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonEvalType,
            new int[][] {{0}},
            new StructType().add("struct", input),
            function.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionLocalTimeZone,
            function.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$largeVarTypes,
            function.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonRunnerConf,
            metrics,
            function.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$jobArtifactUUID,
            function.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionUUID);
    // One record that holds the slices of this task, in a struct, as for any function from batches to batches.
    InternalRow slices = new GenericInternalRow(new Object[] {partition.pickedPartition()});
    Iterator<InternalRow> records = List.<InternalRow>of(new GenericInternalRow(new Object[] {slices})).iterator();
    TaskContext context = TaskContext.get();
    return runner.compute(
        CollectionConverters.asScala(List.of(CollectionConverters.asScala(records)).iterator()),
        context.partitionId(),
        context);
  }

  /** The columns that Python put into one struct. */
  private static ColumnarBatch columnsOf(ColumnarBatch batch) {
    ArrowColumnVector struct = (ArrowColumnVector) batch.column(0);
    int count = ((StructType) struct.dataType()).size();
    ColumnVector[] columns = new ColumnVector[count];
    for (int i = 0; i < count; i++) {
      columns[i] = struct.getChild(i);
    }
    return new ColumnarBatch(columns, batch.numRows());
  }
}
