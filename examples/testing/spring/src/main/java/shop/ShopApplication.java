package shop;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.support.SendResult;
import org.springframework.stereotype.Component;

/** A shop that takes orders, and a till that bills them. */
@SpringBootApplication
public class ShopApplication {
  public static void main(String[] arguments) {
    SpringApplication.run(ShopApplication.class, arguments);
  }

  /** Writes each order to the topic, in the order of its customer. */
  @Component
  public static class Shop {
    private final KafkaTemplate<String, String> template;

    Shop(KafkaTemplate<String, String> template) {
      this.template = template;
    }

    public CompletableFuture<SendResult<String, String>> place(String customer, String order) {
      return template.send("orders", customer, order);
    }
  }

  /** Bills each order that it reads. */
  @Component
  public static class Till {
    private final List<String> billed = new CopyOnWriteArrayList<>();

    @KafkaListener(topics = "orders")
    void bill(String order) {
      billed.add(order);
    }

    public List<String> billed() {
      return billed;
    }
  }
}
