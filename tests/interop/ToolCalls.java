import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes of Kafka's tools one after the other in this JVM, as lines of stdin say: a name, a class, a pattern and
 * arguments, with tabs between them. A tool is run again until its output has the pattern. Prints for each a line `### name exit-status` and what the tool has printed.
 */
public class ToolCalls {
  static class Exited extends RuntimeException {
    final int status;
    Exited(int status) { super(null, null, false, false); this.status = status; }
  }

  static final int TIMEOUT_S = 60;

  public static void main(String[] arguments) throws Exception {
    String endless = arguments.length > 0 ? arguments[0] : "";
    String enough = arguments.length > 1 ? arguments[1] : "";
    Exit.setExitProcedure((status, message) -> { throw new Exited(status); });
    Exit.setHaltProcedure((status, message) -> { throw new Exited(status); });
    PrintStream out = System.out;
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] words = line.split("\t", -1);
      String[] found = {"", ""};
      long ends = System.nanoTime() + TIMEOUT_S * 1_000_000_000L;
      do {
        found = call(words, endless, enough);
      } while (!Pattern.compile(words[2], Pattern.DOTALL).matcher(found[1]).find() && System.nanoTime() < ends);
      out.println("### " + words[0] + " " + found[0]);
      out.println(found[1]);
      out.flush();
    }
    out.flush();
    Runtime.getRuntime().halt(0); // a hook of a tool may wait for ever
  }

  /** How the tool ended, and what it has printed. */
  static String[] call(String[] words, String endless, String enough) throws Exception {
      PrintStream out = System.out, err = System.err;
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      PrintStream caught = new PrintStream(bytes, true, StandardCharsets.UTF_8);
      System.setOut(caught);
      System.setErr(caught);
      CompletableFuture<String> status = new CompletableFuture<>();
      Thread thread = new Thread(() -> status.complete(run(words[1], Arrays.copyOfRange(words, 3, words.length))));
      thread.setDaemon(true);
      thread.start();
      String ended = "late";
      long deadline = System.nanoTime() + TIMEOUT_S * 1_000_000_000L;
      while (System.nanoTime() < deadline) {
        try {
          ended = status.get(50, TimeUnit.MILLISECONDS);
          break;
        } catch (TimeoutException error) {
          if (words[1].equals(endless) && bytes.toString(StandardCharsets.UTF_8).contains(enough)) {
            ended = "endless";
            break;
          }
        }
      }
      System.setOut(out);
      System.setErr(err);
      return new String[] {ended, bytes.toString(StandardCharsets.UTF_8)};
  }

  static String run(String name, String[] arguments) {
    try {
      Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
      return "0";
    } catch (ReflectiveOperationException error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      if (cause instanceof Exited exited) return String.valueOf(exited.status);
      System.out.println("!" + cause);
      return "thrown";
    } catch (Exited exited) {
      return String.valueOf(exited.status);
    }
  }
}
