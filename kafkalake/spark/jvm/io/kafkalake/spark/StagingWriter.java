package io.kafkalake.spark;

import java.io.IOException;
import java.nio.file.Path;
import java.util.UUID;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/**
 * One attempt of a task: its rows go to a file that no other attempt has, so that those that failed leave only unused files.
 *
 * It needs the jar and the lake's directory: no Python, and no connection to a broker.
 */
final class StagingWriter implements DataWriter<InternalRow> {
  private final WritePlan plan;
  private final Path path;
  private final long first;
  private StagedFileWriter file;
  private RowStager stager;
  private boolean isDone;

  private StagingWriter(WritePlan plan, String directory, int task) {
    this.plan = plan;
    first = RowStager.first(directory, task);
    String name = String.format("task-%06d-%s.arrow", task, UUID.randomUUID().toString().replace("-", ""));
    path = SegmentPath.of(plan.staging()).resolve(directory).resolve(name);
  }

  /** Makes the writers of a batch write, whose files are in one directory. */
  record OfBatch(WritePlan plan, String directory) implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long attempt) {
      return new StagingWriter(plan, directory, partition);
    }
  }

  /** Makes the writers of a stream, each of whose batches has its directory. */
  record OfStream(WritePlan plan, String query) implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long attempt, long batch) {
      return new StagingWriter(plan, directory(query, batch), partition);
    }

    static String directory(String query, long batch) {
      return "query-" + query + "-" + batch;
    }
  }

  @Override
  public void write(InternalRow row) {
    try {
      if (stager == null) {
        file = new StagedFileWriter(path, plan);
        stager = new RowStager(plan, file, first);
      }
      stager.add(row);
    } catch (IOException error) {
      throw StagedFileWriter.failed(path.getParent(), error);
    }
  }

  @Override
  public WriterCommitMessage commit() {
    if (stager == null) {
      return StagedFile.none();
    }
    try {
      stager.finish();
      file.close();
    } catch (IOException error) {
      throw StagedFileWriter.failed(path.getParent(), error);
    }
    isDone = true;
    return file.staged();
  }

  @Override
  public void abort() throws IOException {
    if (file != null && !isDone) {
      file.remove();
    }
  }

  @Override
  public void close() throws IOException {
    if (file != null) {
      file.close();
    }
  }
}
