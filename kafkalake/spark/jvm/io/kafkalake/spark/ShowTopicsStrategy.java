package io.kafkalake.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace;
import org.apache.spark.sql.catalyst.plans.logical.CommandResult;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowTables;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.ShowTablesExec;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Plans SHOW TABLES of a lake, and then its rows, which Spark has made by the first plan, by nodes that need no generated code. */
final class ShowTopicsStrategy extends SparkStrategy {
  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    if (plan instanceof ShowTables && ((ShowTables) plan).namespace() instanceof ResolvedNamespace) {
      return show((ShowTables) plan, (ResolvedNamespace) ((ShowTables) plan).namespace());
    }
    if (plan instanceof CommandResult && ((CommandResult) plan).commandPhysicalPlan() instanceof ShowTopicsExec) {
      CommandResult result = (CommandResult) plan;
      ShowTablesExec statement = ((ShowTopicsExec) result.commandPhysicalPlan()).statement();
      return plans(new CommandResultExec(result.output(), statement, result.rows()));
    }
    return plans();
  }

  private static Seq<SparkPlan> show(ShowTables plan, ResolvedNamespace namespace) {
    if (!(namespace.catalog() instanceof LakeCatalog) || CatalogV2Util.isSessionCatalog(namespace.catalog())) {
      return plans();
    }
    LakeCatalog lake = (LakeCatalog) namespace.catalog();
    return plans(new ShowTopicsExec(new ShowTablesExec(plan.output(), lake, namespace.namespace(), plan.pattern())));
  }

  private static Seq<SparkPlan> plans(SparkPlan... plans) {
    return CollectionConverters.asScala(List.of(plans)).toList();
  }
}
