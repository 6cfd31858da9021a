package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;

/** A task that the JVM can do alone: slices of segments, without the columns that only Python makes (fields of JSON values). */
final class SlicesPartition extends PythonInputPartition {
  private static final long serialVersionUID = 1L;
  private static final int FORMAT = 2;
  private static final ObjectMapper JSON = new ObjectMapper();

  static {
    // What `kafkalake.spark.source.tasks.Slices` pickles itself as: a function and its one argument, a text.
    Unpickler.registerConstructor("kafkalake.spark.source.tasks", "slices_from_json", arguments -> arguments[0]);
  }

  private final SegmentSlice[] slices;

  private SlicesPartition(int index, byte[] pickled, SegmentSlice[] slices) {
    super(index, pickled);
    this.slices = slices;
  }

  /** The task that Python planned, as one for the JVM where it can be. */
  static PythonInputPartition of(int index, byte[] pickled) {
    try {
      return of(index, pickled, JSON.readTree((String) new Unpickler().loads(pickled)));
    } catch (IOException | RuntimeException error) {
      throw new IllegalStateException("kafkalake's jar and its Python package are not of one version", error);
    }
  }

  /** The task that the planner planned; one that only Python can do is pickled in it, if the question asked for that. */
  static PythonInputPartition of(int index, JsonNode task) {
    try {
      return of(index, task.path("pickled").binaryValue(), task);
    } catch (IOException error) {
      throw new IllegalStateException("kafkalake's jar and its Python package are not of one version", error);
    }
  }

  private static PythonInputPartition of(int index, byte[] pickled, JsonNode task) {
    try {
      if (task.get("format").intValue() != FORMAT) {
        throw new IOException("tasks have format " + task.get("format"));
      }
      if (!task.get("in_jvm").booleanValue()) {
        return new PythonInputPartition(index, pickled);
      }
      return new SlicesPartition(index, pickled, SegmentSlice.allOf(task.get("slices")));
    } catch (IOException | RuntimeException error) {
      throw new IllegalStateException("kafkalake's jar and its Python package are not of one version", error);
    }
  }

  SegmentSlice[] slices() {
    return slices;
  }
}
