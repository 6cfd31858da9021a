package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.StructType;

/**
 * What the tasks of a write must know, as the planner has answered (`kafkalake/spark/planner/writes.py`).
 *
 * @param staging the directory of all jobs' staged files
 * @param topic of all rows; null: each row has its own
 * @param columns of the rows
 * @param fields the columns that are fields of a value: names in it, by column
 * @param isTyped whether all columns are
 * @param key the field that is a typed topic's key; null: its records have none
 * @param avro how the values of a typed topic are written that are not JSON; null: they are
 * @param zone of times in JSON
 * @param stagedBytesMax how much a task may stage
 * @param batchBytes how large batches are made
 * @param heldBytes how much memory the batches of a task take before all are written
 * @param preamble the first bytes of a staged file
 * @param template the first bytes of each message in it
 */
record WritePlan(
    String staging,
    String topic,
    List<Topic> topics,
    StructType columns,
    Map<String, String> fields,
    boolean isTyped,
    String key,
    AvroValues avro,
    String zone,
    long stagedBytesMax,
    int batchBytes,
    long heldBytes,
    byte[] preamble,
    byte[] template)
    implements Serializable {

  /** A topic that may be written to; `number` is its position among the others. */
  record Topic(String name, String id, int number, int partitions, int messageBytesMax, boolean isKeyRequired) implements Serializable {}

  static WritePlan of(JsonNode answer, StructType columns) throws IOException {
    List<Topic> topics = new ArrayList<>();
    for (JsonNode topic : answer.get("topics")) {
      topics.add(
          new Topic(
              topic.get("name").textValue(),
              topic.get("id").textValue(),
              topics.size(),
              topic.get("partitions").intValue(),
              topic.get("message_bytes_max").intValue(),
              topic.get("key_required").booleanValue()));
    }
    Map<String, String> fields = new HashMap<>();
    answer.get("fields").properties().forEach(field -> fields.put(field.getKey(), field.getValue().textValue()));
    return new WritePlan(
        answer.get("staging").textValue(),
        answer.get("topic").textValue(),
        topics,
        columns,
        fields,
        answer.get("is_typed").booleanValue(),
        answer.get("key").textValue(),
        AvroValues.of(answer.get("avro")),
        answer.get("time_zone").textValue(),
        answer.get("staged_bytes_max").longValue(),
        answer.get("batch_bytes").intValue(),
        answer.get("held_bytes").longValue(),
        answer.get("preamble").binaryValue(),
        answer.get("template").binaryValue());
  }
}
