import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Writes and reads numbered records with every codec of the time; see test_old_java_clients.py. */
public class OldClient {
    static final int COUNT = 200;

    public static void main(String[] arguments) throws Exception {
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4"}) {
            String topic = arguments[1] + "-" + codec;
            produce(arguments[0], topic, codec);
            System.out.println(codec + " " + consume(arguments[0], topic));
        }
    }

    static void produce(String servers, String topic, String codec) throws Exception {
        Properties settings = settings(servers, "Serializer", "key.serializer", "value.serializer");
        settings.put("compression.type", codec);
        settings.put("linger.ms", "20");
        settings.put("acks", "all");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = 0; number < COUNT; number++) {
            sent.add(producer.send(new ProducerRecord<>(topic, "key-" + number, "value-" + number)));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get(20, TimeUnit.SECONDS);
        }
        producer.close();
    }

    /** How many records came that were the right ones at the right offsets. */
    static int consume(String servers, String topic) {
        Properties settings = settings(servers, "Deserializer", "key.deserializer", "value.deserializer");
        settings.put("group.id", "group-" + topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(Arrays.asList(topic));
        int right = 0;
        long deadline = System.currentTimeMillis() + 20000;
        while (right < COUNT && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<String, String> one : consumer.poll(200)) {
                if (one.offset() == right && one.value().equals("value-" + right)) {
                    right++;
                }
            }
        }
        consumer.commitSync();
        consumer.close();
        return right;
    }

    static Properties settings(String servers, String kind, String... names) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        for (String name : names) {
            settings.put(name, "org.apache.kafka.common.serialization.String" + kind);
        }
        return settings;
    }
}
