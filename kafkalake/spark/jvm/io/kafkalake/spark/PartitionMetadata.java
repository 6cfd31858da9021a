package io.kafkalake.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What the file `partition.metadata` says of the directory that it is in, as `kafkalake.storage.partition_metadata`. */
final class PartitionMetadata {
  private static final Pattern TOPIC_ID = Pattern.compile("topic_id:\\s*([A-Za-z0-9_-]{22})\\s");

  private PartitionMetadata() {}

  /** The id of the topic that a directory belongs to; null if it has no such file. */
  static String readTopicId(Path directory) throws IOException {
    Path file = directory.resolve("partition.metadata");
    String text;
    try {
      text = Files.readString(file);
    } catch (NoSuchFileException error) {
      return null;
    }
    Matcher found = TOPIC_ID.matcher(text);
    if (!found.find()) {
      throw new IOException(file + ": damaged, so nobody knows which topic the records beside it belong to");
    }
    return found.group(1);
  }

  /** Throws if a directory belongs to another topic than the one with this id. Without such a file it may be of any. */
  static void checkTopic(Path directory, String topicId) throws IOException {
    String found = readTopicId(directory);
    if (found != null && !found.equals(topicId)) {
      throw new AnotherTopicException(
          directory
              + " belongs to another topic since the query was planned: the topic was deleted and created again (its id was "
              + topicId
              + ", and is "
              + found
              + " now)");
    }
  }
}
