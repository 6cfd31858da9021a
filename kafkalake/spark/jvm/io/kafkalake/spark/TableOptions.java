package io.kafkalake.spark;

import java.util.HashMap;
import java.util.Map;

/**
 * The options of a table, among the properties that a catalogue has of it.
 *
 * A catalogue keeps an option twice, as it is and as `option.<name>`; what else it has (TBLPROPERTIES, owner, location) is no option.
 */
final class TableOptions {
  private static final String PREFIX = "option.";

  private TableOptions() {}

  /** Whether these are a catalogue's; those of a data frame are options and nothing else. */
  static boolean isOfCatalogue(Map<String, String> properties) {
    return properties.keySet().stream().anyMatch(name -> name.startsWith(PREFIX));
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
