import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Ends transactions one after the other: SERVERS TOPIC PARTITIONS ROUNDS. Each kind of round is done so many times, then
 * "KIND seconds" is printed. The value of a record is "KIND/ROUND/OUTCOME". Any exception ends the program.
 */
public final class TransactionLoop {
    private static final int SENT = 20;
    private static Map<String, Object> config;
    private static String topic;
    private static int partitions;
    private static KafkaProducer<String, String> producer;

    public static void main(String[] words) {
        topic = words[1];
        partitions = Integer.parseInt(words[2]);
        int rounds = Integer.parseInt(words[3]);
        try {
            for (String kind : List.of("commit", "abort", "alternate", "offsets", "init", "mixed"))
                all(kind, words[0], rounds);
        } catch (RuntimeException error) { // the launcher of source files cannot show one without a stack
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void all(String kind, String servers, int rounds) {
        config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("transactional.id", "loop-" + kind);
        config.put("retry.backoff.ms", 5);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        long began = System.nanoTime();
        begin();
        for (int round = 0; round < rounds; round++) once(kind, kind, round);
        producer.close();
        System.out.println(kind + " " + (System.nanoTime() - began) / 1_000_000_000.0);
    }

    /** Another producer with the same transactional id; what the last one left open is aborted. */
    private static void begin() {
        KafkaProducer<String, String> last = producer;
        producer = new KafkaProducer<>(config);
        producer.initTransactions();
        if (last != null) last.close(Duration.ZERO);
    }

    private static void once(String kind, String told, int round) {
        switch (kind) {
            case "commit" -> end(told, round, true, false);
            case "abort" -> end(told, round, false, false);
            case "alternate" -> end(told, round, round % 2 == 0, false);
            case "offsets" -> end(told, round, round % 3 != 2, true);
            case "init" -> {
                if (round % 2 == 0) {
                    producer.beginTransaction();
                    send(told, round, "left");
                    producer.flush();
                } else {
                    end(told, round, true, false);
                }
                begin();
            }
            default -> once(List.of("commit", "offsets", "abort", "alternate", "init").get(round % 5), told, round);
        }
    }

    private static void end(String kind, int round, boolean commit, boolean offsets) {
        producer.beginTransaction();
        send(kind, round, commit ? "committed" : "aborted");
        if (offsets) {
            Map<TopicPartition, OffsetAndMetadata> positions =
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(commit ? round : -round + 1_000_000));
            producer.sendOffsetsToTransaction(positions, new ConsumerGroupMetadata("group-" + kind));
        }
        if (commit) producer.commitTransaction();
        else producer.abortTransaction();
    }

    private static void send(String kind, int round, String outcome) {
        for (int one = 0; one < SENT; one++) {
            int partition = (round * 7 + one * 3) % partitions;
            producer.send(new ProducerRecord<>(topic, partition, null, kind + "/" + round + "/" + outcome));
        }
    }
}
