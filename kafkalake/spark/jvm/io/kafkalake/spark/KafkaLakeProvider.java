package io.kafkalake.spark;

import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * `kafkalake` on a driver that has this jar: the Python data source of the same name, planned anew for every scan.
 *
 * Spark 4.2 keeps what it planned of a Python source (its partitions and its pushed filters) in one field per data frame, so a
 * second query on the frame reads with the filters, and the snapshot, of the first. This class gives every scan a source of its
 * own, and passes on which columns a query uses, which Spark's Python sources are not told. Python plans; the segments are read in the
 * JVM (`SegmentReader`), on executors, which get the jar from the driver. Spark prefers it to the Python source by itself, because it finds both under one name.
 */
public final class KafkaLakeProvider
    implements TableProvider, RelationProvider, SchemaRelationProvider, CreatableRelationProvider, DataSourceRegister {
  static final String NAME = "kafkalake";

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    SparkVersion.require();
    Map<String, String> given = TableOptions.of(options.asCaseSensitiveMap());
    String columns = TableOptions.ask("schema_of", given).textValue();
    try {
      return StructType.fromDDL(columns);
    } catch (Exception error) { // also Spark's ParseException, which is none of those at run time
      throw KafkaLakeExtensions.refused(
          "valueSchema is '" + new CaseInsensitiveStringMap(given).get("valueSchema") + "': " + error.getMessage().lines().findFirst().get());
    }
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    SparkVersion.require();
    return TableOptions.isOfCatalogue(properties)
        ? new KafkaLakeTable(schema, properties)
        : KafkaLakeTable.ofFrame(schema, properties);
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map<String, String> parameters) {
    Map<String, String> options = CollectionConverters.asJava(parameters);
    return new KafkaLakeRelation(context, options, inferSchema(new CaseInsensitiveStringMap(options)));
  }

  @Override
  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map<String, String> parameters, StructType schema) {
    SparkVersion.require();
    return new KafkaLakeRelation(context, CollectionConverters.asJava(parameters), schema);
  }

  /**
   * Adds rows to a topic in the modes in which Spark's Kafka sink does: append, and that of a write without a mode, as a topic is there
   * before it is written to.
   */
  @Override
  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, scala.collection.immutable.Map<String, String> options, Dataset<Row> rows) {
    SparkVersion.require();
    if (mode == SaveMode.Overwrite) {
      throw KafkaLakeExtensions.refused("a topic cannot be overwritten, only added to: use mode(\"append\") or INSERT INTO");
    }
    if (mode == SaveMode.Ignore) {
      throw KafkaLakeExtensions.refused("the mode ignore would leave out the rows wherever the topic is there: use mode(\"append\")");
    }
    Map<String, String> given = CollectionConverters.asJava(options);
    DataSourceV2Relation topic =
        DataSourceV2Relation.create(
            new KafkaLakeTable(rows.schema().asNullable(), given),
            Option.empty(),
            Option.empty(),
            new CaseInsensitiveStringMap(given),
            Option.empty());
    org.apache.spark.sql.classic.Dataset<Row> frame = (org.apache.spark.sql.classic.Dataset<Row>) rows;
    frame
        .sparkSession()
        .sessionState()
        .executePlan(AppendData.byName(topic, frame.logicalPlan(), options, false), CommandExecutionMode.ALL())
        .assertCommandExecuted();
    return new KafkaLakeRelation(context, given, rows.schema());
  }

  /** Every type: which of them a record can have is said with the names of the columns. */
  @Override
  public boolean supportsDataType(DataType type) {
    return true;
  }

  static PythonDataSourceV2 pythonSource() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    return source;
  }
}
