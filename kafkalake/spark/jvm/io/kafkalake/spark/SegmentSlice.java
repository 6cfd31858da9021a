package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * Offsets [from, to) of one segment file, as `kafkalake.reader.plan.SegmentSlice`; the first `size` bytes of the file count (-1: all).
 *
 * @param topicId of the topic, which the file's directory must still name when it is read
 * @param aborted producer id, first and last offset of each aborted transaction in it
 */
record SegmentSlice(
    String path, String topic, String topicId, int partition, long from, long to, long size, long[][] aborted)
    implements Serializable {
  static SegmentSlice of(JsonNode json) {
    JsonNode transactions = json.get("aborted");
    long[][] aborted = new long[transactions.size()][3];
    for (int i = 0; i < aborted.length; i++) {
      for (int k = 0; k < 3; k++) {
        aborted[i][k] = transactions.get(i).get(k).longValue();
      }
    }
    return new SegmentSlice(
        json.get("path").textValue(),
        json.get("topic").textValue(),
        json.get("topic_id").textValue(),
        json.get("partition").intValue(),
        json.get("from_offset").longValue(),
        json.get("to_offset").longValue(),
        json.get("size").longValue(),
        aborted);
  }

  static SegmentSlice[] allOf(JsonNode listed) {
    SegmentSlice[] slices = new SegmentSlice[listed.size()];
    for (int i = 0; i < slices.length; i++) {
      slices[i] = of(listed.get(i));
    }
    return slices;
  }

  /** Whether a transactional batch of this producer at this offset was aborted. */
  boolean isAborted(long producerId, long offset) {
    for (long[] transaction : aborted) {
      if (transaction[0] == producerId && transaction[1] <= offset && offset <= transaction[2]) {
        return true;
      }
    }
    return false;
  }
}
