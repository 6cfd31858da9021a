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
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.api.python.PythonWorker;
import org.apache.spark.api.python.PythonWorkerFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The Python process that answers this driver's questions (`kafkalake/spark/planner`): one, started with the first question, for as long
 * as the JVM lives. One that ended is started again by the next question.
 */
final class Planner {
  static final ObjectMapper JSON = new ObjectMapper();
  private static final String MODULE = "kafkalake.spark.planner.process";
  private static final long TIMEOUT_S = 120;
  private static final Set<String> STATEMENTS = Set.of("create", "alter", "drop", "delete_records");
  private static Planner current;

  private final SocketChannel channel;
  private final DataInputStream in;
  private final AtomicLong numbers = new AtomicLong();
  private final Map<Long, CompletableFuture<JsonNode>> waiting = new ConcurrentHashMap<>();
  private volatile boolean isEnded;

  private Planner(PythonWorker worker) {
    channel = worker.channel();
    in = new DataInputStream(new BufferedInputStream(Channels.newInputStream(reading(channel))));
    Thread receiving = new Thread(this::receive, "kafkalake-planner");
    receiving.setDaemon(true);
    receiving.start();
  }

  /** A question; `ask` says which function answers it. */
  static ObjectNode question(String ask) {
    return JSON.createObjectNode().put("ask", ask);
  }

  /**
   * Returns the answer. Throws `PlannerException` with Python's class and sentence of an error, or that there is no answer.
   *
   * A process that ends, or has ended, before it answers is asked once more by its successor, but for what changes a topic.
   */
  static JsonNode ask(ObjectNode question) {
    boolean isRepeatable = !STATEMENTS.contains(question.get("ask").textValue());
    JsonNode answered;
    try {
      answered = answered(question, isRepeatable);
    } catch (TimeoutException error) {
      throw new PlannerException("PlannerError", "kafkalake's planning process has not answered in " + TIMEOUT_S + " s", error);
    } catch (IOException error) {
      throw new PlannerException(
          "PlannerError", "kafkalake's planning process ended before it answered; run the statement again", error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new PlannerException("PlannerError", "the statement was cancelled", error);
    }
    if (answered.has("error")) {
      throw new PlannerException(answered.get("error").textValue(), answered.get("message").textValue(), null);
    }
    return answered.get("answer");
  }

  private static JsonNode answered(ObjectNode question, boolean isRepeatable)
      throws IOException, InterruptedException, TimeoutException {
    try {
      return running().answer(question).get();
    } catch (IOException | ExecutionException error) {
      if (error.getCause() instanceof TimeoutException) {
        throw (TimeoutException) error.getCause();
      }
      if (isRepeatable) {
        return answered(question, false);
      }
      throw new IOException(error);
    }
  }

  private static synchronized Planner running() {
    if (current == null || current.isEnded) {
      PythonFunction python = PythonUtils$.MODULE$.createPythonFunction(new byte[0]);
      PythonWorkerFactory factory =
          new PythonWorkerFactory(
              python.pythonExec(),
              MODULE,
              scala.collection.immutable.Map.from(CollectionConverters.asScala(python.envVars())),
              false);
      current = new Planner(factory.createSimpleWorker(true)._1());
    }
    return current;
  }

  private CompletableFuture<JsonNode> answer(ObjectNode question) throws IOException {
    long number = numbers.incrementAndGet();
    byte[] frame = JSON.writeValueAsBytes(question.put("id", number));
    CompletableFuture<JsonNode> answer = new CompletableFuture<>();
    waiting.put(number, answer);
    answer.orTimeout(TIMEOUT_S, TimeUnit.SECONDS).whenComplete((found, error) -> waiting.remove(number));
    ByteBuffer bytes = ByteBuffer.allocate(4 + frame.length).putInt(frame.length).put(frame).flip();
    synchronized (this) {
      while (bytes.hasRemaining()) {
        channel.write(bytes);
      }
    }
    if (isEnded) {
      fail(new IOException("closed"));
    }
    return answer;
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

  private void receive() {
    try (channel) {
      while (true) {
        byte[] frame = new byte[in.readInt()];
        in.readFully(frame);
        JsonNode answered = JSON.readTree(frame);
        CompletableFuture<JsonNode> answer = waiting.get(answered.get("id").longValue());
        if (answer != null) {
          answer.complete(answered);
        }
      }
    } catch (IOException | RuntimeException error) {
      fail(error);
    }
  }

  private void fail(Exception error) {
    isEnded = true;
    waiting.values().forEach(answer -> answer.completeExceptionally(error));
  }
}
