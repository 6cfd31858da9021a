package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.TableSummary;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The topics of a lake as tables: {@code spark.sql.catalog.<name>=io.kafkalake.spark.LakeCatalog}, {@code ....path=/data/lake}.
 *
 * Topics are in the namespace `default`, and found with it and without; `system` has tables about the lake (`MetadataTable`) and the
 * procedures (`LakeProcedure`). What is listed and loaded is read from the lake's files; what changes a topic is asked of the lake's
 * broker. Settings: `path`, the lake; `drop`, `forbidden` where DROP TABLE is not to delete topics; `procedure.timeout`, how long CALL,
 * DELETE and TRUNCATE wait before they withdraw what they have begun.
 */
public final class LakeCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  static final String DEFAULT = "default";
  private static final String[] NAMESPACE = {DEFAULT};
  private static final String[] SYSTEM = {MetadataTable.SYSTEM};
  private static final String PROCEDURE_TIMEOUT = "6h";
  private String name;
  private String lake;
  private boolean mayDrop;
  private String procedureTimeout;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap settings) {
    SparkVersion.require();
    this.name = name;
    lake = settings.get("path");
    if (lake == null) {
      throw KafkaLakeExtensions.refused("spark.sql.catalog." + name + ".path is missing: the directory of the lake");
    }
    String drop = settings.getOrDefault("drop", "allowed");
    if (!drop.equals("allowed") && !drop.equals("forbidden")) {
      throw KafkaLakeExtensions.refused("spark.sql.catalog." + name + ".drop is " + drop + ": allowed and forbidden are possible");
    }
    mayDrop = drop.equals("allowed");
    procedureTimeout = settings.getOrDefault("procedure.timeout", PROCEDURE_TIMEOUT);
    JavaUtils.timeStringAsSec(procedureTimeout); // refuses what is no time
    Planner.prepare();
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String[] defaultNamespace() {
    return NAMESPACE;
  }

  // Tables

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    List<Identifier> about = MetadataTable.list(namespace, question(""));
    if (!about.isEmpty()) {
      return about.toArray(new Identifier[0]);
    }
    requireNamespace(namespace);
    List<Identifier> found = new ArrayList<>();
    for (JsonNode topic : ask("list")) {
      found.add(Identifier.of(NAMESPACE, topic.textValue()));
    }
    return found.toArray(new Identifier[0]);
  }

  /** Without a look at each topic, of which there may be thousands. */
  @Override
  public TableSummary[] listTableSummaries(String[] namespace) throws NoSuchNamespaceException {
    Identifier[] tables = listTables(namespace);
    TableSummary[] found = new TableSummary[tables.length];
    for (int i = 0; i < found.length; i++) {
      found[i] = TableSummary.of(tables[i], TableSummary.MANAGED_TABLE_TYPE);
    }
    return found;
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return isTopic(table) ? load(table, question("load"), Map.of()) : MetadataTable.load(name, table, question(""));
  }

  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    ObjectNode question = question("load").put("version", version(version));
    return isTopic(table) ? load(table, question, Map.of("versionAsOf", version)) : MetadataTable.load(name, table, question);
  }

  /** The number of a version of the lake's table `partitions`. */
  static long version(String version) {
    if (!version.matches("\\d{1,18}")) {
      throw KafkaLakeExtensions.refused("a version is a whole number, and not '" + version + "'");
    }
    return Long.parseLong(version);
  }

  /** @param timestamp in microseconds; Spark has applied the session's time zone */
  @Override
  public Table loadTable(Identifier table, long timestamp) throws NoSuchTableException {
    long milliseconds = Math.floorDiv(timestamp, 1000);
    ObjectNode question = question("load").put("as_of_ms", milliseconds);
    Map<String, String> options = Map.of("timestampAsOf", Long.toString(milliseconds));
    return isTopic(table) ? load(table, question, options) : MetadataTable.load(name, table, question);
  }

  @Override
  public Changelog loadChangelog(Identifier table, ChangelogContext context, CaseInsensitiveStringMap options)
      throws NoSuchTableException {
    TopicTable topic = load(table, question("load"), Map.of());
    return new TopicChangelog(topic, lake, table.name(), context, options);
  }

  private TopicTable load(Identifier table, ObjectNode question, Map<String, String> options) throws NoSuchTableException {
    if (!isTopic(table)) {
      throw new NoSuchTableException(table);
    }
    JsonNode loaded;
    try {
      loaded = Planner.ask(question.put("topic", table.name()));
    } catch (PlannerException error) {
      if (error.is("UnknownTopicOrPartitionError")) {
        throw new NoSuchTableException(table);
      }
      throw error.forUsers();
    }
    Map<String, String> properties = new HashMap<>();
    loaded.get("properties").properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().textValue()));
    properties.put(TableCatalog.PROP_PROVIDER, KafkaLakeProvider.NAME);
    properties.put(TableCatalog.PROP_LOCATION, lake);
    properties.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true"); // no part of a CREATE TABLE
    String topicId = loaded.get("topic_id").textValue();
    return new TopicTable(name, lake, table.name(), topicId, TopicColumns.of(loaded), properties, options, procedureTimeout);
  }

  /** For an INSERT, a table that takes text for Kafka's binary columns. */
  @Override
  public Table loadTable(Identifier table, Set<TableWritePrivilege> privileges) throws NoSuchTableException {
    Table loaded = loadTable(table);
    return privileges.contains(TableWritePrivilege.INSERT) && loaded instanceof TopicTable ? ((TopicTable) loaded).forInsert() : loaded;
  }

  /** A topic for CREATE TABLE ... AS SELECT: made at once, filled by one transaction, and deleted again where that fails. */
  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info) throws TableAlreadyExistsException, NoSuchNamespaceException {
    TopicTable made = createTable(table, info);
    return made.staged(() -> undo(statement("undo_create").put("topic", table.name()).put("topic_id", made.id())));
  }

  /** Asked again of the next planner, as it deletes no topic but the one that was made. */
  private static void undo(ObjectNode statement) {
    try {
      Planner.askToUndo(statement, Planner.TIMEOUT_S);
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }

  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info) throws NoSuchTableException {
    if (!tableExists(table)) {
      throw new NoSuchTableException(table);
    }
    throw KafkaLakeExtensions.refused(
        "a topic is not replaced, as its consumers would lose what they have not read: DROP TABLE deletes it, INSERT INTO adds to it");
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) throws NoSuchNamespaceException {
    try {
      return tableExists(table) ? stageReplace(table, info) : stageCreate(table, info);
    } catch (NoSuchTableException | TableAlreadyExistsException error) {
      throw KafkaLakeExtensions.refused("topic " + table.name() + " was made or deleted at the same time");
    }
  }

  @Override
  public TopicTable createTable(Identifier table, TableInfo info) throws TableAlreadyExistsException, NoSuchNamespaceException {
    requireTopic(table);
    requireNamespace(table.namespace());
    if (isSystem(table.namespace())) {
      throw KafkaLakeExtensions.refused("a topic is made in the namespace default, and not in system");
    }
    if (info.partitions().length > 0) {
      throw KafkaLakeExtensions.refused(
          "a topic is not partitioned by columns: TBLPROPERTIES ('partitions' = '4') says how many partitions it has");
    }
    if (info.constraints().length > 0) {
      throw KafkaLakeExtensions.refused("a topic has no constraints");
    }
    ObjectNode question = statement("create").put("topic", table.name());
    ArrayNode columns = question.putArray("columns");
    for (Column column : info.columns()) {
      if (column.defaultValue() != null || column.generationExpression() != null || column.identityColumnSpec() != null) {
        throw KafkaLakeExtensions.refused("column " + column.name() + " cannot have a default value: a record is as it was written");
      }
      put(columns.addObject(), column.name(), column.dataType(), column.nullable(), column.comment());
    }
    ObjectNode properties = question.putObject("properties");
    info.properties().forEach(properties::put);
    try {
      Planner.ask(question);
      // With the columns that were named, which CREATE TABLE ... AS SELECT writes next.
      return load(table, question("load"), Map.of()).with(info.schema());
    } catch (PlannerException error) {
      if (error.is("TopicAlreadyExistsError")) {
        throw new TableAlreadyExistsException(table);
      }
      throw error.forUsers();
    } catch (NoSuchTableException error) {
      throw KafkaLakeExtensions.refused("topic " + table.name() + " was deleted as soon as it was made");
    }
  }

  /** A topic with the columns of another table; of one over a topic also its settings, but for those that are given. */
  @Override
  public Table createTableLike(Identifier table, TableInfo info, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Map<String, String> properties = new HashMap<>();
    if (source instanceof TopicTable) {
      properties.putAll(source.properties());
      properties.keySet().removeAll(Set.of(TableCatalog.PROP_PROVIDER, TableCatalog.PROP_LOCATION, TableCatalog.PROP_IS_MANAGED_LOCATION));
    }
    properties.putAll(info.properties());
    return createTable(
        table,
        new TableInfo.Builder()
            .withColumns(info.columns())
            .withPartitions(info.partitions())
            .withConstraints(info.constraints())
            .withProperties(properties)
            .build());
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    requireTopic(table);
    if (!isTopic(table)) {
      throw new NoSuchTableException(table);
    }
    ObjectNode question = statement("alter").put("topic", table.name());
    ObjectNode set = question.putObject("set");
    ArrayNode unset = question.putArray("unset");
    ArrayNode added = question.putArray("add");
    for (TableChange change : changes) {
      if (change instanceof TableChange.SetProperty) {
        TableChange.SetProperty property = (TableChange.SetProperty) change;
        set.put(property.property(), property.value());
      } else if (change instanceof TableChange.RemoveProperty) {
        unset.add(((TableChange.RemoveProperty) change).property());
      } else if (change instanceof TableChange.AddColumn) {
        add(added, (TableChange.AddColumn) change);
      } else {
        throw KafkaLakeExtensions.refused(
            "columns are added to a topic, and not altered otherwise: its records are as they were written");
      }
    }
    askFor(table, question);
    return loadTable(table);
  }

  private static void add(ArrayNode columns, TableChange.AddColumn change) {
    String name = String.join(".", change.fieldNames());
    if (change.fieldNames().length > 1) {
      throw KafkaLakeExtensions.refused("column " + name + " is part of another one, and a column is added to a topic as a whole");
    }
    if (change.position() != null) {
      throw KafkaLakeExtensions.refused("column " + name + " is added at the end: the fields of a JSON value have no order");
    }
    if (change.defaultValue() != null) {
      throw KafkaLakeExtensions.refused("column " + name + " cannot have a default value: a record is as it was written");
    }
    put(columns.addObject(), name, change.dataType(), change.isNullable(), change.comment());
  }

  private static void put(ObjectNode column, String name, DataType type, boolean isNullable, String comment) {
    if (!isNullable) {
      throw KafkaLakeExtensions.refused("column " + name + " cannot be NOT NULL: a record's value may be anything");
    }
    column.put("name", name).put("type", type.sql()).put("comment", comment);
  }

  @Override
  public boolean dropTable(Identifier table) {
    return drop(table, false);
  }

  /** Deletes the files of the topic at once, and not after `file.delete.delay.ms`. */
  @Override
  public boolean purgeTable(Identifier table) {
    return drop(table, true);
  }

  private boolean drop(Identifier table, boolean purge) {
    requireTopic(table);
    if (!isTopic(table)) {
      return false;
    }
    if (!mayDrop) {
      throw KafkaLakeExtensions.refused(
          "DROP TABLE would delete the topic " + table.name() + " with its records, and spark.sql.catalog." + name + ".drop is forbidden");
    }
    try {
      String topicId = load(table, question("load"), Map.of()).id();
      // Asked again of the next planner, as it deletes no topic but this one.
      return Planner.askRepeatedly(statement("drop").put("topic", table.name()).put("topic_id", topicId).put("purge", purge), Planner.TIMEOUT_S)
          .booleanValue();
    } catch (NoSuchTableException error) {
      return false;
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw KafkaLakeExtensions.refused("a topic cannot be renamed");
  }

  // Namespaces

  @Override
  public String[][] listNamespaces() {
    return new String[][] {NAMESPACE, SYSTEM};
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) {
      return listNamespaces();
    }
    requireNamespace(namespace);
    return new String[0][];
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0 || isDefault(namespace) || isSystem(namespace);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    requireNamespace(namespace);
    return Map.of(SupportsNamespaces.PROP_LOCATION, lake);
  }

  /** Spark passes over a namespace that is there in CREATE NAMESPACE IF NOT EXISTS. */
  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) throws NamespaceAlreadyExistsException {
    if (namespaceExists(namespace)) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
    throw fixed();
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw fixed();
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw fixed();
  }

  private static RuntimeException fixed() {
    return KafkaLakeExtensions.refused("a lake has the namespaces default and system, which cannot be changed");
  }

  private static boolean isDefault(String[] namespace) {
    return namespace.length == 1 && namespace[0].equals(DEFAULT);
  }

  private static boolean isSystem(String[] namespace) {
    return namespace.length == 1 && namespace[0].equals(MetadataTable.SYSTEM);
  }

  private static boolean isTopic(Identifier table) {
    return table.namespace().length == 0 || isDefault(table.namespace());
  }

  /** Refuses a table about a topic, which nothing but the topic changes. */
  private void requireTopic(Identifier table) {
    if (MetadataTable.isNamespace(table.namespace()) && tableExists(table)) {
      throw KafkaLakeExtensions.refused(
          String.join(".", table.namespace()) + "." + table.name() + " is a table about "
              + (isSystem(table.namespace()) ? "the lake" : "a topic") + ", and is only read");
    }
  }

  private void requireNamespace(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
  }

  // Procedures

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    List<Identifier> found = new ArrayList<>();
    if (namespace.length == 0 || isSystem(namespace)) {
      ask("procedures").fieldNames().forEachRemaining(procedure -> found.add(Identifier.of(SYSTEM, procedure)));
    }
    return found.toArray(new Identifier[0]);
  }

  @Override
  public UnboundProcedure loadProcedure(Identifier procedure) {
    JsonNode all = ask("procedures");
    JsonNode found = all.get(procedure.name());
    if (!isSystem(procedure.namespace()) || found == null) {
      List<String> names = new ArrayList<>();
      all.fieldNames().forEachRemaining(names::add);
      throw KafkaLakeExtensions.refused(
          "there is no procedure " + procedure + " in the lake; those of its namespace system are " + String.join(", ", names));
    }
    return new LakeProcedure(found, statement("call"), procedureTimeout);
  }

  // Questions

  private ObjectNode question(String ask) {
    return Planner.question(ask).put("lake", lake);
  }

  private ObjectNode statement(String ask) {
    return Planner.statement(ask).put("lake", lake);
  }

  private JsonNode ask(String what) {
    try {
      return Planner.ask(question(what));
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }

  private static void askFor(Identifier table, ObjectNode question) throws NoSuchTableException {
    try {
      Planner.ask(question);
    } catch (PlannerException error) {
      if (error.is("UnknownTopicOrPartitionError")) {
        throw new NoSuchTableException(table);
      }
      throw error.forUsers();
    }
  }
}
