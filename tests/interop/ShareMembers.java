import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of a group that shares a topic: SERVERS TOPIC MEMBERS COUNT. Each record is released when it comes first if its
 * value is a multiple of ten, and accepted otherwise. Says "ready" when all are members, and at the end how many values
 * were accepted, and how many of them were delivered how often.
 */
public final class ShareMembers {
    static final Set<String> accepted = ConcurrentHashMap.newKeySet();
    static final Map<String, AtomicInteger> deliveries = new ConcurrentHashMap<>();

    public static void main(String[] words) throws Exception {
        int members = Integer.parseInt(words[2]), count = Integer.parseInt(words[3]);
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", words[0]);
        config.put("group.id", "shared");
        config.put("share.acknowledgement.mode", "explicit");
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        AtomicInteger ready = new AtomicInteger();
        Thread[] threads = new Thread[members];
        for (int one = 0; one < members; one++) {
            threads[one] = new Thread(() -> member(config, words[1], count, ready));
            threads[one].start();
        }
        while (ready.get() < members) Thread.sleep(20);
        System.out.println("ready");
        for (Thread one : threads) one.join();
        long again = deliveries.values().stream().filter(one -> one.get() > 1).count();
        System.out.println("accepted " + accepted.size() + " again " + again);
    }

    static void member(Map<String, Object> config, String topic, int count, AtomicInteger ready) {
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config)) {
            consumer.subscribe(List.of(topic));
            consumer.poll(Duration.ofMillis(200));
            ready.incrementAndGet();
            while (accepted.size() < count) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    int times = deliveries.computeIfAbsent(one.value(), any -> new AtomicInteger()).incrementAndGet();
                    boolean release = times == 1 && Integer.parseInt(one.value()) % 10 == 0;
                    consumer.acknowledge(one, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    if (!release) accepted.add(one.value());
                }
                consumer.commitSync();
            }
        }
    }
}
