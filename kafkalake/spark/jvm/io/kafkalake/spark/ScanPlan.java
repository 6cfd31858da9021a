package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** The planner's answer to one scan, asked for once, when Spark first wants to know its size, its tasks or what it is. */
final class ScanPlan {
  private final ObjectNode question;
  private final Predicate[] filters;
  private final KeyFilter keyFilter;
  private JsonNode answer;
  private long planningMs;

  /**
   * @param ask which function of the planner answers
   * @param filters as the query has them, and `comparisons` what the planner is told of them: null of one that it cannot use
   * @param keyFilter leaves out records by their keys, of which the planner knows nothing; null: none does
   * @param query names the running query, so that all its scans read one snapshot
   */
  ScanPlan(
      String ask,
      ScanColumn[] columns,
      Map<String, String> options,
      Predicate[] filters,
      ObjectNode[] comparisons,
      KeyFilter keyFilter,
      String query) {
    this.filters = filters;
    this.keyFilter = keyFilter;
    question = Planner.question(ask).put("query", query);
    ObjectNode given = question.putObject("options");
    options.forEach(given::put);
    ScanColumn.ask(columns, question);
    ArrayNode told = question.putArray("filters");
    for (ObjectNode comparison : comparisons) {
      told.add(comparison);
    }
  }

  /** The question, to be completed before the first answer. */
  ObjectNode question() {
    return question;
  }

  synchronized JsonNode answer() {
    if (answer == null) {
      long begin = System.nanoTime();
      try {
        answer = Planner.ask(question);
      } catch (PlannerException error) {
        throw error.forUsers();
      }
      planningMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
    }
    return answer;
  }

  /** What is read, and which filters have narrowed it; nothing where it cannot be planned: the query ends with that, not its plan. */
  String description(String pushed) {
    JsonNode shown;
    try {
      shown = answer();
    } catch (Exception error) { // also Spark's AnalysisException, which is none of those at run time
      return "";
    }
    List<String> narrowing = new ArrayList<>();
    shown.get("narrowed").forEach(position -> narrowing.add(filters[position.intValue()].describe()));
    if (keyFilter != null) {
      narrowing.add(keyFilter.describe());
    }
    String narrowed = narrowing.isEmpty() ? "" : ", pushed: " + String.join(" AND ", narrowing);
    return String.format(
        "(snapshot %s, %s partitions, %s of %s segments%s%s)",
        shown.get("snapshot").asText(), shown.get("partitions"), shown.get("segments"), shown.get("segments_of_all"), narrowed, pushed);
  }

  /** Upper bounds. */
  ScanSize size() {
    return ScanSize.of(answer().get("bytes").longValue(), answer().get("records").longValue());
  }

  /** What the driver knows for the query's page in Spark's UI. */
  CustomTaskMetric[] metrics() {
    JsonNode shown = answer();
    long segments = shown.get("segments").longValue();
    return new CustomTaskMetric[] {
      ScanMetric.SEGMENTS_READ.of(segments),
      ScanMetric.SEGMENTS_SKIPPED.of(shown.get("segments_of_all").longValue() - segments),
      ScanMetric.PLANNING_TIME.of(planningMs)
    };
  }
}
