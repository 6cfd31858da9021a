package io.kafkalake.spark;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * INSERT and `df.writeTo(table)` for tables over topics under a session catalogue, Spark's own or another.
 *
 * What is inserted into columns of bytes may be text, as for a table of `LakeCatalog`, which Spark would not cast. A table under a
 * session catalogue that is not Spark's own, such as Delta's, Spark takes for one of its first data source API, and refuses to write to
 * it by `writeTo`. It runs before Spark looks the table up, among the rules for hints, which Spark does not run in a session with Hive's
 * metastore: there `SessionCatalogEntries` does it for INSERT.
 */
final class SessionCatalogWrites extends Rule<LogicalPlan> {
  private final org.apache.spark.sql.classic.SparkSession session;

  SessionCatalogWrites(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof V2WriteCommand) {
      DataSourceV2Relation table = table((LogicalPlan) ((V2WriteCommand) plan).table());
      return table == null ? plan : (LogicalPlan) ((V2WriteCommand) plan).withNewTable(table);
    }
    if (plan instanceof InsertIntoStatement) {
      DataSourceV2Relation table = table(((InsertIntoStatement) plan).table());
      return table == null ? plan : into(table, (InsertIntoStatement) plan);
    }
    return plan;
  }

  /** The same insertion into another table. */
  static LogicalPlan into(DataSourceV2Relation table, InsertIntoStatement insert) {
    return insert.copy(
        table,
        insert.partitionSpec(),
        insert.userSpecifiedCols(),
        insert.query(),
        insert.overwrite(),
        insert.ifPartitionNotExists(),
        insert.byName(),
        insert.replaceCriteriaOpt(),
        insert.withSchemaEvolution());
  }

  /** The table over a topic that has this name in the session catalogue, or null. */
  private DataSourceV2Relation table(LogicalPlan named) {
    if (!(named instanceof UnresolvedRelation)) {
      return null;
    }
    CatalogTable found = found(CollectionConverters.asJava(((UnresolvedRelation) named).multipartIdentifier()));
    if (found == null || !found.provider().exists(KafkaLakeProvider.NAME::equalsIgnoreCase)) {
      return null;
    }
    Map<String, String> options = CollectionConverters.asJava(found.storage().properties());
    TableIdentifier name = found.identifier();
    return DataSourceV2Relation.create(
        new KafkaLakeTable(KafkaLakeTable.takingText(found.schema()), options),
        Option.apply(session.sessionState().catalogManager().v2SessionCatalog()), // by which what is cached of the table is read again
        Option.apply(Identifier.of(new String[] {name.database().get()}, name.table())),
        CaseInsensitiveStringMap.empty(),
        Option.empty());
  }

  /** The entry of the session catalogue with this name, or null. */
  private CatalogTable found(List<String> name) {
    CatalogManager catalogs = session.sessionState().catalogManager();
    boolean isQualified = name.size() > 1 && name.get(0).equalsIgnoreCase(CatalogManager.SESSION_CATALOG_NAME());
    List<String> parts = isQualified ? name.subList(1, name.size()) : name;
    if (parts.size() > 2
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
