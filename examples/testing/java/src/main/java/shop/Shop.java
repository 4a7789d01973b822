package shop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The application that is tested: it takes orders, and {@link Till}s bill each of them once. */
public final class Shop implements AutoCloseable {
  static final ObjectMapper JSON = new ObjectMapper();

  /** Nobody knows whether the order has arrived. */
  public static final class NotPlaced extends Exception {
    NotPlaced(String customer, Exception cause) {
      super(customer, cause);
    }
  }

  private final KafkaProducer<byte[], byte[]> producer;

  public Shop(String servers) {
    var settings =
        Map.<String, Object>of("bootstrap.servers", servers, "metadata.max.age.ms", 500, "linger.ms", 0);
    producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
  }

  /** Place an order, and return its offset. */
  public long place(String customer, int amount) throws NotPlaced {
    return place(customer, amount, Duration.ofSeconds(30));
  }

  /** Place an order, and return its offset, if it is known in time whether it has arrived. */
  public long place(String customer, int amount, Duration patience) throws NotPlaced {
    try {
      byte[] order = JSON.writeValueAsBytes(Map.of("customer", customer, "amount", amount));
      return send(new ProducerRecord<>("orders", customer.getBytes(), order))
          .get(patience.toMillis(), TimeUnit.MILLISECONDS)
          .offset();
    } catch (TimeoutException | ExecutionException | InterruptedException | java.io.IOException error) {
      throw new NotPlaced(customer, error);
    }
  }

  Future<RecordMetadata> send(ProducerRecord<byte[], byte[]> record) {
    return producer.send(record);
  }

  @Override
  public void close() {
    producer.close(Duration.ZERO);
  }
}
