package io.kafkalake.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Stages the rows of one task: finds the topic and the partition of each, and fills batches for them.
 *
 * Partitions are those of Java's producer: the column `partition` where it has a value, else murmur2 of the key, else (no key) one
 * partition after another, a batch each. `kafkalake/spark/sink/staged_rows.py` does the same for drivers without the jar.
 */
final class RowStager {
  private final WritePlan plan;
  private final StagedFileWriter file;
  private final RowRecord record;
  private final Map<UTF8String, Destination> topics = new HashMap<>();
  private final List<StagedBatch> batches = new ArrayList<>();
  private final Destination onlyTopic;
  private long heldBytes;

  /** A topic, and what its partitions have got. */
  private static final class Destination {
    private final WritePlan.Topic topic;
    private final StagedBatch[] batches;
    private long unkeyedBytes;

    Destination(WritePlan.Topic topic, long unkeyedBytes) {
      this.topic = topic;
      this.unkeyedBytes = unkeyedBytes;
      batches = new StagedBatch[topic.partitions()];
    }
  }

  /** @param first the partition, in number of batches, that records without a key begin with */
  RowStager(WritePlan plan, StagedFileWriter file, long first) {
    this.plan = plan;
    this.file = file;
    record = new RowRecord(plan);
    for (WritePlan.Topic topic : plan.topics()) {
      topics.put(UTF8String.fromString(topic.name()), new Destination(topic, first * plan.batchBytes()));
    }
    onlyTopic = plan.topic() == null ? null : topics.get(UTF8String.fromString(plan.topic()));
  }

  /** Where a task begins: all its attempts with the same partition, other tasks and writes with others, so that small ones spread. */
  static long first(String directory, int task) {
    CRC32 checksum = new CRC32();
    checksum.update(directory.getBytes(StandardCharsets.UTF_8));
    return checksum.getValue() + task;
  }

  /** Throws `StagingException` where the row is no record of its topic. */
  void add(InternalRow row) throws IOException {
    record.read(row);
    Destination destination = onlyTopic != null ? onlyTopic : destination(record.topic());
    WritePlan.Topic topic = destination.topic;
    long size = record.size();
    long sizeOfBatch = size + StagedBatch.OVERHEAD_BYTES;
    if (sizeOfBatch > topic.messageBytesMax()) {
      throw new StagingException(
          "a record of " + sizeOfBatch + " bytes is larger than topic " + topic.name() + " takes (max.message.bytes is "
              + topic.messageBytesMax() + ")");
    }
    if (topic.isKeyRequired() && record.key().isNull()) {
      throw new StagingException("topic " + topic.name() + " is compacted: every record needs a key, and one has none");
    }
    int partition = partition(destination, size);
    StagedBatch batch = destination.batches[partition];
    if (batch == null) {
      batch = destination.batches[partition] = new StagedBatch(topic.number(), partition);
      batches.add(batch);
      heldBytes += batch.memory();
    } else if (batch.rows() > 0 && batch.bytes() + size > Math.min(plan.batchBytes(), topic.messageBytesMax())) {
      write(batch);
    }
    long before = batch.memory();
    batch.add(record, size);
    heldBytes += batch.memory() - before;
    if (heldBytes > plan.heldBytes()) {
      finish();
    }
  }

  /** Writes all that is held, and frees its memory. */
  void finish() throws IOException {
    for (StagedBatch batch : batches) {
      if (batch.rows() > 0) {
        write(batch);
      }
    }
    batches.clear();
    topics.values().forEach(destination -> Arrays.fill(destination.batches, null));
    heldBytes = 0;
  }

  private void write(StagedBatch batch) throws IOException {
    long before = batch.memory();
    file.append(batch);
    batch.clear();
    heldBytes += batch.memory() - before;
    if (file.bytes() > plan.stagedBytesMax()) {
      throw new StagingException(
          "a task has staged more than the broker takes at once (staged.append.max.bytes is " + plan.stagedBytesMax() + ")");
    }
  }

  private Destination destination(UTF8String topic) {
    if (topic == null) {
      throw new StagingException("a row has no topic: fill the column, or name the topic with option(\"topic\", ...)");
    }
    Destination destination = topics.get(topic);
    if (destination == null) {
      throw new StagingException("there is no topic '" + topic + "' in the lake");
    }
    return destination;
  }

  private int partition(Destination destination, long size) {
    WritePlan.Topic topic = destination.topic;
    long chosen = record.partition();
    if (chosen != RowRecord.NO_PARTITION) {
      if (chosen < 0 || chosen >= topic.partitions()) {
        throw new StagingException(
            "a row is for partition " + chosen + " of topic " + topic.name() + ", which has " + topic.partitions() + " partitions");
      }
      return (int) chosen;
    }
    if (!record.key().isNull()) {
      return record.key().partition(topic.partitions());
    }
    long before = destination.unkeyedBytes;
    destination.unkeyedBytes += size;
    return (int) (before / plan.batchBytes() % topic.partitions());
  }
}
