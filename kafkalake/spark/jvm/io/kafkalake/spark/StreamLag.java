package io.kafkalake.spark;

import java.io.IOException;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** How far a stream is behind its topics. */
final class StreamLag {
  private static final ScanColumn[] TIMESTAMP =
      ScanColumn.ofFrame(new StructType().add("timestamp", DataTypes.TimestampType));

  private StreamLag() {}

  /** The least, the most and the mean offsets behind of the partitions, named as by Spark's Kafka source; none without partitions. */
  static Map<String, String> offsetsBehind(Map<String, Long> consumed, Map<String, Long> ends) {
    LongSummaryStatistics behind =
        ends.entrySet().stream()
            .mapToLong(end -> Math.max(0, end.getValue() - consumed.getOrDefault(end.getKey(), 0L)))
            .summaryStatistics();
    Map<String, String> metrics = new HashMap<>();
    if (behind.getCount() > 0) {
      metrics.put("minOffsetsBehindLatest", Long.toString(behind.getMin()));
      metrics.put("maxOffsetsBehindLatest", Long.toString(behind.getMax()));
      metrics.put("avgOffsetsBehindLatest", Double.toString(behind.getAverage()));
    }
    return metrics;
  }

  /** Seconds since the timestamp of the first of these records, the longest of all partitions. The slices are in order. */
  static double secondsBehind(SegmentSlice[] slices, long nowMs) throws IOException {
    Set<String> found = new HashSet<>();
    double longest = 0;
    for (SegmentSlice slice : slices) {
      String partition = slice.topic() + "-" + slice.partition();
      if (found.contains(partition)) {
        continue;
      }
      try (SegmentReader reader = new SegmentReader(TIMESTAMP, ZoneOffset.UTC, new SegmentSlice[] {slice})) {
        if (reader.next()) {
          found.add(partition);
          longest = Math.max(longest, nowMs / 1e3 - reader.get().column(0).getLong(0) / 1e6);
        }
      }
    }
    return longest;
  }
}
