package io.kafkalake.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import java.util.TreeSet;

/** A staged file, which must not exist yet: `kafkalake/storage/staged_file.py` says what is in it. */
final class StagedFileWriter implements Closeable {
  private static final String PERMISSIONS = "rw-r--r--";

  private final Path path;
  private final FileChannel channel;
  private final SegmentMessageWriter messages;
  private final Set<Long> places = new TreeSet<>();
  private long bytes;
  private int batches;
  private long records;

  /** Makes the file, and its directory where it is missing. */
  StagedFileWriter(Path path, WritePlan plan) throws IOException {
    this.path = path;
    messages = new SegmentMessageWriter(plan.template());
    Files.createDirectories(path.getParent());
    channel =
        FileChannel.open(
            path,
            Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(PERMISSIONS)));
    write(ByteBuffer.wrap(plan.preamble()));
  }

  void append(StagedBatch batch) throws IOException {
    write(messages.write(batch, System.currentTimeMillis()));
    batches++;
    records += batch.rows();
    places.add(StagedFile.place(batch.topic(), batch.partition()));
  }

  private void write(ByteBuffer data) throws IOException {
    while (data.hasRemaining()) {
      bytes += channel.write(data);
    }
  }

  long bytes() {
    return bytes;
  }

  /** What the broker must know of the file. */
  StagedFile staged() {
    return new StagedFile(path.getFileName().toString(), bytes, batches, records, places.stream().mapToLong(Long::longValue).toArray());
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }

  /** Closes and removes the file, which nobody will ask for. */
  void remove() throws IOException {
    close();
    Files.deleteIfExists(path);
  }

  /** An error in one sentence, in the words of Python's. */
  static StagingException failed(Path directory, IOException error) {
    String reason = error.getMessage();
    if (error instanceof AccessDeniedException) {
      reason = "Permission denied";
    } else if (error instanceof NoSuchFileException) {
      reason = "No such file or directory";
    }
    return new StagingException("cannot stage records in " + directory + ": " + reason, error);
  }
}
