package shop;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;

/** What the whole application does with a cluster of three brokers, and when that cluster fails it. */
@SpringBootTest
class ShopApplicationTest {
  @Autowired private ShopApplication.Shop shop;
  @Autowired private ShopApplication.Till till;

  /** Runs before the application starts, so the listener finds its topic. */
  @DynamicPropertySource
  static void cluster(DynamicPropertyRegistry registry) {
    Control.ask("POST", "/v1/state/reset", "{}");
    Control.ask("POST", "/v1/topics", "{\"topic\": \"orders\", \"partitions\": 4, \"replicas\": -1}");
    registry.add("spring.kafka.bootstrap-servers", Control::bootstrapServers);
  }

  private void assertBilledOnce(String order) {
    await().atMost(60, SECONDS).until(() -> till.billed().contains(order));
    assertThat(till.billed()).containsOnlyOnce(order);
  }

  @Test
  void anOrderIsBilled() throws Exception {
    shop.place("ada", "a book").get(60, SECONDS);
    assertBilledOnce("a book");
  }

  @Test
  void aLeaderThatMovedIsAskedAgain() throws Exception {
    var rule =
        Control.rule(
            """
            {"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
            """);
    shop.place("ada", "a lamp").get(60, SECONDS);
    assertThat(Control.hits(rule)).isEqualTo(2);
    assertBilledOnce("a lamp");
  }

  @Test
  void anOrderWhoseAnswerIsLostIsBilledOnce() throws Exception {
    var rule =
        Control.rule(
            """
            {"api": "Produce", "topic": "orders", "disconnect": "after", "after_work": true, "times": 1}
            """);
    shop.place("ada", "a chair").get(60, SECONDS);
    assertThat(Control.hits(rule)).isEqualTo(1);
    assertBilledOnce("a chair");
  }
}
