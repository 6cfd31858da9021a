package io.kafkalake.spark;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The keys of which a record must have one for the filters of a query to be true: a hash set of byte strings, and null if that is one.
 *
 * Records with other keys are left out before their values are read. Records that are not left out may still not be wanted: Spark looks
 * at the filters again. Partitions are not left out, since a producer may choose a record's partition by any rule.
 */
final class KeyFilter implements Serializable {
  private static final long serialVersionUID = 1L;

  private static final int SHOWN = 10;

  private final byte[][] slots;
  private final boolean hasNull;
  private final int shortest;
  private final int longest;

  /** @param keys null is one of records without a key */
  private KeyFilter(Set<ByteBuffer> keys) {
    slots = new byte[2 * Integer.highestOneBit(keys.size() + 1)][];
    hasNull = keys.contains(null);
    int min = Integer.MAX_VALUE;
    int max = -1;
    for (ByteBuffer key : keys) {
      if (key != null) {
        byte[] bytes = key.array();
        slots[slot(bytes, 0, bytes.length)] = bytes;
        min = Math.min(min, bytes.length);
        max = Math.max(max, bytes.length);
      }
    }
    shortest = min;
    longest = max;
  }

  /** The filter of a conjunction; null where it says nothing of keys. */
  static KeyFilter of(Predicate[] conjunction, ScanColumn[] columns) {
    Set<ByteBuffer> keys = null;
    for (Predicate predicate : conjunction) {
      keys = both(keys, keys(predicate, columns));
    }
    return keys == null ? null : new KeyFilter(keys);
  }

  /** As plans show it, with the first of many keys. */
  String describe() {
    Stream<String> bytes = Arrays.stream(slots).filter(Objects::nonNull).map(key -> "X'" + HexFormat.of().formatHex(key) + "'").sorted();
    List<String> keys = Stream.concat(bytes, hasNull ? Stream.of("NULL") : Stream.empty()).toList();
    String rest = keys.size() > SHOWN ? ", and " + (keys.size() - SHOWN) + " more" : "";
    return keys.stream().limit(SHOWN).collect(Collectors.joining(", ", "key IN (", rest + ")"));
  }

  /** The keys of the records for which the predicate may be true; null: any. */
  private static Set<ByteBuffer> keys(Predicate predicate, ScanColumn[] columns) {
    Expression[] children = predicate.children();
    switch (predicate.name()) {
      case "AND":
        return both(keys((Predicate) children[0], columns), keys((Predicate) children[1], columns));
      case "OR":
        return either(keys((Predicate) children[0], columns), keys((Predicate) children[1], columns));
      case "=":
      case "IN":
        return among(children, columns, false);
      case "<=>":
        return among(children, columns, true);
      case "IS_NULL":
        return isKey(children[0], columns) ? new HashSet<>(Arrays.asList((ByteBuffer) null)) : null;
      default:
        return null;
    }
  }

  boolean hasNull() {
    return hasNull;
  }

  /** Whether the bytes [begin, end) are one of the keys. */
  boolean has(byte[] data, int begin, int end) {
    return shortest <= end - begin && end - begin <= longest && slots[slot(data, begin, end)] != null;
  }

  /** The slot of these bytes, or the empty one that would be theirs. */
  private int slot(byte[] data, int begin, int end) {
    int hash = 1;
    for (int i = begin; i < end; i++) {
      hash = 31 * hash + data[i];
    }
    int slot = (hash ^ hash >>> 16) & slots.length - 1;
    while (slots[slot] != null && !Arrays.equals(slots[slot], 0, slots[slot].length, data, begin, end)) {
      slot = slot + 1 & slots.length - 1;
    }
    return slot;
  }

  private static Set<ByteBuffer> both(Set<ByteBuffer> first, Set<ByteBuffer> second) {
    if (first == null || second == null) {
      return first == null ? second : first;
    }
    Set<ByteBuffer> common = new HashSet<>(first);
    common.retainAll(second);
    return common;
  }

  private static Set<ByteBuffer> either(Set<ByteBuffer> first, Set<ByteBuffer> second) {
    if (first == null || second == null) {
      return null;
    }
    Set<ByteBuffer> all = new HashSet<>(first);
    all.addAll(second);
    return all;
  }

  /** The constants that the key is compared with; null where another thing is compared, or with another thing. */
  private static Set<ByteBuffer> among(Expression[] children, ScanColumn[] columns, boolean isNullEqual) {
    int key = children.length == 2 && isKey(children[1], columns) ? 1 : 0;
    if (!isKey(children[key], columns)) {
      return null;
    }
    Set<ByteBuffer> keys = new HashSet<>();
    for (int i = 0; i < children.length; i++) {
      if (i == key) {
        continue;
      }
      if (!(children[i] instanceof Literal)) {
        return null;
      }
      Object value = ((Literal<?>) children[i]).value();
      if (value != null) {
        keys.add(ByteBuffer.wrap(value instanceof UTF8String ? ((UTF8String) value).getBytes() : (byte[]) value));
      } else if (isNullEqual) {
        keys.add(null);
      }
    }
    return keys;
  }

  /** Whether it is the column of the keys, as bytes or as a text that is compared by its bytes. */
  private static boolean isKey(Expression expression, ScanColumn[] columns) {
    if (expression instanceof Cast) {
      return ((Cast) expression).dataType().equals(DataTypes.StringType) && isKey(((Cast) expression).expression(), columns);
    }
    if (!(expression instanceof NamedReference)) {
      return false;
    }
    String[] name = ((NamedReference) expression).fieldNames();
    ScanColumn column = name.length == 1 ? ScanColumn.ofRecord(columns, name[0]) : null;
    if (column == null || !column.origin().equals("key")) {
      return false;
    }
    DataType type = column.type();
    return type instanceof BinaryType || type.equals(DataTypes.StringType);
  }
}
