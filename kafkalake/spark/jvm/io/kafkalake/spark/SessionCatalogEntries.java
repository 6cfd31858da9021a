package io.kafkalake.spark;

import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * INSERT of text into columns of bytes of a table under Spark's session catalogue with Hive's metastore, where `SessionCatalogWrites`
 * does not run. It runs between the rule that looks the table up and the one that compares its columns with the rows.
 */
final class SessionCatalogEntries extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof InsertIntoStatement) || !(((InsertIntoStatement) plan).table() instanceof DataSourceV2Relation)) {
      return plan;
    }
    DataSourceV2Relation relation = (DataSourceV2Relation) ((InsertIntoStatement) plan).table();
    if (!(relation.table() instanceof KafkaLakeTable) || !((KafkaLakeTable) relation.table()).hasBytes()) {
      return plan;
    }
    KafkaLakeTable table = ((KafkaLakeTable) relation.table()).takingText();
    return SessionCatalogWrites.into(
        DataSourceV2Relation.create(table, relation.catalog(), relation.identifier(), relation.options(), relation.timeTravelSpec()),
        (InsertIntoStatement) plan);
  }
}
