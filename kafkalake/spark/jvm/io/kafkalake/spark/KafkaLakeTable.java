package io.kafkalake.spark;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Topics with the columns that they were asked for; holds nothing that one scan could leave to the next. */
final class KafkaLakeTable implements Table, SupportsRead, SupportsWrite {
  private final String name;
  private final StructType schema;
  private final Supplier<ScanColumn[]> columns;
  private final Map<String, String> properties;
  private final Map<String, String> options;
  private boolean isFrame;

  /** The properties of a table in a catalogue hold its options; those of a data frame are its options. */
  KafkaLakeTable(StructType schema, Map<String, String> properties) {
    this(KafkaLakeProvider.NAME, schema, () -> ScanColumn.ofFrame(schema), properties);
  }

  /** A table that a data frame is saved to by way of `KafkaLakeProvider`: Spark asks tables in the modes append and overwrite only. */
  static KafkaLakeTable ofFrame(StructType schema, Map<String, String> options) {
    KafkaLakeTable table = new KafkaLakeTable(schema, options);
    table.isFrame = true;
    return table;
  }

  /** @param columns where those of the schema come from, if they are read */
  KafkaLakeTable(String name, StructType schema, Supplier<ScanColumn[]> columns, Map<String, String> properties) {
    this.name = name;
    this.schema = schema;
    this.columns = columns;
    this.properties = new HashMap<>();
    if (TableOptions.isOfCatalogue(properties)) {
      this.properties.putAll(properties);
      this.properties.put(TableCatalog.PROP_PROVIDER, KafkaLakeProvider.NAME);
      this.properties.put(TableCatalog.PROP_EXTERNAL, "true"); // DROP TABLE leaves the topic
      this.properties.remove("path"); // where a table would have files
    }
    this.options = TableOptions.of(properties);
  }

  /** This table with other columns. */
  KafkaLakeTable with(StructType schema, Supplier<ScanColumn[]> columns) {
    return new KafkaLakeTable(name, schema, columns, options);
  }

  /** Whether a column of it is bytes. */
  boolean hasBytes() {
    return Arrays.stream(schema.fields()).anyMatch(column -> column.dataType() instanceof BinaryType);
  }

  /** This table as rows are inserted into it, and not read. */
  KafkaLakeTable takingText() {
    return with(takingText(schema), columns);
  }

  /** The columns of a table that is written to: what is bytes takes text, too, which Spark would not cast to bytes. */
  static StructType takingText(StructType columns) {
    StructType taken = new StructType();
    for (StructField column : columns.fields()) {
      taken = taken.add(column.name(), column.dataType() instanceof BinaryType ? DataTypes.StringType : column.dataType());
    }
    return taken;
  }

  /** What the catalogue has of the table, for SHOW CREATE TABLE; of a data frame nothing. */
  @Override
  public Map<String, String> properties() {
    return properties;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    Set<TableCapability> all = EnumSet.copyOf(pythonTable().capabilities());
    all.add(TableCapability.CONTINUOUS_READ); // so that the scan says what takes its place
    if (isFrame) {
      all.remove(TableCapability.BATCH_WRITE);
    }
    return all;
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new KafkaLakeScanBuilder(schema, columns.get(), merged(options));
  }

  /** The options of the table and those of one use of it, which win, with their lake; in the letters in which they were given. */
  private CaseInsensitiveStringMap merged(CaseInsensitiveStringMap given) {
    Map<String, String> merged = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    merged.putAll(options);
    merged.putAll(given.asCaseSensitiveMap());
    merged.put("__timezone", SQLConf.get().sessionLocalTimeZone());
    TableOptions.locate(merged);
    return new CaseInsensitiveStringMap(merged);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap options = merged(info.options());
    return new OutputModes(KafkaLakeWrite.builder(name, options, info));
  }

  private PythonTable pythonTable() {
    return new PythonTable(KafkaLakeProvider.pythonSource(), KafkaLakeProvider.NAME, schema);
  }
}
