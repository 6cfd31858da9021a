package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The topics of a lake as tables: {@code spark.sql.catalog.<name>=io.kafkalake.spark.LakeCatalog}, {@code ....path=/data/lake}.
 *
 * It has one namespace, `default`, and finds a topic with it and without. What it lists and loads is read from the lake's files; what
 * changes a topic is asked of the lake's broker. Settings: `path`, the lake; `drop`, `forbidden` where DROP TABLE is not to delete topics.
 */
public final class LakeCatalog implements StagingTableCatalog, SupportsNamespaces {
  private static final String[] NAMESPACE = {"default"};
  private String name;
  private String lake;
  private boolean mayDrop;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap settings) {
    this.name = name;
    lake = settings.get("path");
    if (lake == null) {
      throw new IllegalArgumentException("spark.sql.catalog." + name + ".path is missing: the directory of the lake");
    }
    String drop = settings.getOrDefault("drop", "allowed");
    if (!drop.equals("allowed") && !drop.equals("forbidden")) {
      throw new IllegalArgumentException("spark.sql.catalog." + name + ".drop is " + drop + ": allowed and forbidden are possible");
    }
    mayDrop = drop.equals("allowed");
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
    requireNamespace(namespace);
    List<Identifier> found = new ArrayList<>();
    for (JsonNode topic : ask("list")) {
      found.add(Identifier.of(NAMESPACE, topic.textValue()));
    }
    return found.toArray(new Identifier[0]);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return load(table, question("load"), Map.of());
  }

  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    ObjectNode question = question("load").put("version", version(version));
    return load(table, question, Map.of("versionAsOf", version));
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
    return load(table, question, Map.of("timestampAsOf", Long.toString(milliseconds)));
  }

  @Override
  public Changelog loadChangelog(Identifier table, ChangelogContext context, CaseInsensitiveStringMap options)
      throws NoSuchTableException {
    TopicTable topic = load(table, question("load"), Map.of());
    return new TopicChangelog(topic.name(), lake, table.name(), topic.records(), context, options);
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
    return new TopicTable(name, lake, table.name(), TopicColumns.of(loaded), properties, options);
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
    String topicId = made.properties().get("topic.id");
    return made.staged(() -> delete(table, topicId));
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
    requireNamespace(table.namespace());
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

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
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
    if (!isTopic(table)) {
      return false;
    }
    if (!mayDrop) {
      throw KafkaLakeExtensions.refused(
          "DROP TABLE would delete the topic " + table.name() + " with its records, and spark.sql.catalog." + name + ".drop is forbidden");
    }
    return delete(table, null);
  }

  /** @param topicId of the only topic of this name that is to be deleted; null: of any */
  private boolean delete(Identifier table, String topicId) {
    try {
      return Planner.ask(statement("drop").put("topic", table.name()).put("topic_id", topicId)).booleanValue();
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }

  @Override
  public boolean purgeTable(Identifier table) {
    return dropTable(table);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw KafkaLakeExtensions.refused("a topic cannot be renamed");
  }

  // Namespaces

  @Override
  public String[][] listNamespaces() {
    return new String[][] {NAMESPACE};
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
    return namespace.length == 0 || isDefault(namespace);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    requireNamespace(namespace);
    return Map.of(SupportsNamespaces.PROP_LOCATION, lake);
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
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
    return KafkaLakeExtensions.refused("a lake has the one namespace default, which cannot be changed");
  }

  private static boolean isDefault(String[] namespace) {
    return namespace.length == 1 && namespace[0].equals(NAMESPACE[0]);
  }

  private static boolean isTopic(Identifier table) {
    return table.namespace().length == 0 || isDefault(table.namespace());
  }

  private void requireNamespace(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
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
