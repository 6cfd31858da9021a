package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * How many records there are, and the extremes of their offsets and timestamps (microseconds).
 *
 * An extreme is null of no records, where nobody asks for it, and where other records of the partition are known to have it.
 */
record RecordFacts(long records, Long minOffset, Long maxOffset, Long minTimestamp, Long maxTimestamp) implements Serializable {
  static final RecordFacts NONE = new RecordFacts(0, null, null, null, null);

  /** What the planner knows of a partition: topic, partition, then these, with timestamps in milliseconds. */
  static RecordFacts of(JsonNode known) {
    return new RecordFacts(
        known.get(2).longValue(), number(known.get(3), 1), number(known.get(4), 1), number(known.get(5), 1000), number(known.get(6), 1000));
  }

  private static Long number(JsonNode value, long unit) {
    return value.isNull() ? null : value.longValue() * unit;
  }

  /** Of these records and of others. */
  RecordFacts and(RecordFacts other) {
    return new RecordFacts(
        records + other.records,
        least(minOffset, other.minOffset),
        greatest(maxOffset, other.maxOffset),
        least(minTimestamp, other.minTimestamp),
        greatest(maxTimestamp, other.maxTimestamp));
  }

  private static Long least(Long one, Long other) {
    return one == null ? other : other == null ? one : (Long) Math.min(one, other);
  }

  private static Long greatest(Long one, Long other) {
    return one == null ? other : other == null ? one : (Long) Math.max(one, other);
  }
}
