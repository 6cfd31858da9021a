package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.UUID;
import java.util.concurrent.Future;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReadMinRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * A stream of topics in micro-batches: the planner says how far each reads and cuts it into tasks, which are read as those of a batch
 * query are. In Real-Time Mode a batch is as long as the trigger says, and each of its tasks follows a partition (`TailReader`).
 *
 * What a batch is follows from its two offsets. Every question has all that its answer depends on, so a planner that was started again
 * goes on with the stream.
 */
final class KafkaLakeStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics, SupportsRealTimeMode {
  private final String stream = UUID.randomUUID().toString();
  private final ScanColumn[] columns;
  private final ObjectNode options;
  private final String checkpoint;
  private final JsonNode opened;
  private StreamOffset began;
  private String target;
  private String readableEnds;
  private boolean isRealTime;
  private Ahead ahead;

  /** The tasks of a batch that are planned while Spark writes down its offsets. */
  private record Ahead(String start, String end, Future<JsonNode> tasks) {}

  /**
   * @param columns that are read
   * @param checkpoint where the source keeps its first offsets
   */
  KafkaLakeStream(ScanColumn[] columns, Map<String, String> options, String checkpoint) {
    this.columns = columns;
    this.options = Planner.JSON.createObjectNode();
    options.forEach(this.options::put);
    this.checkpoint = checkpoint;
    ObjectNode question = question("stream_open");
    ScanColumn.ask(columns, question);
    opened = ask(question);
  }

  @Override
  public String toString() {
    return opened.get("description").textValue();
  }

  @Override
  public Offset initialOffset() {
    if (began == null) {
      began = new StreamOffset(ask(question("stream_begin").put("checkpoint", checkpoint)).textValue());
    }
    return began;
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    ReadLimit most = opened.get("offsets_max").isNull() ? null : ReadLimit.maxRows(opened.get("offsets_max").longValue());
    if (opened.get("offsets_min").isNull()) {
      return most == null ? ReadLimit.allAvailable() : most;
    }
    ReadLimit least = ReadLimit.minRows(opened.get("offsets_min").longValue(), opened.get("delay_ms_max").longValue());
    return most == null ? least : ReadLimit.compositeLimit(new ReadLimit[] {least, most});
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    target = ask(question("stream_ends")).textValue();
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with the limit of a batch");
  }

  /**
   * The end of the next batch. That Spark asks for it says that the last batch is done: it calls `commit` only when the next is planned,
   * and never for the last of all.
   */
  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    ObjectNode question = question("stream_next").put("start", start.json()).put("target", target);
    ReadLimit[] limits = limit instanceof CompositeReadLimit ? ((CompositeReadLimit) limit).getReadLimits() : new ReadLimit[] {limit};
    question.putNull("offsets_max").put("may_wait", false);
    for (ReadLimit each : limits) {
      if (each instanceof ReadMaxRows) {
        question.put("offsets_max", ((ReadMaxRows) each).maxRows());
      }
      if (each instanceof ReadMinRows) {
        question.put("may_wait", target == null);
      }
    }
    JsonNode next = ask(question.put("is_done", !start.equals(began)));
    readableEnds = next.get("readable_ends").textValue();
    String end = next.get("end").textValue();
    if (!end.equals(start.json())) {
      ahead = new Ahead(start.json(), end, Planner.askAhead(plan(start.json(), end)));
    }
    return new StreamOffset(end);
  }

  @Override
  public Offset reportLatestOffset() {
    return readableEnds == null || readableEnds.equals("{}") ? null : new StreamOffset(readableEnds);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    Ahead planned = ahead;
    ahead = null;
    boolean isPlanned = planned != null && planned.start.equals(start.json()) && planned.end.equals(end.json());
    return SlicesPartition.allOf(isPlanned ? answer(planned.tasks) : ask(plan(start.json(), end.json())));
  }

  private ObjectNode plan(String start, String end) {
    return question("stream_plan").put("start", start).put("end", end);
  }

  /** Throws the planner's refusal of options that have no meaning here: in Real-Time Mode the trigger alone says how long a batch is. */
  @Override
  public void prepareForRealTimeMode() {
    ask(question("stream_real_time"));
    isRealTime = true;
  }

  boolean isRealTime() {
    return isRealTime;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    JsonNode tails = ask(question("stream_tails").put("start", start.json()));
    InputPartition[] partitions = new InputPartition[tails.size()];
    for (int i = 0; i < partitions.length; i++) {
      partitions[i] = TailPartition.of(tails.get(i));
    }
    return partitions;
  }

  @Override
  public Offset mergeOffsets(PartitionOffset[] ends) {
    ObjectNode question = question("stream_merge");
    ArrayNode listed = question.putArray("ends");
    for (PartitionOffset each : ends) {
      listed.add(((TailPartition.End) each).toJson());
    }
    return new StreamOffset(ask(question).textValue());
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return isRealTime ? new TailReaderFactory(columns) : new SegmentReaderFactory(columns);
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new StreamOffset(json);
  }

  @Override
  public void commit(Offset end) {
    if (opened.get("has_group").booleanValue() && !end.equals(began)) {
      ask(question("stream_commit").put("end", end.json()));
    }
  }

  /** The planner keeps little of a stream, and drops it by itself. */
  @Override
  public void stop() {}

  /** How far the query is behind what was there when the batch was planned: in offsets, and the age of the first record not read. */
  @Override
  public Map<String, String> metrics(Optional<Offset> consumed) {
    if (isRealTime) {
      readableEnds = ask(question("stream_ends")).textValue();
    }
    if (readableEnds == null || consumed.isEmpty()) {
      return Map.of();
    }
    String start = consumed.get().json();
    Map<String, String> metrics = StreamLag.offsetsBehind(StreamOffset.positions(start), StreamOffset.positions(readableEnds));
    if (!metrics.isEmpty()) {
      boolean isBehind = !metrics.get("maxOffsetsBehindLatest").equals("0");
      OptionalDouble seconds = isBehind ? secondsBehind(start) : OptionalDouble.of(0);
      seconds.ifPresent(known -> metrics.put("estimatedSecondsBehind", String.format(Locale.ROOT, "%.3f", known)));
    }
    return metrics;
  }

  /** None where the records cannot be read now: no reason to end the query, whose next batch says it if it matters. */
  private OptionalDouble secondsBehind(String start) {
    try {
      JsonNode found = ask(question("stream_first").put("start", start).put("readable_ends", readableEnds));
      return OptionalDouble.of(StreamLag.secondsBehind(SegmentSlice.allOf(found), System.currentTimeMillis()));
    } catch (UncheckedIOException stopped) {
      throw stopped;
    } catch (Exception error) { // also Spark's AnalysisException, which is none of those at run time
      return OptionalDouble.empty();
    }
  }

  private ObjectNode question(String ask) {
    ObjectNode question = Planner.question(ask).put("stream", stream);
    question.set("options", options);
    return question;
  }

  /** Returns the answer. Throws the planner's error as one for users, or that the query is stopped, as Spark expects it. */
  private static JsonNode ask(ObjectNode question) {
    try {
      return Planner.ask(question);
    } catch (PlannerException error) {
      throw failure(error);
    }
  }

  private static JsonNode answer(Future<JsonNode> asked) {
    try {
      return Planner.answer(asked);
    } catch (PlannerException error) {
      throw failure(error);
    }
  }

  private static RuntimeException failure(PlannerException error) {
    // Spark interrupts a query that it stops, and may do so again meanwhile, when the thread's own mark is lost.
    if (Thread.currentThread().isInterrupted() || error.getCause() instanceof InterruptedException) {
      return new UncheckedIOException((IOException) new InterruptedIOException(error.getMessage()).initCause(error));
    }
    return error.forUsers();
  }
}
