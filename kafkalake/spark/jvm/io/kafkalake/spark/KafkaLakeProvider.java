package io.kafkalake.spark;

import java.util.Map;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * `kafkalake` on a driver that has this jar: the Python data source of the same name, planned anew for every scan.
 *
 * Spark 4.2 keeps what it planned of a Python source (its partitions and its pushed filters) in one field per data frame, so a
 * second query on the frame reads with the filters, and the snapshot, of the first. This class gives every scan a source of its
 * own, and passes on which columns a query uses, which Spark's Python sources are not told. Python plans; the segments are read in the
 * JVM (`SegmentReader`), on executors, which get the jar from the driver. Spark prefers it to the Python source by itself, because it finds both under one name.
 */
public final class KafkaLakeProvider implements TableProvider, RelationProvider, SchemaRelationProvider, DataSourceRegister {
  static final String NAME = "kafkalake";

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return pythonSource().inferSchema(new CaseInsensitiveStringMap(TableOptions.of(options.asCaseSensitiveMap())));
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new KafkaLakeTable(schema, properties);
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
    return new KafkaLakeRelation(context, CollectionConverters.asJava(parameters), schema);
  }

  static PythonDataSourceV2 pythonSource() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    return source;
  }
}
