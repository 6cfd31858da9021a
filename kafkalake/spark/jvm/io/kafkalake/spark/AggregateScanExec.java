package io.kafkalake.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.execution.LeafExecNode;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** The rows of an `AggregateScan`, which a plan and the UI show as they show other scans. It is public for Spark, which copies plans. */
public final class AggregateScanExec extends SparkPlan implements LeafExecNode {
  private static final String ROWS = "numOutputRows";
  private final Seq<Attribute> output;
  private final transient List<InternalRow> rows;
  private final String table;
  private final String description;
  private final transient List<CustomTaskMetric> values;
  private transient scala.collection.immutable.Map<String, SQLMetric> shown;

  public AggregateScanExec(
      Seq<Attribute> output, List<InternalRow> rows, String table, String description, List<CustomTaskMetric> values) {
    this.output = output;
    this.rows = rows;
    this.table = table;
    this.description = description;
    this.values = values;
  }

  @Override
  public Seq<Attribute> output() {
    return output;
  }

  @Override
  public String nodeName() {
    return "LocalTableScan " + table;
  }

  @Override
  public Iterator<Object> stringArgs() {
    return CollectionConverters.asScala(List.<Object>of(output, description).iterator());
  }

  @Override
  public synchronized scala.collection.immutable.Map<String, SQLMetric> metrics() {
    if (shown == null) {
      Map<String, SQLMetric> made = new HashMap<>();
      made.put(ROWS, SQLMetrics.createMetric(sparkContext(), "number of output rows"));
      for (CustomMetric metric : ScanMetric.all()) {
        made.put(metric.name(), SQLMetrics.createV2CustomMetric(sparkContext(), metric));
      }
      shown = scala.collection.immutable.Map.from(CollectionConverters.asScala(made));
    }
    return shown;
  }

  @Override
  public InternalRow[] executeCollect() {
    return taken(rows);
  }

  @Override
  public InternalRow[] executeTake(int limit) {
    return taken(rows.subList(0, Math.min(limit, rows.size())));
  }

  @Override
  public InternalRow[] executeTail(int limit) {
    return taken(rows.subList(Math.max(0, rows.size() - limit), rows.size()));
  }

  private InternalRow[] taken(List<InternalRow> some) {
    show(some.size());
    return some.toArray(InternalRow[]::new);
  }

  @Override
  public RDD<InternalRow> doExecute() {
    show(rows.size());
    return sparkContext().parallelize(CollectionConverters.asScala(rows).toList(), 1, ClassTag$.MODULE$.apply(InternalRow.class));
  }

  private void show(int count) {
    metrics().apply(ROWS).set(count);
    for (CustomTaskMetric value : values) {
      metrics().apply(value.name()).set(value.value());
    }
    String query = sparkContext().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    SQLMetrics.postDriverMetricUpdates(sparkContext(), query, metrics().values().toSeq());
  }

  @Override
  public Seq<SparkPlan> children() {
    return CollectionConverters.asScala(List.<SparkPlan>of()).toList();
  }

  @Override
  public SparkPlan mapChildren(Function1<SparkPlan, SparkPlan> change) {
    return this;
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return this;
  }

  // A plan is a product of what Spark looks for expressions in; what else a copy needs are `otherCopyArgs`.

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int number) {
    return output;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof AggregateScanExec;
  }

  @Override
  public Seq<Object> otherCopyArgs() {
    return CollectionConverters.asScala(List.<Object>of(rows, table, description, values)).toList();
  }
}
