package io.kafkalake.spark;

import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * `df.writeTo(table)` for a table over a topic under a session catalogue that is not Spark's own, such as Delta's. Spark takes such a
 * table for one of its first data source API, and refuses to write to it in this way; under its own catalogue it does not.
 *
 * It runs before Spark looks the table up, among the rules for hints.
 */
final class SessionCatalogWrites extends Rule<LogicalPlan> {
  private final org.apache.spark.sql.classic.SparkSession session;

  SessionCatalogWrites(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof V2WriteCommand) || !(((V2WriteCommand) plan).table() instanceof UnresolvedRelation)) {
      return plan;
    }
    UnresolvedRelation named = (UnresolvedRelation) ((V2WriteCommand) plan).table();
    CatalogTable found = found(CollectionConverters.asJava(named.multipartIdentifier()));
    if (found == null || !found.provider().exists(KafkaLakeProvider.NAME::equalsIgnoreCase)) {
      return plan;
    }
    KafkaLakeTable table = new KafkaLakeTable(found.schema(), CollectionConverters.asJava(found.storage().properties()));
    return (LogicalPlan)
        ((V2WriteCommand) plan)
            .withNewTable(
                DataSourceV2Relation.create(table, Option.empty(), Option.empty(), CaseInsensitiveStringMap.empty(), Option.empty()));
  }

  /** The entry of the session catalogue with this name, or null. */
  private CatalogTable found(List<String> name) {
    CatalogManager catalogs = session.sessionState().catalogManager();
    boolean isQualified = name.size() > 1 && name.get(0).equalsIgnoreCase(CatalogManager.SESSION_CATALOG_NAME());
    List<String> parts = isQualified ? name.subList(1, name.size()) : name;
    if (parts.size() > 2
        || catalogs.v2SessionCatalog() instanceof V2SessionCatalog
        || !isQualified && !catalogs.currentCatalog().name().equals(CatalogManager.SESSION_CATALOG_NAME())) {
      return null;
    }
    TableIdentifier table =
        parts.size() == 2 ? new TableIdentifier(parts.get(1), Option.apply(parts.get(0))) : new TableIdentifier(parts.get(0));
    SessionCatalog catalog = session.sessionState().catalog();
    try {
      return catalog.isTempView(table) || !catalog.tableExists(table) ? null : catalog.getTableMetadata(table);
    } catch (NoSuchNamespaceException | NoSuchTableException error) {
      return null; // dropped at the same time
    }
  }
}
