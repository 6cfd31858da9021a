package io.kafkalake.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One scan: the columns, filters, aggregates and the limit of the query, handed to the planner when Spark has said all of them.
 *
 * A filter on topic, partition or a range of offsets is the scan's alone; any other stays with Spark as well, and what is not read
 * because of it is an optimisation. Options that begin with two underscores are notes to the Python side.
 */
final class KafkaLakeScanBuilder
    implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns, SupportsPushDownAggregates, SupportsPushDownLimit {
  private final StructType all;
  private final ScanColumn[] columns;
  private final CaseInsensitiveStringMap options;
  private StructType wanted;
  private Predicate[] filters = new Predicate[0];
  private ObjectNode[] comparisons = new ObjectNode[0];
  private KeyFilter keyFilter;
  private Aggregation aggregation;
  private AggregateScan aggregated;
  private boolean isAggregated;
  private long limit = -1;

  KafkaLakeScanBuilder(StructType schema, ScanColumn[] columns, CaseInsensitiveStringMap options) {
    this.all = schema;
    this.columns = columns;
    this.wanted = schema;
    this.options = options;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] offered) {
    filters = offered;
    comparisons = new ObjectNode[offered.length];
    keyFilter = KeyFilter.of(offered, columns);
    List<Predicate> left = new ArrayList<>();
    for (int i = 0; i < offered.length; i++) {
      comparisons[i] = ScanFilter.ofRecord(offered[i], columns);
      if (comparisons[i] == null || !comparisons[i].get("is_exact").booleanValue()) {
        left.add(offered[i]);
      }
    }
    return left.toArray(new Predicate[0]);
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
  public boolean supportCompletePushDown(Aggregation asked) {
    AggregateScan scan = aggregated(asked);
    return scan != null && scan.isComplete();
  }

  @Override
  public boolean pushAggregation(Aggregation asked) {
    isAggregated = aggregated(asked) != null;
    return isAggregated;
  }

  /** The scan that answers these aggregates; null where there is none. Spark asks several times, with the same object. */
  private AggregateScan aggregated(Aggregation asked) {
    if (asked != aggregation) {
      aggregation = asked;
      ScanAggregates aggregates = ScanAggregates.of(asked, columns);
      aggregated = aggregates == null ? null : new AggregateScan(aggregates, plan("aggregate", columns));
      aggregated = aggregated != null && aggregated.isPossible() ? aggregated : null;
    }
    return aggregated;
  }

  /** Spark offers a limit only where no filter is left to it; it keeps the limit, as more records may be read. */
  @Override
  public boolean pushLimit(int records) {
    limit = records;
    return !isAggregated;
  }

  @Override
  public Scan build() {
    if (isAggregated) {
      return aggregated;
    }
    ScanColumn[] read = wantedColumns();
    ScanPlan plan = plan("scan", read.length == 0 ? columns : read); // a count has none, and the table may be wrong
    plan.question().put("limit", limit);
    return new KafkaLakeScan(wanted, read, options.asCaseSensitiveMap(), keyFilter, plan);
  }

  private ScanPlan plan(String ask, ScanColumn[] read) {
    return new ScanPlan(ask, read, options.asCaseSensitiveMap(), filters, comparisons, keyFilter, query());
  }

  private ScanColumn[] wantedColumns() {
    ScanColumn[] found = new ScanColumn[wanted.size()];
    for (int i = 0; i < found.length; i++) {
      found[i] = columns[all.fieldIndex(wanted.apply(i).name())];
    }
    return found;
  }

  /**
   * Names the query that is planned, so that all its scans read one snapshot: the one that runs, with the queries in it; else, where a
   * plan is made to be shown, cached or made an RDD, that plan. Empty where there is neither.
   */
  private static String query() {
    SparkContext context = SparkSession.active().sparkContext();
    String running = context.getLocalProperty("spark.sql.execution.id");
    String planned = context.getLocalProperty("spark.sql.dataset.queryExecution.id");
    if (running == null && planned == null) {
      return "";
    }
    return context.applicationId() + "-" + (running != null ? running : "plan-" + planned);
  }
}
