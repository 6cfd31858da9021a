package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Rows that become records of topics, all of them or none: tasks stage files, and one request to the broker appends them.
 *
 * The driver's part is the planner's (`kafkalake/spark/planner/writes.py`): what a write needs to know before its tasks run, and the
 * request itself, which is the same however often it is sent, by application and version: a job's own id and 0, or the user's; or a
 * stream's query id and batch id.
 */
final class KafkaLakeWrite implements Write {
  /** What the planner needs beyond the time that it gives the broker. */
  private static final long MARGIN_S = 60;

  private final String description;
  private final CaseInsensitiveStringMap options;
  private final StructType columns;
  private final String query;
  private final boolean isOverwriting;

  private KafkaLakeWrite(
      String description, CaseInsensitiveStringMap options, StructType columns, String query, boolean isOverwriting) {
    this.description = description;
    this.options = options;
    this.columns = columns;
    this.query = query;
    this.isOverwriting = isOverwriting;
  }

  static WriteBuilder builder(String table, CaseInsensitiveStringMap options, LogicalWriteInfo info) {
    return new SupportsTruncate() {
      private boolean isOverwriting;

      @Override
      public WriteBuilder truncate() {
        isOverwriting = true;
        return this;
      }

      @Override
      public Write build() {
        return new KafkaLakeWrite(table, options, info.schema(), info.queryId(), isOverwriting);
      }
    };
  }

  @Override
  public String description() {
    return description;
  }

  @Override
  public BatchWrite toBatch() {
    return new OfBatch(new Job(false));
  }

  /** The query's id is that of its checkpoint. */
  @Override
  public StreamingWrite toStreaming() {
    return new OfStream(new Job(true), query);
  }

  private ObjectNode about(ObjectNode question) {
    ObjectNode given = question.putObject("options");
    options.forEach(given::put);
    return question;
  }

  /** A write whose options and columns are valid, and whose broker is there. */
  private final class Job {
    private final WritePlan plan;
    private final String clusterId;
    /** The user's application and version; null: every write is another one. */
    private final String application;
    private final long version;
    private final long commitTimeoutS;

    Job(boolean isStream) {
      ObjectNode question = about(Planner.question("write_begin"));
      question.put("columns", columns.json()).put("is_stream", isStream).put("is_overwriting", isOverwriting);
      try {
        JsonNode begun = Planner.ask(question);
        plan = WritePlan.of(begun, columns);
        clusterId = begun.get("cluster_id").textValue();
        application = begun.get("application").textValue();
        version = begun.get("version").longValue();
        commitTimeoutS = (long) Math.ceil(begun.get("commit_timeout_s").doubleValue());
      } catch (PlannerException error) {
        throw error.forUsers();
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }

    void commit(String application, long version, String directory, WriterCommitMessage[] messages) {
      ObjectNode question = about(Planner.statement("write_commit"));
      question.put("cluster_id", clusterId).put("application", application).put("version", version).put("directory", directory);
      ArrayNode topics = question.putArray("topics");
      for (WritePlan.Topic topic : plan.topics()) {
        topics.addArray().add(topic.name()).add(topic.id());
      }
      ArrayNode files = question.putArray("files");
      Set<Long> places = new TreeSet<>();
      for (WriterCommitMessage message : messages) {
        StagedFile file = (StagedFile) message;
        if (file != null && file.name != null) {
          files.addArray().add(file.name).add(file.bytes).add(file.batches).add(file.records);
          Arrays.stream(file.places).forEach(places::add);
        }
      }
      ArrayNode partitions = question.putArray("partitions");
      places.forEach(place -> partitions.addArray().add((int) (place >> 32)).add(place.intValue()));
      if (!files.isEmpty()) {
        ask(question, commitTimeoutS + MARGIN_S);
      }
    }

    void abort(String directory) {
      try {
        Planner.askToUndo(about(Planner.statement("write_abort")).put("directory", directory), MARGIN_S);
      } catch (PlannerException error) {
        throw error.forUsers();
      }
    }

    private void ask(ObjectNode statement, long timeoutS) {
      try {
        Planner.askRepeatedly(statement, timeoutS);
      } catch (PlannerException error) {
        if (error.getCause() instanceof InterruptedException) {
          // A stream that is stopped has not failed.
          throw new UncheckedIOException(new InterruptedIOException(error.getMessage()));
        }
        throw error.forUsers();
      }
    }
  }

  /** Attempts need no leave to commit: a file is used where the driver names it, and it names one of each task. */
  private static final class OfBatch implements BatchWrite {
    private final Job job;
    private final String directory = "job-" + UUID.randomUUID().toString().replace("-", "");

    OfBatch(Job job) {
      this.job = job;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      SegmentReaderFactory.sendJar();
      return new StagingWriter.OfBatch(job.plan, directory);
    }

    @Override
    public boolean useCommitCoordinator() {
      return false;
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      job.commit(job.application == null ? directory : job.application, job.version, directory, messages);
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      job.abort(directory);
    }
  }

  /** The batches of a stream, each written once by query id and batch id, however often Spark repeats it. */
  private static final class OfStream implements StreamingWrite {
    private final Job job;
    private final String query;

    OfStream(Job job, String query) {
      this.job = job;
      this.query = query;
    }

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      SegmentReaderFactory.sendJar();
      return new StagingWriter.OfStream(job.plan, query);
    }

    @Override
    public boolean useCommitCoordinator() {
      return false;
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
      job.commit(query, batch, StagingWriter.OfStream.directory(query, batch), messages);
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
      job.abort(StagingWriter.OfStream.directory(query, batch));
    }
  }
}
