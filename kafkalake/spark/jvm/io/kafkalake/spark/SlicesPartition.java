package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * A task: slices of segments.
 *
 * @param avro how values are read if their schema has got fields since the query was analyzed; null: as its columns say
 */
record SlicesPartition(SegmentSlice[] slices, AvroValues avro) implements InputPartition {
  private static final int FORMAT = 4;

  /** The tasks that the planner planned. */
  static InputPartition[] allOf(JsonNode tasks) {
    InputPartition[] partitions = new InputPartition[tasks.size()];
    for (int i = 0; i < partitions.length; i++) {
      partitions[i] = of(tasks.get(i));
    }
    return partitions;
  }

  static SlicesPartition of(JsonNode task) {
    if (task.get("format").intValue() != FORMAT) {
      throw new IllegalStateException(
          "kafkalake's jar and its Python package are not of one version: tasks have format " + task.get("format"));
    }
    return new SlicesPartition(SegmentSlice.allOf(task.get("slices")), AvroValues.of(task.get("avro")));
  }
}
