package io.kafkalake.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/** A filter of a query, as the planner is told of it: a column compared with constants. */
final class ScanFilter {
  private ScanFilter() {}

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
