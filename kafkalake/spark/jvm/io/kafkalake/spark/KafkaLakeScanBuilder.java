package io.kafkalake.spark;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One scan: the columns and filters of the query, handed to the planner when Spark has said both.
 *
 * Every filter stays with Spark as well: what is not read because of it is an optimisation, what the query returns is Spark's word.
 * Options that begin with two underscores are notes to the Python side.
 */
final class KafkaLakeScanBuilder implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns {
  private final String name;
  private final StructType all;
  private final ScanColumn[] columns;
  private final CaseInsensitiveStringMap options;
  private StructType wanted;
  private Predicate[] filters = new Predicate[0];

  KafkaLakeScanBuilder(String name, StructType schema, ScanColumn[] columns, CaseInsensitiveStringMap options) {
    this.name = name;
    this.all = schema;
    this.columns = columns;
    this.wanted = schema;
    this.options = options;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] offered) {
    filters = offered;
    return offered;
  }

  @Override
  public Predicate[] pushedPredicates() {
    return new Predicate[0];
  }

  @Override
  public void pruneColumns(StructType required) {
    StructType pruned = new StructType();
    for (String name : required.fieldNames()) {
      // The whole column, also where only a part of it is required.
      pruned = pruned.add(all.apply(name));
    }
    wanted = pruned; // of a count: none
  }

  @Override
  public Scan build() {
    return new KafkaLakeScan(name, wanted, wantedColumns(), options.asCaseSensitiveMap(), filters, query());
  }

  private ScanColumn[] wantedColumns() {
    ScanColumn[] found = new ScanColumn[wanted.size()];
    for (int i = 0; i < found.length; i++) {
      found[i] = columns[all.fieldIndex(wanted.apply(i).name())];
    }
    return found;
  }

  /** Names the running query, so that all its scans read one snapshot; empty where none runs. */
  private static String query() {
    SparkSession session = SparkSession.active();
    String execution = session.sparkContext().getLocalProperty("spark.sql.execution.id");
    return execution == null ? "" : session.sparkContext().applicationId() + "-" + execution;
  }
}
