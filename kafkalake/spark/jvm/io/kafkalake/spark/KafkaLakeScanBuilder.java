package io.kafkalake.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One scan: the columns and filters of the query, handed to Python in one call when Spark has said both.
 *
 * Every filter stays with Spark as well: what Python leaves out is an optimisation, what the query returns is Spark's word.
 * Options that begin with two underscores are notes to the Python side.
 */
final class KafkaLakeScanBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
  private final StructType all;
  private final CaseInsensitiveStringMap options;
  private StructType wanted;
  private Filter[] filters = new Filter[0];

  KafkaLakeScanBuilder(StructType schema, CaseInsensitiveStringMap options) {
    this.all = schema;
    this.wanted = schema;
    this.options = options;
  }

  @Override
  public Filter[] pushFilters(Filter[] offered) {
    filters = offered;
    return offered;
  }

  @Override
  public Filter[] pushedFilters() {
    return new Filter[0];
  }

  @Override
  public void pruneColumns(StructType required) {
    StructType pruned = new StructType();
    for (String name : required.fieldNames()) {
      // The whole column, also where only a part of it is required.
      pruned = pruned.add(all.apply(name));
    }
    wanted = pruned.isEmpty() ? cheapest() : pruned;
  }

  @Override
  public Scan build() {
    Map<String, String> notes = new HashMap<>(options.asCaseSensitiveMap());
    boolean push = filters.length > 0 && SQLConf.get().pythonFilterPushDown();
    notes.put("__pushFilters", Boolean.toString(push));
    notes.put("__query", query());
    PythonDataSourceV2 source = KafkaLakeProvider.pythonSource();
    PythonScanBuilder scan =
        new PythonScanBuilder(source, KafkaLakeProvider.NAME, wanted, new CaseInsensitiveStringMap(notes));
    if (push) {
      scan.pushFilters(filters);
    }
    return new KafkaLakeScan(wanted, notes, source, scan.pushedFilters());
  }

  /** A count needs rows and no column: the one that costs least. */
  private StructType cheapest() {
    for (String name : new String[] {"partition", "timestampType", "offset", "timestamp"}) {
      for (StructField field : all.fields()) {
        if (field.name().equals(name)) {
          return new StructType().add(field);
        }
      }
    }
    return new StructType().add(all.fields()[0]);
  }

  /** Names the running query, so that all its scans read one snapshot; empty where none runs. */
  private static String query() {
    SparkSession session = SparkSession.active();
    String execution = session.sparkContext().getLocalProperty("spark.sql.execution.id");
    return execution == null ? "" : session.sparkContext().applicationId() + "-" + execution;
  }
}
