// Kafka's own Java clients as they come, without settings: see ../faulted.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Faulted {
    static final ObjectMapper JSON = new ObjectMapper();
    static volatile boolean over = false;
    static JsonNode asked;

    public static void main(String[] words) throws Exception {
        asked = JSON.readTree(words[1]);
        var watching = new Thread(Faulted::watch);
        watching.setDaemon(true);
        watching.start();
        if (words[0].equals("send")) send();
        else read();
        emit("done", Map.of());
        System.exit(0);
    }

    static void watch() {
        try {
            while (System.in.read() >= 0) {}
        } catch (java.io.IOException closed) {
            // so it is
        }
        over = true;
    }

    static synchronized void emit(String event, Map<String, ?> fields) {
        var line = new LinkedHashMap<String, Object>(fields);
        line.put("event", event);
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (com.fasterxml.jackson.core.JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
        System.out.flush();
    }

    static Properties properties() {
        var made = new Properties();
        made.put("bootstrap.servers", asked.get("servers").asText());
        return made;
    }

    static void send() {
        try (var producer = new KafkaProducer<>(properties(), new StringSerializer(), new StringSerializer())) {
            for (int place = 0; place < 3; place++) {
                int partition = place;
                producer.send(new ProducerRecord<>(asked.get("topic").asText(), partition, null, "x"), (where, error) -> {
                    if (error == null) emit("acked", Map.of("partition", partition));
                    else emit("failed", Map.of("partition", partition, "error", error.getClass().getSimpleName()));
                });
            }
            producer.flush();
        }
    }

    static void read() {
        try (var consumer = new KafkaConsumer<>(properties(), new StringDeserializer(), new StringDeserializer())) {
            var places = new ArrayList<TopicPartition>();
            for (int place = 0; place < 3; place++) places.add(new TopicPartition(asked.get("topic").asText(), place));
            consumer.assign(places);
            consumer.seekToBeginning(places);
            var had = new HashSet<Integer>();
            while (had.size() < 3 && !over) {
                try {
                    for (var one : consumer.poll(Duration.ofMillis(100))) {
                        had.add(one.partition());
                        emit("record", Map.of("partition", one.partition(),
                            "intact", one.value().equals("record".repeat(20))));
                    }
                } catch (RuntimeException error) {
                    emit("error", Map.of("error", error.getClass().getSimpleName()));
                }
            }
        }
    }
}
