package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What the shop and its tills do when all is well, and what they do about each thing that can go wrong. */
@Timeout(120)
class ShopTest {
  private final Control control = new Control();
  private final Deque<AutoCloseable> open = new ArrayDeque<>();
  private String servers;
  private Shop shop;

  @BeforeEach
  void begin() {
    control.ask("POST", "/v1/state/reset", Map.of());
    control.topic("orders", 4, -1);
    control.topic("payments", 1, -1);
    control.topic("orders.dead", 1, -1);
    var found = new ArrayList<String>();
    control.get("/v1/nodes").forEach(node -> found.add(node.path("host").asText() + ":" + node.path("port").asInt()));
    servers = String.join(",", found);
    shop = new Shop(servers);
    open.push(shop);
  }

  @AfterEach
  void end() throws Exception {
    while (!open.isEmpty()) {
      open.pop().close();
    }
  }

  private void place(int first, int count) throws Shop.NotPlaced {
    for (int number = first; number < first + count; number++) {
      shop.place("customer-" + number, number);
    }
  }

  private Till till(String name) {
    return till(name, Map.of());
  }

  private Till till(String name, Map<String, Object> settings) {
    var till = new Till(servers, name, settings);
    open.push(till);
    return till;
  }

  /** The topic has so many records that can be read, and no two of the same order. */
  private void has(String topic, int count) {
    Map<String, Object> settings =
        Map.of("bootstrap.servers", servers, "group.id", UUID.randomUUID().toString(),
            "auto.offset.reset", "earliest", "isolation.level", "read_committed");
    var values = new ArrayList<String>();
    try (var reader = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      reader.subscribe(List.of(topic));
      for (long end = System.nanoTime() + 30_000_000_000L; values.size() < count && System.nanoTime() < end; ) {
        reader.poll(Duration.ofMillis(50)).forEach(record -> values.add(new String(record.value())));
      }
    }
    assertEquals(count, values.size(), values::toString);
    assertEquals(count, new HashSet<>(values).size(), values::toString);
  }

  private int leader(String topic) {
    return control.get("/v1/topics/" + topic).path("partitions").path(0).path("leader").asInt();
  }

  private JsonNode node(String is, boolean so) {
    return StreamSupport.stream(control.get("/v1/nodes").spliterator(), false)
        .filter(node -> node.path(is).asBoolean() == so)
        .findFirst()
        .orElseThrow();
  }

  private void kill(int node) {
    control.node(node, "kill");
    open.addLast(() -> control.node(node, "start"));
  }

  /** Skips a test where processes have the time of their machine. */
  private void needsClock() {
    var reason = control.reason("POST /v1/clock");
    assumeTrue(reason.isEmpty(), reason);
  }

  @Test
  void ordersAreBilled() throws Exception {
    place(0, 10);
    assertEquals(10, till("till-1").bill(10));
    has("payments", 10);
  }

  @Test
  void aLeaderThatMovedIsAskedAgain() throws Exception {
    var rule =
        control.rule(Map.of("api", "Produce", "topic", "orders", "error", "NOT_LEADER_OR_FOLLOWER", "times", 2));
    assertEquals(0, shop.place("ada", 1));
    assertEquals(2, rule.hits());
  }

  @Test
  void anOrderWhoseAnswerIsLostIsThereOnce() throws Exception {
    var rule =
        control.rule(Map.of("api", "Produce", "topic", "orders", "disconnect", "after", "after_work", true, "times", 1));
    shop.place("ada", 1);
    assertEquals(1, rule.hits());
    assertEquals(1, shop.place("ada", 2), "the next one is the second");
  }

  @Test
  void aSlowBrokerIsNotWaitedForWithoutEnd() throws Exception {
    var rule = control.rule(Map.of("api", "Produce", "topic", "orders", "hold", true));
    assertThrows(Shop.NotPlaced.class, () -> shop.place("ada", 1, Duration.ofMillis(500)));
    rule.release();
    shop.place("ada", 2);
  }

  @Test
  void anOrderIsPlacedWhenTheBrokersHaveItAndNotBefore() throws Exception {
    var rule = control.rule(Map.of("api", "Produce", "topic", "orders", "hold", true));
    var placing = shop.send(new ProducerRecord<>("orders", "{}".getBytes()));
    rule.waitHit();
    assertFalse(placing.isDone());
    rule.release();
    assertEquals(0, placing.get().offset());
  }

  @Test
  void twoTillsShareTheWork() throws Exception {
    var first = till("till-1");
    var second = till("till-2");
    while (first.partitions() != 2 || second.partitions() != 2) {
      first.bill(1, Duration.ofMillis(100));
      second.bill(1, Duration.ofMillis(100));
    }
    place(0, 20);
    var all = new AtomicInteger();
    var other = CompletableFuture.supplyAsync(() -> billUntil(20, second, all));
    int billed = billUntil(20, first, all);
    assertTrue(billed > 0 && other.get() > 0, () -> billed + " and " + other.join());
    assertEquals(20, billed + other.get());
    has("payments", 20);
  }

  /** Bills until all tills together have billed so many orders, and returns how many this one has billed. */
  private static int billUntil(int count, Till till, AtomicInteger all) {
    int own = 0;
    while (all.get() < count) {
      int billed = till.bill(1, Duration.ofMillis(100));
      own += billed;
      all.addAndGet(billed);
    }
    return own;
  }

  @Test
  void aTillGoesOnWhereTheOneBeforeHasStopped() throws Exception {
    var first = till("till-1");
    place(0, 3);
    assertEquals(3, first.bill(3));
    open.remove(first);
    first.close();
    place(3, 2);
    assertEquals(2, till("till-2").bill(2));
    has("payments", 5);
  }

  @Test
  void aTillThatDiesIsReplaced() throws Exception {
    needsClock();
    var dead = till("till-1", Map.of("group.instance.id", "first"));
    while (dead.partitions() == 0) {
      dead.bill(1, Duration.ofMillis(100));
    }
    open.remove(dead);
    dead.close(); // a static member does not leave
    place(0, 3);
    control.advance("50s");
    control.wait("group=tills&members=0");
    assertEquals(3, till("till-2").bill(3));
  }

  @Test
  void aTillThatDiesBeforeItsCommitHasBilledNothing() throws Exception {
    place(0, 1);
    var dead = till("till-1");
    dead.begin();
    open.remove(dead);
    dead.close();
    assertEquals(1, till("till-1").bill(1));
    has("payments", 1);
  }

  @Test
  void aTransactionIsNotLeftOpenForEver() throws Exception {
    needsClock();
    place(0, 1);
    till("till-1").begin();
    assertEquals("Ongoing", control.get("/v1/state").path("transactions").path(0).path("state").asText());
    control.advance("80s");
    assertEquals("CompleteAbort", control.get("/v1/state").path("transactions").path(0).path("state").asText());
  }

  @Test
  void aCoordinatorThatLoadsIsWaitedFor() throws Exception {
    place(0, 1);
    var rule =
        control.rule(Map.of("api", "TxnOffsetCommit", "error", "COORDINATOR_LOAD_IN_PROGRESS", "times", 2));
    assertEquals(1, till("till-1").bill(1));
    assertEquals(2, rule.hits());
    has("payments", 1);
  }

  @Test
  void whatCannotBeReadDoesNotStopTheTill() throws Exception {
    place(0, 1);
    for (byte[] poison : List.of(new byte[] {(byte) 255}, "{}".getBytes(), "[]".getBytes())) {
      shop.send(new ProducerRecord<>("orders", poison)).get();
    }
    assertEquals(4, till("till-1").bill(4));
    has("orders.dead", 3);
    has("payments", 1);
  }

  @Test
  void aBrokerDiesAndOrdersGoOn() throws Exception {
    var till = till("till-1");
    place(0, 5);
    assertEquals(5, till.bill(5));
    kill(leader("orders"));
    place(5, 5);
    assertEquals(5, till.bill(5));
    has("payments", 10);
  }

  @Test
  void aLeaderDiesWithAnOrderInItsHands() throws Exception {
    var rule =
        control.rule(Map.of("api", "Produce", "topic", "orders", "node", "kill", "after_work", true, "times", 1));
    shop.place("ada", 1);
    assertEquals(1, rule.hits());
    control.node(node("running", false).path("node").asInt(), "start");
    has("orders", 1);
  }

  @Test
  void aBrokerThatStandsStillForAMomentLosesNothing() throws Exception {
    place(0, 3);
    var till = till("till-1");
    var rule = control.rule(Map.of("api", "Produce", "topic", "payments", "node", "freeze", "times", 1));
    var billing = CompletableFuture.supplyAsync(() -> till.bill(3));
    rule.waitHit();
    assertFalse(billing.isDone());
    rule.release();
    assertEquals(3, billing.get());
    has("payments", 3);
  }

  @Test
  void theControllerDiesAndOrdersGoOn() throws Exception {
    place(0, 3);
    var till = till("till-1");
    assertEquals(1, till.bill(1));
    kill(node("controller", true).path("node").asInt());
    control.wait("controller=any");
    control.topic("returns", 2, 2);
    assertEquals(2, till.bill(2));
    has("payments", 3);
  }

  @Test
  void ordersBecomeMorePartitionsInTheMiddle() throws Exception {
    var till = till("till-1");
    place(0, 10);
    assertEquals(5, till.bill(5));
    try (var admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(8))).all().get();
    }
    control.wait("topic=orders&partitions=8");
    place(10, 10);
    assertEquals(15, till.bill(15));
    has("payments", 20);
  }
}
