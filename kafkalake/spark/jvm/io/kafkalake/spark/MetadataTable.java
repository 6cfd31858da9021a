package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table about a topic, `clicks.lag`, or about all topics of the lake, `system.lag`. It is only read.
 *
 * Which there are, their columns and their rows is the planner's (`kafkalake/spark/metadata_tables`). Their namespace is the topic, or
 * `default` and the topic, as tables are named in Iceberg's catalogues.
 */
final class MetadataTable implements SupportsRead {
  /** The namespace of what concerns the whole lake. */
  static final String SYSTEM = "system";

  private final String name;
  private final StructType columns;
  private final ObjectNode question;

  private MetadataTable(String name, StructType columns, ObjectNode question) {
    this.name = name;
    this.columns = columns;
    this.question = question;
  }

  /** Whether tables of this namespace, if it is there, are about a topic or the lake, and no topics. */
  static boolean isNamespace(String[] namespace) {
    return namespace.length == 1 && !namespace[0].equals(LakeCatalog.DEFAULT)
        || namespace.length == 2 && namespace[0].equals(LakeCatalog.DEFAULT);
  }

  /** @param question with the lake, and with the version or the time of which the table is */
  static MetadataTable load(String catalog, Identifier table, ObjectNode question) throws NoSuchTableException {
    if (!isNamespace(table.namespace())) {
      throw new NoSuchTableException(table);
    }
    about(table.namespace(), question).put("table", table.name());
    try {
      JsonNode columns = Planner.ask(question.put("ask", "metadata_columns"));
      String name = catalog + "." + String.join(".", table.namespace()) + "." + table.name();
      return new MetadataTable(name, StructType.fromDDL(columns.textValue()), question);
    } catch (PlannerException error) {
      if (error.is("UnknownTopicOrPartitionError")) {
        throw new NoSuchTableException(table);
      }
      throw error.forUsers();
    }
  }

  /** The tables of a namespace; none where it is none of a topic. */
  static List<Identifier> list(String[] namespace, ObjectNode question) {
    List<Identifier> found = new ArrayList<>();
    if (isNamespace(namespace)) {
      try {
        for (JsonNode name : Planner.ask(about(namespace, question).put("ask", "metadata_tables"))) {
          found.add(Identifier.of(namespace, name.textValue()));
        }
      } catch (PlannerException error) {
        if (!error.is("UnknownTopicOrPartitionError")) {
          throw error.forUsers();
        }
      }
    }
    return found;
  }

  private static ObjectNode about(String[] namespace, ObjectNode question) {
    boolean isOfLake = namespace.length == 1 && namespace[0].equals(SYSTEM);
    return question.put("topic", isOfLake ? null : namespace[namespace.length - 1]);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public StructType schema() {
    return columns;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new Builder();
  }

  private final class Builder implements SupportsPushDownRequiredColumns {
    private StructType wanted = columns;

    @Override
    public void pruneColumns(StructType required) {
      wanted = new StructType();
      for (String column : required.fieldNames()) {
        wanted = wanted.add(columns.apply(column)); // whole, also where only a part of it is required
      }
    }

    @Override
    public Scan build() {
      return new JsonScan(name, columns, wanted, this::rows);
    }

    private JsonNode rows() {
      try {
        return Planner.ask(question.deepCopy().put("ask", "metadata_rows"));
      } catch (PlannerException error) {
        throw error.forUsers();
      }
    }
  }
}
