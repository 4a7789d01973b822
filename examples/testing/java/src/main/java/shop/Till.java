package shop;

import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Bills orders; several tills share the work. It reads "orders" and writes "payments", and what it cannot read to
 * "orders.dead", in one transaction with the offset up to which it has read: whatever breaks, an order is billed once.
 */
public final class Till implements AutoCloseable {
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final KafkaProducer<byte[], byte[]> producer;

  public Till(String servers, String name) {
    this(servers, name, Map.of());
  }

  /** A till whose consumer has some settings of its own. */
  public Till(String servers, String name, Map<String, Object> settings) {
    var reading = new HashMap<String, Object>(Map.of("bootstrap.servers", servers, "group.id", "tills"));
    reading.putAll(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 1));
    reading.putAll(Map.of("isolation.level", "read_committed", "metadata.max.age.ms", 500));
    reading.putAll(Map.of("heartbeat.interval.ms", 200, "fetch.max.wait.ms", 100));
    reading.putAll(settings);
    consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    consumer.subscribe(List.of("orders"));
    var writing = new HashMap<String, Object>(Map.of("bootstrap.servers", servers, "transactional.id", name));
    writing.putAll(Map.of("transaction.timeout.ms", 60_000, "metadata.max.age.ms", 500));
    producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
    producer.initTransactions();
  }

  /** How many partitions are this till's now. */
  public int partitions() {
    return consumer.assignment().size();
  }

  /** Bill so many orders, if there are so many in this time; returns how many. */
  public int bill(int orders, Duration patience) {
    int billed = 0;
    for (Instant end = Instant.now().plus(patience); billed < orders && Instant.now().isBefore(end); ) {
      for (var order : consumer.poll(Duration.ofMillis(50))) {
        billed += bill(order) ? 1 : 0;
      }
    }
    return billed;
  }

  /** Bill so many orders; returns how many there were in half a minute. */
  public int bill(int orders) {
    return bill(orders, Duration.ofSeconds(30));
  }

  /** Begin to bill one order, and do not get to the commit, as a till does that dies there. */
  public void begin() {
    for (var found = consumer.poll(Duration.ZERO); ; found = consumer.poll(Duration.ofMillis(50))) {
      for (var order : found) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("payments", order.key(), order.value()));
        producer.flush();
        return;
      }
    }
  }

  private boolean bill(ConsumerRecord<byte[], byte[]> order) {
    var partition = new TopicPartition(order.topic(), order.partition());
    try {
      producer.beginTransaction();
      producer.send(new ProducerRecord<>(target(order.value()), order.key(), order.value()));
      var done = Map.of(partition, new OffsetAndMetadata(order.offset() + 1));
      producer.sendOffsetsToTransaction(done, consumer.groupMetadata());
      producer.commitTransaction();
      return true;
    } catch (KafkaException error) {
      producer.abortTransaction(); // throws if this till may not go on
      consumer.seek(partition, order.offset());
      return false;
    }
  }

  private static String target(byte[] order) {
    try {
      return Shop.JSON.readTree(order).path("amount").isInt() ? "payments" : "orders.dead";
    } catch (IOException error) {
      return "orders.dead";
    }
  }

  /** Hand the partitions over. */
  @Override
  public void close() {
    consumer.close();
    producer.close(Duration.ZERO);
  }
}
