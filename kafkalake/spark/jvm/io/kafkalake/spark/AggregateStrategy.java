package io.kafkalake.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection;
import org.apache.spark.sql.catalyst.expressions.InterpretedUnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Plans an `AggregateScan` that has its result by itself, and the columns that the query makes of it, as rows that are there: it
 * needs no job and no generated code, with which the first query of a session would spend a second.
 */
final class AggregateStrategy extends SparkStrategy {
  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    LogicalPlan child = plan instanceof Project ? ((Project) plan).child() : plan;
    if (child instanceof DataSourceV2ScanRelation && ((DataSourceV2ScanRelation) child).scan() instanceof AggregateScan) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) child;
      AggregateScan scan = (AggregateScan) relation.scan();
      List<Expression> columns = columns(plan instanceof Project ? ((Project) plan).projectList() : relation.output());
      if (scan.isComplete() && columns.stream().allMatch(AggregateStrategy::isPlain)) {
        return seq(List.of(planned(plan.output(), columns, relation, scan)));
      }
    }
    return seq(List.of());
  }

  private static List<Expression> columns(Seq<?> named) {
    List<Expression> columns = new ArrayList<>();
    CollectionConverters.asJava(named).forEach(each -> columns.add((Expression) each));
    return columns;
  }

  private static boolean isPlain(Expression column) {
    return column.deterministic() && !column.exists(part -> part instanceof Unevaluable && !(part instanceof Attribute));
  }

  @SuppressWarnings("unchecked")
  private static SparkPlan planned(
      Seq<Attribute> output, List<Expression> columns, DataSourceV2ScanRelation relation, AggregateScan scan) {
    InterpretedMutableProjection made = new InterpretedMutableProjection(seq(columns), (Seq<Attribute>) (Seq<?>) relation.output());
    UnsafeProjection projection = unsafe(output);
    List<InternalRow> rows = new ArrayList<>();
    AggregateScan.Result result = scan.result();
    for (InternalRow row : result.rows()) {
      rows.add(projection.apply(made.apply(row)).copy());
    }
    return new AggregateScanExec(output, rows, relation.relation().name(), scan.description(), result.metrics());
  }

  /** Interpreted, as it takes longer to generate code than to convert a few rows. */
  private static UnsafeProjection unsafe(Seq<Attribute> output) {
    List<Expression> bound = new ArrayList<>();
    for (int i = 0; i < output.size(); i++) {
      bound.add(new BoundReference(i, output.apply(i).dataType(), output.apply(i).nullable()));
    }
    return InterpretedUnsafeProjection.createProjection(seq(bound));
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toList();
  }
}
