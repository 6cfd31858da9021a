package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;

/**
 * A partition to follow: the slices that were there when the batch was planned, then what its leader appends to `directory`.
 *
 * @param from the offset after the slices
 * @param isCommitted whether records of open and aborted transactions are left out
 * @param failOnDataLoss whether offsets that are gone end the query
 * @param avro as in `SlicesPartition`, when the batch was planned
 */
record TailPartition(
    String topic,
    String topicId,
    int partition,
    String directory,
    SegmentSlice[] slices,
    long from,
    boolean isCommitted,
    boolean failOnDataLoss,
    AvroValues avro)
    implements InputPartition {
  static TailPartition of(JsonNode json) {
    return new TailPartition(
        json.get("topic").textValue(),
        json.get("topic_id").textValue(),
        json.get("partition").intValue(),
        json.get("directory").textValue(),
        SegmentSlice.allOf(json.get("slices")),
        json.get("from_offset").longValue(),
        json.get("is_committed").booleanValue(),
        json.get("fail_on_data_loss").booleanValue(),
        AvroValues.of(json.get("avro")));
  }

  /** Where a task has ended in this partition. */
  record End(String topic, String topicId, int partition, long offset) implements PartitionOffset {
    ObjectNode toJson() {
      ObjectNode json = Planner.JSON.createObjectNode();
      return json.put("topic", topic).put("topic_id", topicId).put("partition", partition).put("offset", offset);
    }
  }

  End endingAt(long offset) {
    return new End(topic, topicId, partition, offset);
  }
}
