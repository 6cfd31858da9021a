package io.kafkalake.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The columns of a scan that answers counts, and extremes of offsets and timestamps, by topic, partition, both or neither. */
final class ScanAggregates implements Serializable {
  private static final long serialVersionUID = 1L;

  /** What a column of the answer is. */
  private enum Output {
    TOPIC(DataTypes.StringType),
    PARTITION(DataTypes.IntegerType),
    RECORDS(DataTypes.LongType),
    MIN_OFFSET(DataTypes.LongType),
    MAX_OFFSET(DataTypes.LongType),
    MIN_TIMESTAMP(DataTypes.TimestampType),
    MAX_TIMESTAMP(DataTypes.TimestampType);

    private final DataType type;

    Output(DataType type) {
      this.type = type;
    }
  }

  private final List<Output> outputs;
  private final String described;

  private ScanAggregates(List<Output> outputs, String described) {
    this.outputs = outputs;
    this.described = described;
  }

  /** Those of the query; null where one of them takes the records. */
  static ScanAggregates of(Aggregation aggregation, ScanColumn[] columns) {
    List<Output> outputs = new ArrayList<>();
    List<String> groups = new ArrayList<>();
    List<String> functions = new ArrayList<>();
    for (Expression group : aggregation.groupByExpressions()) {
      String column = column(group, columns);
      outputs.add(column.equals("topic") ? Output.TOPIC : column.equals("partition") ? Output.PARTITION : null);
      groups.add(column);
    }
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      outputs.add(output(function, columns));
      functions.add(function.describe());
    }
    if (outputs.contains(null)) {
      return null;
    }
    return new ScanAggregates(outputs, String.join(", ", functions) + (groups.isEmpty() ? "" : " by " + String.join(", ", groups)));
  }

  private static Output output(AggregateFunc function, ScanColumn[] columns) {
    if (function instanceof CountStar) {
      return Output.RECORDS;
    }
    if (function instanceof Count) {
      Count count = (Count) function;
      return !count.isDistinct() && ScanFilter.NEVER_NULL.contains(column(count.column(), columns)) ? Output.RECORDS : null;
    }
    if (function instanceof Min || function instanceof Max) {
      boolean isMin = function instanceof Min;
      switch (column(isMin ? ((Min) function).column() : ((Max) function).column(), columns)) {
        case "offset":
          return isMin ? Output.MIN_OFFSET : Output.MAX_OFFSET;
        case "timestamp":
          return isMin ? Output.MIN_TIMESTAMP : Output.MAX_TIMESTAMP;
        default:
      }
    }
    return null;
  }

  /** Kafka's name of a column with the type that it has in the answer; empty for another expression. */
  private static String column(Expression expression, ScanColumn[] columns) {
    if (!(expression instanceof NamedReference) || ((NamedReference) expression).fieldNames().length != 1) {
      return "";
    }
    ScanColumn column = ScanColumn.ofRecord(columns, ((NamedReference) expression).fieldNames()[0]);
    if (column == null) {
      return "";
    }
    String name = column.origin();
    DataType type = column.type();
    switch (name) {
      case "timestamp":
        return type.equals(DataTypes.TimestampType) ? name : "";
      case "offset":
        return type.equals(DataTypes.LongType) ? name : "";
      case "partition":
        return type.equals(DataTypes.IntegerType) ? name : "";
      case "topic":
        return type.equals(DataTypes.StringType) ? name : "";
      default:
        return name;
    }
  }

  StructType schema() {
    StructType schema = new StructType();
    for (int i = 0; i < outputs.size(); i++) {
      schema = schema.add("_" + i + "_" + outputs.get(i).name().toLowerCase(java.util.Locale.ROOT), outputs.get(i).type);
    }
    return schema;
  }

  /** As a plan shows them. */
  String described() {
    return described;
  }

  boolean hasOffsets() {
    return outputs.contains(Output.MIN_OFFSET) || outputs.contains(Output.MAX_OFFSET);
  }

  boolean hasTimestamps() {
    return outputs.contains(Output.MIN_TIMESTAMP) || outputs.contains(Output.MAX_TIMESTAMP);
  }

  /** Whether there is one row, also of no records. */
  boolean isOfAll() {
    return !outputs.contains(Output.TOPIC) && !outputs.contains(Output.PARTITION);
  }

  /** What the records of this partition are counted with. */
  List<Object> group(String topic, int partition) {
    List<Object> group = new ArrayList<>();
    if (outputs.contains(Output.TOPIC)) {
      group.add(topic);
    }
    if (outputs.contains(Output.PARTITION)) {
      group.add(partition);
    }
    return group;
  }

  InternalRow row(List<Object> group, RecordFacts facts) {
    Object[] values = new Object[outputs.size()];
    for (int i = 0; i < values.length; i++) {
      switch (outputs.get(i)) {
        case TOPIC:
          values[i] = UTF8String.fromString((String) group.get(0));
          break;
        case PARTITION:
          values[i] = group.get(group.size() - 1);
          break;
        case RECORDS:
          values[i] = facts.records();
          break;
        case MIN_OFFSET:
          values[i] = facts.minOffset();
          break;
        case MAX_OFFSET:
          values[i] = facts.maxOffset();
          break;
        case MIN_TIMESTAMP:
          values[i] = facts.minTimestamp();
          break;
        default:
          values[i] = facts.maxTimestamp();
      }
    }
    return new GenericInternalRow(values);
  }
}
