package io.kafkalake.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** The condition of a DELETE by keys: {@code key = X'61'}, {@code _key IN ('a', 'b')}. */
final class KeyCondition {
  private KeyCondition() {}

  /**
   * The keys that the conditions name, in hexadecimal; null where they are others, or name no key.
   *
   * @param isKey whether a column is the key
   */
  static List<String> keys(Predicate[] conditions, java.util.function.Predicate<String> isKey) {
    List<String> keys = null;
    for (Predicate condition : conditions) {
      if (condition.name().equals("ALWAYS_TRUE") || condition.name().equals("IS_NOT_NULL") && isKey(condition.children()[0], isKey)) {
        continue;
      }
      List<String> named = keys(condition, isKey);
      if (keys != null || named == null) {
        return null;
      }
      keys = named;
    }
    return keys;
  }

  private static List<String> keys(Predicate condition, java.util.function.Predicate<String> isKey) {
    Expression[] children = condition.children();
    List<String> keys = new ArrayList<>();
    switch (condition.name()) {
      case "OR":
        for (Expression child : children) {
          List<String> named = child instanceof Predicate ? keys((Predicate) child, isKey) : null;
          if (named == null) {
            return null;
          }
          keys.addAll(named);
        }
        return keys;
      case "=":
      case "<=>":
      case "IN":
        if (!isKey(children[0], isKey)) {
          return null;
        }
        for (int i = 1; i < children.length; i++) {
          if (condition.name().equals("IN") && isNull(children[i])) {
            continue; // equals no key
          }
          String key = key(children[i]);
          if (key == null) {
            return null;
          }
          keys.add(key);
        }
        return keys;
      default:
        return null;
    }
  }

  /** Whether it is the column of the keys, or that as a string: a key is what the bytes of the string are. */
  private static boolean isKey(Expression expression, java.util.function.Predicate<String> isKey) {
    if (expression instanceof Cast && ((Cast) expression).dataType().equals(DataTypes.StringType)) {
      return isKey(((Cast) expression).expression(), isKey);
    }
    if (!(expression instanceof NamedReference)) {
      return false;
    }
    String[] name = ((NamedReference) expression).fieldNames();
    return name.length == 1 && isKey.test(name[0]);
  }

  private static boolean isNull(Expression expression) {
    return expression instanceof Literal && ((Literal<?>) expression).value() == null;
  }

  private static String key(Expression expression) {
    Object value = expression instanceof Literal ? ((Literal<?>) expression).value() : null;
    if (value instanceof UTF8String) {
      return HexFormat.of().formatHex(value.toString().getBytes(StandardCharsets.UTF_8));
    }
    return value instanceof byte[] ? HexFormat.of().formatHex((byte[]) value) : null;
  }
}
