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
import org.codehaus.commons.compiler.CompileException;
import org.codehaus.janino.ClassBodyEvaluator;

/**
 * Makes ready what the first query and the first SHOW TABLES and DESCRIBE of a session would wait for: the tables of Spark's parser, 2,000
 * classes, and the compiler of Spark's generated code. A driver has to load them in any case, and most of that query's time went into it.
 * Here it happens once in a JVM, in the background, while Spark starts the session and looks for its own extensions.
 *
 * Classes are loaded and linked, and not initialised: in another order than the session's own thread, two of Scala's objects that need
 * each other would wait for each other for ever. The generated parser, what it is made of, and the compiler are Java's, and need nothing of
 * Spark.
 */
final class FirstQuery {
  /** Names of classes, one a line, in the order in which first statements need them. `list_first_classes` writes it. */
  private static final String CLASSES = "first-query-classes";

  private static final List<String> STATEMENTS = List.of("SELECT count(*) FROM a.b", "SHOW TABLES IN a", "DESCRIBE a.b");

  /** Of the kind that Spark generates: what the compiler loads for it, it need not load for those. */
  private static final String GENERATED =
      "private Object[] held; private long sum;"
          + " public void add(int number) { for (int i = 0; i < number; i++) { Object each = held[i]; if (each != null && !each.equals(\"\")) {"
          + " sum += ((Number) each).longValue(); } else { throw new IllegalStateException(\"\" + i); } } }";

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
      STATEMENTS.forEach(FirstQuery::parse);
      for (String name : names()) {
        link(name);
      }
      new ClassBodyEvaluator().cook(GENERATED);
    } catch (CompileException | IOException | RuntimeException | LinkageError error) {
      // The first query takes as long as Spark's own.
    }
  }

  private static void parse(String statement) {
    SqlBaseLexer lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(statement)));
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
