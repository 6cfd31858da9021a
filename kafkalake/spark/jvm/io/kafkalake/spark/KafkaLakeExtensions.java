package io.kafkalake.spark;

import java.util.Arrays;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.AlterTableCommand;
import org.apache.spark.sql.catalyst.plans.logical.CommentOnTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.TruncateTable;
import org.apache.spark.sql.execution.command.AlterTableSetLocationCommand;
import org.apache.spark.sql.execution.command.AlterTableSetPropertiesCommand;
import org.apache.spark.sql.execution.command.AlterTableUnsetPropertiesCommand;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
import org.apache.spark.sql.execution.datasources.CreateTable;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * Refuses statements that Spark would carry out on a catalogue's entry alone, and report as done: the topic would stay as it is.
 *
 * Spark finds it in every session that has the jar; for one that has a lake as a catalogue it starts the planning process, and makes ready
 * what the first query needs. The two kinds of each command are those of Spark's own session catalogue and of one
 * in its place, such as Delta's.
 */
public final class KafkaLakeExtensions implements SparkSessionExtensionsProvider {
  private static final String GENERAL_ERROR = "HY000";

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    if (!SparkVersion.isNeeded()) {
      return BoxedUnit.UNIT; // sessions of another Spark are none of ours
    }
    extensions.injectHintResolutionRule(SessionCatalogWrites::new);
    extensions.injectResolutionRule(session -> new SessionCatalogEntries());
    extensions.injectPostHocResolutionRule(UnsupportedStatements::new);
    extensions.injectPostHocResolutionRule(session -> new ExternalEntries());
    extensions.injectPlannerStrategy(session -> new AggregateStrategy());
    extensions.injectPlannerStrategy(session -> new ShowTopicsStrategy());
    if (hasLake(SparkEnv.get())) {
      FirstQuery.prepare();
      Planner.prepare();
    }
    extensions.injectCheckRule(
        session ->
            plan -> {
              check(session, plan);
              LocalCheckpoints.useFor(plan, (org.apache.spark.sql.classic.SparkSession) session);
              return BoxedUnit.UNIT;
            });
    return BoxedUnit.UNIT;
  }

  /** Whether the application names a lake as a catalogue. */
  private static boolean hasLake(SparkEnv environment) {
    return environment != null
        && Arrays.stream(environment.conf().getAllWithPrefix("spark.sql.catalog."))
            .anyMatch(setting -> setting._2().equals(LakeCatalog.class.getName()));
  }

  /** Refuses a statement that would change a catalogue's entry and not its topic. */
  static void check(SparkSession session, LogicalPlan plan) {
    if (plan instanceof CreateTableAsSelect && !isOfLake(((CreateTableAsSelect) plan).name())) {
      checkCreate(((CreateTableAsSelect) plan).tableSpec().provider());
    } else if (plan instanceof ReplaceTableAsSelect && !isOfLake(((ReplaceTableAsSelect) plan).name())) {
      checkCreate(((ReplaceTableAsSelect) plan).tableSpec().provider());
    } else if (plan instanceof CreateTable && ((CreateTable) plan).query().isDefined()) {
      checkCreate(((CreateTable) plan).tableDesc().provider());
    } else if (plan instanceof CreateTable) {
      CatalogTable table = ((CreateTable) plan).tableDesc();
      requireTopics(table.provider(), table.storage().properties());
    } else if (plan instanceof org.apache.spark.sql.catalyst.plans.logical.CreateTable) {
      requireTopics((org.apache.spark.sql.catalyst.plans.logical.CreateTable) plan);
    } else if (isTruncation(session, plan)) {
      throw refused(
          "TRUNCATE TABLE does not reach a topic: kafkalake topics delete-records deletes its records up to an offset");
    } else if (isAlteration(session, plan)) {
      throw refused(
          "ALTER TABLE changes the catalogue's entry and not the topic: kafkalake topics alter changes the settings of a topic;"
              + " for other options or columns drop the table, which leaves the topic as it is, and create it again");
    }
  }

  /** Whether the name is one of a `LakeCatalog`, which makes topics. */
  static boolean isOfLake(LogicalPlan name) {
    return name instanceof ResolvedIdentifier && ((ResolvedIdentifier) name).catalog() instanceof LakeCatalog;
  }

  private static void checkCreate(Option<String> provider) {
    if (isKafkaLake(provider)) {
      throw refused(
          "a topic and a table over it are not made by writing rows: make the topic (kafkalake topics create), then the table"
              + " (CREATE TABLE ... USING kafkalake OPTIONS (lake ..., subscribe ...)), and INSERT INTO it; or write to the topic by"
              + " its name, with save(...)");
    }
  }

  private static void requireTopics(org.apache.spark.sql.catalyst.plans.logical.CreateTable plan) {
    if (!isOfLake(plan.name()) && plan.tableSpec() instanceof TableSpec) {
      TableSpec table = (TableSpec) plan.tableSpec();
      requireTopics(table.provider(), table.options());
    }
  }

  /** A table over topics that are not there, or of no lake, is refused when it is made, and not when it is first read. */
  private static void requireTopics(Option<String> provider, scala.collection.immutable.Map<String, String> options) {
    if (isKafkaLake(provider)) {
      TableOptions.ask("require_topics", CollectionConverters.asJava(options));
    }
  }

  private static boolean isTruncation(SparkSession session, LogicalPlan plan) {
    return plan instanceof TruncateTable && isKafkaLake(((TruncateTable) plan).table())
        || plan instanceof TruncateTableCommand && isKafkaLake(session, ((TruncateTableCommand) plan).tableName());
  }

  private static boolean isAlteration(SparkSession session, LogicalPlan plan) {
    if (plan instanceof AlterTableCommand) {
      return !(plan instanceof CommentOnTable) && isKafkaLake(((AlterTableCommand) plan).table());
    }
    if (plan instanceof AlterTableSetPropertiesCommand) {
      return isKafkaLake(session, ((AlterTableSetPropertiesCommand) plan).tableName());
    }
    if (plan instanceof AlterTableUnsetPropertiesCommand) {
      return isKafkaLake(session, ((AlterTableUnsetPropertiesCommand) plan).tableName());
    }
    return plan instanceof AlterTableSetLocationCommand
        && isKafkaLake(session, ((AlterTableSetLocationCommand) plan).tableName());
  }

  private static boolean isKafkaLake(LogicalPlan table) {
    return table instanceof ResolvedTable && ((ResolvedTable) table).table() instanceof KafkaLakeTable;
  }

  private static boolean isKafkaLake(SparkSession session, TableIdentifier table) {
    SessionCatalog catalogue = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalog();
    try {
      return catalogue.tableExists(table) && isKafkaLake(catalogue.getTableMetadata(table).provider());
    } catch (NoSuchNamespaceException | NoSuchTableException error) {
      return false;
    }
  }

  private static boolean isKafkaLake(Option<String> provider) {
    return provider.isDefined() && provider.get().equalsIgnoreCase(KafkaLakeProvider.NAME);
  }

  /**
   * Spark's exception for what cannot be planned, which Java takes for a checked one. It has an SQLSTATE, as `spark-sql` prints the
   * stack of every error that has none.
   */
  static RuntimeException refused(String sentence) {
    return unchecked(
        new AnalysisException(
            sentence,
            Option.empty(),
            Option.empty(),
            Option.empty(),
            Option.empty(),
            Map$.MODULE$.empty(),
            new QueryContext[0],
            Option.apply(GENERAL_ERROR),
            Option.empty()));
  }

  @SuppressWarnings("unchecked")
  static <E extends Throwable> RuntimeException unchecked(Throwable error) throws E {
    throw (E) error;
  }
}
