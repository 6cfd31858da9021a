package io.kafkalake.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** Offsets of a stream as its checkpoint has them, a text: `{"clicks": {"0": 23}, "clicks#<topic id>": {}}`. Spark compares the text. */
final class StreamOffset extends Offset {
  private final String json;

  StreamOffset(String json) {
    this.json = json;
  }

  @Override
  public String json() {
    return json;
  }

  /** The next offset to read by partition (`clicks-0`). */
  static Map<String, Long> positions(String json) {
    Map<String, Long> positions = new HashMap<>();
    tree(json)
        .fields()
        .forEachRemaining(
            topic ->
                topic
                    .getValue()
                    .fields()
                    .forEachRemaining(each -> positions.put(topic.getKey() + "-" + each.getKey(), each.getValue().asLong())));
    return positions;
  }

  private static JsonNode tree(String json) {
    try {
      return Planner.JSON.readTree(json);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("no offsets of a stream: " + json, error);
    }
  }
}
