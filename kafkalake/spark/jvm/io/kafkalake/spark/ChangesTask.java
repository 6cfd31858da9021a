package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;

/** Records that versions committed, and of keys those before them, with the versions. */
final class ChangesTask implements InputPartition {
  private static final long serialVersionUID = 1L;
  private final SlicesPartition changed;
  private final SlicesPartition before;
  private final Map<Integer, Commits> commits;

  private ChangesTask(SlicesPartition changed, SlicesPartition before, Map<Integer, Commits> commits) {
    this.changed = changed;
    this.before = before;
    this.commits = commits;
  }

  static ChangesTask[] of(JsonNode plan) {
    Map<Integer, Commits> commits = new HashMap<>();
    plan.get("commits").properties().forEach(each -> commits.put(Integer.valueOf(each.getKey()), Commits.of(each.getValue())));
    JsonNode listed = plan.get("tasks");
    JsonNode before = plan.get("before");
    ChangesTask[] tasks = new ChangesTask[listed.size()];
    for (int i = 0; i < tasks.length; i++) {
      tasks[i] = new ChangesTask(SlicesPartition.of(listed.get(i)), before.isEmpty() ? null : SlicesPartition.of(before.get(i)), commits);
    }
    return tasks;
  }

  SlicesPartition changed() {
    return changed;
  }

  SlicesPartition before() {
    return before;
  }

  Commits commits(int partition) {
    return commits.get(partition);
  }

  /**
   * The versions that committed records of one partition.
   *
   * @param start of the range's offsets
   * @param ends of the offsets that each committed, ascending
   * @param times in microseconds
   */
  record Commits(long start, long[] ends, long[] versions, long[] times) implements java.io.Serializable {
    private static Commits of(JsonNode partition) {
      JsonNode listed = partition.get("commits");
      long[][] columns = new long[3][listed.size()];
      for (int i = 0; i < listed.size(); i++) {
        for (int k = 0; k < 3; k++) {
          columns[k][i] = listed.get(i).get(k).longValue();
        }
      }
      return new Commits(
          partition.get("start").longValue(), columns[0], columns[1], Arrays.stream(columns[2]).map(ms -> ms * 1000).toArray());
    }

    /** Which of them committed this offset; -1 for one before the range. */
    int of(long offset) {
      if (offset < start) {
        return -1;
      }
      int found = Arrays.binarySearch(ends, offset + 1);
      return found < 0 ? -found - 1 : found;
    }
  }
}
