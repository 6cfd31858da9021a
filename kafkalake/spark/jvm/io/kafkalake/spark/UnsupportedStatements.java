package io.kafkalake.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.CreateView;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UnsetTableProperties;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses statements that no topic can carry out, with what takes their place: Spark's own errors are about something else, or those of a
 * cast. It runs once the tables are known, and before Spark checks what they can do: to what is refused there, Spark adds the plan.
 */
final class UnsupportedStatements extends Rule<LogicalPlan> {
  private final SparkSession session;

  UnsupportedStatements(SparkSession session) {
    this.session = session;
  }

  private static final String RECORDS =
      " does not change the records of a topic: INSERT INTO adds to them, and in a compacted topic (cleanup.policy=compact) the new row of"
          + " a key takes the place of the one before";

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    KafkaLakeExtensions.check(session, plan);
    if (plan instanceof DeleteFromTable
        && isTopic(((DeleteFromTable) plan).table())
        && SubqueryExpression.hasSubquery(((DeleteFromTable) plan).condition())) {
      throw KafkaLakeExtensions.refused("DELETE from a topic takes no subquery: name the keys (WHERE ... IN ('a', 'b')), or an offset");
    }
    if (plan instanceof UpdateTable && isTopic(((UpdateTable) plan).table())) {
      throw KafkaLakeExtensions.refused("UPDATE TABLE" + RECORDS);
    }
    if (plan instanceof MergeIntoTable && isTopic(((MergeIntoTable) plan).targetTable())) {
      throw KafkaLakeExtensions.refused("MERGE INTO TABLE" + RECORDS);
    }
    if (plan instanceof CreateView && KafkaLakeExtensions.isOfLake(((CreateView) plan).child())) {
      throw KafkaLakeExtensions.refused(
          "a lake has no views: CREATE TEMPORARY VIEW makes one for the session, CREATE VIEW spark_catalog.default.... one that stays");
    }
    if (plan instanceof UnsetTableProperties) {
      checkUnset((UnsetTableProperties) plan);
    }
    return plan;
  }

  private static void checkUnset(UnsetTableProperties statement) {
    if (statement.ifExists() || !(statement.table() instanceof ResolvedTable)) {
      return;
    }
    Table table = ((ResolvedTable) statement.table()).table();
    if (table instanceof TopicTable) {
      ((TopicTable) table).requireSettings(CollectionConverters.asJava(statement.propertyKeys()));
    }
  }

  private static boolean isTopic(LogicalPlan named) {
    LogicalPlan table = EliminateSubqueryAliases.apply(named);
    if (!(table instanceof DataSourceV2Relation)) {
      return false;
    }
    Table found = ((DataSourceV2Relation) table).table();
    return found instanceof TopicTable || found instanceof KafkaLakeTable;
  }
}
