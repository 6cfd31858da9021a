import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends records in one batch with Kafka's own producer, and prints the offset of each: arguments are servers, topic and timestamp,
 * then for each record its value and its header `KEY=VALUE`, or nothing.
 */
public class DelayedProducer {
  public static void main(String[] arguments) throws Exception {
    Map<String, Object> settings = new HashMap<>();
    settings.put("bootstrap.servers", arguments[0]);
    settings.put("linger.ms", 100);
    try (Producer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int i = 3; i < arguments.length; i += 2) {
        List<Header> headers = new ArrayList<>();
        if (!arguments[i + 1].isEmpty()) {
          String[] header = arguments[i + 1].split("=", 2);
          headers.add(new RecordHeader(header[0], header[1].getBytes(StandardCharsets.UTF_8)));
        }
        sent.add(producer.send(new ProducerRecord<>(arguments[1], 0, Long.parseLong(arguments[2]), "k", arguments[i], headers)));
      }
      for (Future<RecordMetadata> each : sent) {
        System.out.println(each.get(30, TimeUnit.SECONDS).offset());
      }
    }
  }
}
