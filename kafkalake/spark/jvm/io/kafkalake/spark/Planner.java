package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.api.python.PythonWorker;
import org.apache.spark.api.python.PythonWorkerFactory;
import org.apache.spark.network.util.JavaUtils;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The Python process that answers this driver's questions (`kafkalake/spark/planner`): one, started with the first question, for as long
 * as the JVM lives. One that ended is started again by the next question. One that is late with an answer, and may be so for ever, gets
 * no more questions, and ends with the last that it has: a procedure in it goes on.
 */
final class Planner {
  static final ObjectMapper JSON = new ObjectMapper();
  private static final String STATEMENT = "is_statement";
  private static final String PROCEDURE = "is_procedure";
  private static final String MODULE = "kafkalake.spark.planner.process";
  static final long TIMEOUT_S = 120;
  private static final AtomicLong NUMBERS = new AtomicLong();
  private static Planner current;

  private final SocketChannel channel;
  private final DataInputStream in;
  private final Map<Long, CompletableFuture<JsonNode>> waiting = new ConcurrentHashMap<>();
  private final BlockingQueue<ByteBuffer> outgoing = new LinkedBlockingQueue<>();
  private volatile boolean isEnded;
  private volatile boolean isRetired;

  private Planner(PythonWorker worker) {
    channel = worker.channel();
    in = new DataInputStream(new BufferedInputStream(Channels.newInputStream(reading(channel))));
    start("kafkalake-planner-answers", this::receive);
    start("kafkalake-planner-questions", this::send);
  }

  /** Starts the process in the background, so that the first question finds it there. */
  static void prepare() {
    start(
        "kafkalake-planner-start",
        () -> {
          try {
            running();
          } catch (RuntimeException error) {
            // The first question starts it anew, and says what is wrong.
          }
        });
  }

  /** A question; `ask` says which function answers it. */
  static ObjectNode question(String ask) {
    return JSON.createObjectNode().put("ask", ask);
  }

  /** A question that changes a topic: it is asked once, and may be withdrawn. */
  static ObjectNode statement(String ask) {
    return question(ask).put(STATEMENT, true);
  }

  /**
   * Returns the answer. Throws `PlannerException` with Python's class and sentence of an error, or that there is no answer.
   *
   * A process that ends, or has ended, before it answers is asked once more by its successor, but for what changes a topic.
   */
  static JsonNode ask(ObjectNode question) {
    return ask(question, !question.has(STATEMENT), TIMEOUT_S, unanswered(TIMEOUT_S));
  }

  /** As `ask`, for a statement that is done once however often it is asked, and may take so long. */
  static JsonNode askRepeatedly(ObjectNode statement, long timeoutS) {
    return ask(statement, true, timeoutS, unanswered(timeoutS));
  }

  /** As `askRepeatedly`, also of a thread that was interrupted, which is why much is undone. */
  static JsonNode askToUndo(ObjectNode statement, long timeoutS) {
    boolean isInterrupted = Thread.interrupted();
    try {
      return askRepeatedly(statement, timeoutS);
    } finally {
      if (isInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** As `ask`, without waiting: `answer` does. */
  static Future<JsonNode> askAhead(ObjectNode question) {
    FutureTask<JsonNode> asked = new FutureTask<>(() -> ask(question));
    start("kafkalake-planner-ahead", asked);
    return asked;
  }

  /** Returns the answer to a question that was asked ahead. Throws as `ask` does. */
  static JsonNode answer(Future<JsonNode> asked) {
    try {
      return asked.get();
    } catch (ExecutionException error) {
      throw error.getCause() instanceof PlannerException
          ? (PlannerException) error.getCause()
          : new PlannerException("kafkalake's planning process cannot be asked: " + error.getCause(), error);
    } catch (InterruptedException error) {
      throw cancelled(error);
    }
  }

  private static PlannerException cancelled(InterruptedException error) {
    Thread.currentThread().interrupt();
    return new PlannerException("the statement was cancelled", error);
  }

  private static String unanswered(long timeoutS) {
    return "kafkalake's planning process has not answered in " + timeoutS + " s";
  }

  /**
   * Runs a procedure, or another statement whose work grows with the topic, and returns its answer. Throws `PlannerException` as `ask`
   * does.
   *
   * It has threads of its own there, so that it delays no question. One that its caller no longer waits for is withdrawn: it ends before
   * its next step.
   *
   * @param name for users
   * @param timeout as Spark's settings say times
   */
  static JsonNode run(String name, ObjectNode statement, String timeout) {
    String late = name + " has not ended in " + timeout + " and was cancelled; what it has done stays done";
    return ask(statement.put(PROCEDURE, true), false, JavaUtils.timeStringAsSec(timeout), late);
  }

  private static JsonNode ask(ObjectNode question, boolean isRepeatable, long timeoutS, String late) {
    JsonNode answered;
    try {
      answered = answered(question, isRepeatable, timeoutS);
    } catch (TimeoutException error) {
      throw new PlannerException(late, error);
    } catch (IOException error) {
      String next = question.has(STATEMENT) ? "look whether the statement was carried out before you run it again" : "run the statement again";
      throw new PlannerException("kafkalake's planning process ended before it answered; " + next, error);
    } catch (InterruptedException error) {
      throw cancelled(error);
    }
    if (answered.has("error")) {
      throw new PlannerException(answered.get("error").textValue(), answered.get("message").textValue());
    }
    return answered.get("answer");
  }

  private static JsonNode answered(ObjectNode question, boolean isRepeatable, long timeoutS)
      throws IOException, InterruptedException, TimeoutException {
    CompletableFuture<JsonNode> answer = new CompletableFuture<>();
    long number = NUMBERS.incrementAndGet();
    Planner planner;
    synchronized (Planner.class) { // so that a retired one, which ends where nothing waits, gets none
      planner = running();
      planner.waiting.put(number, answer);
    }
    try {
      return planner.answer(question.put("id", number), answer, timeoutS);
    } catch (IOException error) {
      if (isRepeatable) {
        return answered(question, false, timeoutS);
      }
      throw error;
    } catch (TimeoutException error) {
      planner.isRetired = planner.isRetired || !question.has(PROCEDURE);
      throw error;
    } finally {
      planner.forget(number);
    }
  }

  private void forget(long number) {
    synchronized (Planner.class) {
      waiting.remove(number);
      if (isRetired && waiting.isEmpty()) {
        end(new IOException("retired"));
      }
    }
  }

  private static synchronized Planner running() {
    if (current == null || current.isEnded || current.isRetired) {
      PythonFunction python = PythonUtils$.MODULE$.createPythonFunction(new byte[0]);
      PythonWorkerFactory factory =
          new PythonWorkerFactory(
              pythonExec(python.pythonExec()),
              MODULE,
              scala.collection.immutable.Map.from(CollectionConverters.asScala(python.envVars())),
              false);
      try {
        current = new Planner(factory.createSimpleWorker(true)._1());
      } catch (Exception error) { // also Spark's exceptions, which are none of those at run time
        throw new PlannerException("kafkalake's planning process cannot be started: " + error.getMessage(), error);
      }
    }
    return current;
  }

  /**
   * Returns the Python that is to plan: the one that the driver's environment names, else that of the virtual environment in which this Spark
   * is installed, so that nobody must have activated it, else Spark's own default.
   */
  private static String pythonExec(String sparks) {
    if (System.getenv("PYSPARK_DRIVER_PYTHON") != null || System.getenv("PYSPARK_PYTHON") != null) {
      return sparks;
    }
    String spark = System.getenv("SPARK_HOME");
    Path directory = spark == null ? null : Path.of(spark);
    while (directory != null && !directory.endsWith("lib")) {
      directory = directory.getParent();
    }
    Path python = directory == null ? null : directory.resolveSibling(Path.of("bin", "python3"));
    return python != null && Files.isExecutable(python) && Files.exists(directory.resolveSibling("pyvenv.cfg")) ? python.toString() : sparks;
  }

  private JsonNode answer(ObjectNode question, CompletableFuture<JsonNode> answer, long timeoutS)
      throws IOException, InterruptedException, TimeoutException {
    try {
      outgoing.add(frame(question));
      if (isEnded) {
        throw new IOException("closed");
      }
      return answer.get(timeoutS, TimeUnit.SECONDS);
    } catch (ExecutionException error) {
      throw new IOException(error.getCause());
    } catch (InterruptedException | TimeoutException error) {
      outgoing.add(frame(JSON.createObjectNode().put("withdrawn", question.get("id").longValue())));
      throw error;
    }
  }

  private static ByteBuffer frame(ObjectNode content) throws IOException {
    byte[] text = JSON.writeValueAsBytes(content);
    return ByteBuffer.allocate(4 + text.length).putInt(text.length).put(text).flip();
  }

  private static void start(String name, Runnable work) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    thread.start();
  }

  /** Writes from one thread: a thread that is interrupted while it writes closes the channel for all. */
  private void send() {
    try {
      while (!isEnded) {
        ByteBuffer frame = outgoing.poll(1, TimeUnit.SECONDS);
        while (frame != null && frame.hasRemaining()) {
          channel.write(frame);
        }
      }
    } catch (Throwable error) {
      end(error);
    }
  }

  private void receive() {
    try {
      while (true) {
        byte[] frame = new byte[in.readInt()];
        in.readFully(frame);
        JsonNode answered = JSON.readTree(frame);
        CompletableFuture<JsonNode> answer = waiting.get(answered.get("id").longValue());
        if (answer != null) {
          answer.complete(answered);
        }
      }
    } catch (Throwable error) {
      end(error);
    }
  }

  /** Fail what waits, and leave the next question to another process; this one ends when its connection does. */
  private void end(Throwable error) {
    isEnded = true;
    waiting.values().forEach(answer -> answer.completeExceptionally(error));
    try {
      channel.close();
    } catch (IOException closing) {
      error.addSuppressed(closing);
    }
  }

  /** The channel to be read only: streams of a socket's channel itself let nobody write while somebody waits for bytes. */
  private static ReadableByteChannel reading(SocketChannel channel) {
    return new ReadableByteChannel() {
      @Override
      public int read(ByteBuffer bytes) throws IOException {
        return channel.read(bytes);
      }

      @Override
      public boolean isOpen() {
        return channel.isOpen();
      }

      @Override
      public void close() throws IOException {
        channel.close();
      }
    };
  }
}
