package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;

/**
 * The options of a table, among the properties that a catalogue has of it.
 *
 * A catalogue keeps an option twice, as it is and as `option.<name>`; what else it has (TBLPROPERTIES, owner, location) is no option.
 */
final class TableOptions {
  private static final String PREFIX = "option.";
  private static final String LOCATED = "__located";

  private TableOptions() {}

  /** Whether these are a catalogue's; those of a data frame are options and nothing else. */
  static boolean isOfCatalogue(Map<String, String> properties) {
    return properties.keySet().stream().anyMatch(name -> name.startsWith(PREFIX));
  }

  /** Puts the lake of the brokers into the options that name these; their names are in any case of letters. */
  static void locate(Map<String, String> options) {
    if (!options.containsKey("kafka.bootstrap.servers") || options.containsKey(LOCATED)) {
      return;
    }
    options.put("lake", ask("lake_of", options).textValue());
    options.put(LOCATED, "true");
  }

  /** The planner's answer to a question about a table of these options. */
  static JsonNode ask(String what, Map<String, String> options) {
    ObjectNode question = Planner.question(what);
    ObjectNode given = question.putObject("options");
    options.forEach(given::put);
    try {
      return Planner.ask(question);
    } catch (PlannerException error) {
      throw error.forUsers();
    }
  }

  static Map<String, String> of(Map<String, String> properties) {
    if (!isOfCatalogue(properties)) {
      return properties;
    }
    Map<String, String> options = new HashMap<>();
    properties.forEach(
        (name, value) -> {
          if (name.startsWith(PREFIX)) {
            options.put(name.substring(PREFIX.length()), value);
          }
        });
    return options;
  }
}
