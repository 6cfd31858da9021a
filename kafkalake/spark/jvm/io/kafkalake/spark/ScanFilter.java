package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/** A filter of a query, as the planner is told of it: a column compared with constants. */
final class ScanFilter {
  /** Columns of which every record has a value. */
  static final Set<String> NEVER_NULL = Set.of("topic", "partition", "offset", "timestamp", "timestampType");

  /** Columns that are the same in all records of a partition. */
  static final Set<String> OF_PARTITIONS = Set.of("topic", "partition");

  private static final Set<String> COMPARISONS = Set.of("=", "<=>", "<", "<=", ">", ">=");

  private ScanFilter() {}

  /**
   * What the planner is told of a filter: a comparison of a column of Kafka's, or a disjunction, `any_of`, of conjunctions of those.
   *
   * Null where the scan reads all records whatever the filter says. Conjunctions leave out what is no comparison.
   */
  static ObjectNode ofRecord(Predicate predicate, ScanColumn[] columns) {
    ObjectNode comparison = of(predicate);
    if (comparison != null) {
      ScanColumn column = ScanColumn.ofRecord(columns, comparison.get("column").textValue());
      return column == null ? null : comparison.put("column", column.origin()).put("is_exact", isExact(column.origin(), comparison));
    }
    if (!predicate.name().equals("OR")) {
      return null;
    }
    ObjectNode disjunction = Planner.JSON.createObjectNode().put("is_exact", false);
    ArrayNode conjunctions = disjunction.putArray("any_of");
    for (Predicate alternative : flat("OR", predicate)) {
      ArrayNode conjunction = conjunctions.addArray();
      for (Predicate part : flat("AND", alternative)) {
        ObjectNode told = ofRecord(part, columns);
        if (told != null && told.has("column")) {
          conjunction.add(told);
        }
      }
      if (conjunction.isEmpty()) {
        return null;
      }
    }
    return disjunction;
  }

  /** Whether records of this partition may be wanted: of a comparison with values of `OF_PARTITIONS` they are among them. */
  static boolean takes(ObjectNode comparison, String topic, int partition) {
    String column = comparison.get("column").textValue();
    if (!OF_PARTITIONS.contains(column) || !isAnyOf(comparison)) {
      return true;
    }
    for (JsonNode value : comparison.get("values")) {
      if (column.equals("topic") ? topic.equals(value.textValue()) : value.isNumber() && value.intValue() == partition) {
        return true;
      }
    }
    return false;
  }

  /** The operands of nested predicates of this name. */
  private static List<Predicate> flat(String name, Predicate predicate) {
    if (!predicate.name().equals(name)) {
      return List.of(predicate);
    }
    List<Predicate> found = new ArrayList<>();
    for (Expression child : predicate.children()) {
      found.addAll(flat(name, (Predicate) child));
    }
    return found;
  }

  /**
   * Whether a scan under this comparison reads no other records, so that Spark need not look at it again: the planner takes just
   * the partitions, or just the offsets. Of timestamps it takes segments.
   */
  private static boolean isExact(String column, ObjectNode comparison) {
    String operator = comparison.get("operator").textValue();
    if (operator.equals("IS_NOT_NULL")) {
      return NEVER_NULL.contains(column);
    }
    boolean isAnyOf = operator.equals("IN");
    if (!isAnyOf && !COMPARISONS.contains(operator)) {
      return false;
    }
    for (JsonNode value : comparison.get("values")) {
      if (value.isNull()) {
        return false;
      }
    }
    switch (column) {
      case "topic":
        return isAnyOf || operator.equals("=");
      case "partition":
        return true;
      case "offset":
        return !isAnyOf;
      default:
        return false;
    }
  }

  /** The comparison; null where the predicate is none. */
  static ObjectNode of(Predicate predicate) {
    Expression[] children = predicate.children();
    if (predicate.name().equals("OR")) {
      return either(of((Predicate) children[0]), of((Predicate) children[1]));
    }
    if (children.length == 0 || !(children[0] instanceof NamedReference)) {
      return null;
    }
    ObjectNode comparison = Planner.JSON.createObjectNode();
    comparison.put("column", String.join(".", ((NamedReference) children[0]).fieldNames()));
    comparison.put("operator", predicate.name());
    ArrayNode values = comparison.putArray("values");
    for (int i = 1; i < children.length; i++) {
      if (!(children[i] instanceof Literal) || !add(values, ((Literal<?>) children[i]).value())) {
        return null;
      }
    }
    return comparison;
  }

  /** `a = 1 OR a = 2` as `a IN (1, 2)`; null for another disjunction. */
  private static ObjectNode either(ObjectNode first, ObjectNode second) {
    if (first == null || second == null || !isAnyOf(first) || !isAnyOf(second) || !first.get("column").equals(second.get("column"))) {
      return null;
    }
    ObjectNode both = first.deepCopy().put("operator", "IN");
    ((ArrayNode) both.get("values")).addAll((ArrayNode) second.get("values"));
    return both;
  }

  private static boolean isAnyOf(ObjectNode comparison) {
    String operator = comparison.get("operator").textValue();
    return operator.equals("=") || operator.equals("IN");
  }

  private static boolean add(ArrayNode values, Object value) {
    if (value == null) {
      values.addNull();
    } else if (value instanceof UTF8String) {
      values.add(value.toString());
    } else if (value instanceof Integer || value instanceof Long) {
      values.add(((Number) value).longValue());
    } else {
      return false;
    }
    return true;
  }
}
