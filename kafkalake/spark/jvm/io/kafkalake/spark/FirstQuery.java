package io.kafkalake.spark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.CommonTokenStream;
import org.antlr.v4.runtime.atn.PredictionMode;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.SqlBaseParser;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;

/**
 * Makes ready what the first query of a session would wait for: the tables of Spark's parser, and 2,000 classes. A driver has to load them
 * in any case, and most of that query's time went into it. Here it happens once in a JVM, in the background, while Spark starts the
 * session and looks for its own extensions.
 *
 * Classes are loaded and linked, and not initialised: in another order than the session's own thread, two of Scala's objects that need
 * each other would wait for each other for ever. The generated parser and what it is made of are Java's, and need nothing of Spark.
 */
final class FirstQuery {
  /** Names of classes, one a line, in the order in which a first query needs them. `list_first_classes` writes it. */
  private static final String CLASSES = "first-query-classes";

  private static final String STATEMENT = "SELECT count(*) FROM a.b";

  private static final AtomicBoolean IS_BEGUN = new AtomicBoolean();

  private FirstQuery() {}

  /** Returns at once. */
  static void prepare() {
    if (IS_BEGUN.getAndSet(true)) {
      return;
    }
    Thread thread = new Thread(FirstQuery::load, "kafkalake-first-query");
    thread.setDaemon(true);
    thread.start();
  }

  private static void load() {
    try {
      parse();
      for (String name : names()) {
        link(name);
      }
    } catch (IOException | RuntimeException | LinkageError error) {
      // The first query takes as long as Spark's own.
    }
  }

  private static void parse() {
    SqlBaseLexer lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(STATEMENT)));
    SqlBaseParser parser = new SqlBaseParser(new CommonTokenStream(lexer));
    parser.removeErrorListeners();
    parser.getInterpreter().setPredictionMode(PredictionMode.SLL);
    parser.compoundOrSingleStatement();
  }

  private static List<String> names() throws IOException {
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(FirstQuery.class.getResourceAsStream(CLASSES), StandardCharsets.US_ASCII))) {
      return lines.lines().toList();
    }
  }

  private static void link(String name) {
    try {
      Class.forName(name, false, FirstQuery.class.getClassLoader()).getConstructors(); // for which the JVM links the class
    } catch (ClassNotFoundException | LinkageError error) {
      // Another release of Spark may lack it.
    }
  }
}
