package anabranch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a test does with brokers in a container: Kafka's own client, and faults by HTTP. */
@Timeout(180)
class AnabranchContainerTest {
  private static final AnabranchContainer KAFKA =
      new AnabranchContainer().withBrokers(3).withProperty("num.partitions", "3");

  @BeforeAll
  static void start() {
    KAFKA.start();
  }

  @AfterAll
  static void stop() {
    KAFKA.stop();
  }

  private static String ask(String method, String path, String body) throws Exception {
    var request =
        HttpRequest.newBuilder(URI.create(KAFKA.controlUrl() + path))
            .header("Authorization", KAFKA.authorization())
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    assertEquals(200, answer.statusCode(), answer::body);
    return answer.body();
  }

  private static void produce(String topic, int count) throws Exception {
    Map<String, Object> settings = Map.of("bootstrap.servers", KAFKA.bootstrapServers(), "retry.backoff.ms", 10);
    try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      for (int number = 0; number < count; number++) {
        producer.send(new ProducerRecord<>(topic, "key-" + number, "value")).get(60, TimeUnit.SECONDS);
      }
    }
  }

  @Test
  void recordsGoToEveryBrokerAndBack() throws Exception {
    produce("orders", 30);
    Map<String, Object> settings =
        Map.of("bootstrap.servers", KAFKA.bootstrapServers(), "group.id", "g", "auto.offset.reset", "earliest");
    try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      var partitions = consumer.partitionsFor("orders");
      assertEquals(3, partitions.stream().map(one -> one.leader().id()).distinct().count());
      consumer.subscribe(List.of("orders"));
      int read = 0;
      for (long end = System.nanoTime() + 60_000_000_000L; read < 30 && System.nanoTime() < end; ) {
        read += consumer.poll(Duration.ofMillis(100)).count();
      }
      assertEquals(30, read);
    }
  }

  @Test
  void anInjectedErrorIsRetried() throws Exception {
    ask("POST", "/v1/faults", "{\"name\": \"moved\", \"api\": \"Produce\", \"error\": \"NOT_LEADER_OR_FOLLOWER\", \"times\": 2}");
    produce("payments", 1);
    var rule = ask("GET", "/v1/faults/moved", "");
    assertTrue(rule.contains("\"hits\":2") || rule.contains("\"hits\": 2"), rule);
  }
}
