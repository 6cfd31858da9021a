package io.kafkalake.spark;

import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes an entry about a topic EXTERNAL, as DROP TABLE leaves the topic, also under a session catalogue in the place of Spark's own, such as
 * Delta's: there a table is what Spark makes of a CREATE TABLE, and external if it has a location. It is the lake.
 */
final class ExternalEntries extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof CreateTable)) {
      return plan;
    }
    CreateTable create = (CreateTable) plan;
    if (!isOfAnotherSessionCatalog(create.name()) || !(create.tableSpec() instanceof TableSpec)) {
      return plan;
    }
    TableSpec table = (TableSpec) create.tableSpec();
    if (!table.provider().exists(KafkaLakeProvider.NAME::equalsIgnoreCase) || table.location().isDefined()) {
      return plan;
    }
    String lake = TableOptions.ask("require_topics", CollectionConverters.asJava(table.options())).textValue();
    TableSpec external =
        table.copy(
            table.properties(),
            table.provider(),
            table.options(),
            Option.apply(lake),
            table.comment(),
            table.collation(),
            table.serde(),
            table.external(),
            table.constraints());
    return create.copy(create.name(), create.columns(), create.partitioning(), external, create.ignoreIfExists());
  }

  private static boolean isOfAnotherSessionCatalog(LogicalPlan name) {
    if (!(name instanceof ResolvedIdentifier)) {
      return false;
    }
    CatalogPlugin catalog = ((ResolvedIdentifier) name).catalog();
    return catalog.name().equals(CatalogManager.SESSION_CATALOG_NAME()) && !(catalog instanceof V2SessionCatalog);
  }
}
