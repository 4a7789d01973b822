import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Records of 24 keys until standard input ends; a line for each that is settled: its value, a tab, what it was refused
 * with. "flood" sends without waiting, "ordered" the next of a key when the one before is stored. See
 * test_lineage_partitioner.py.
 */
public class LineageLoad {
    static final int KEYS = 24;

    record Settled(int key, String value, Exception error) {}

    static final LinkedBlockingQueue<Settled> settled = new LinkedBlockingQueue<>();
    static volatile boolean over;

    public static void main(String[] words) throws Exception {
        if (words[0].equals("addresses")) {
            addresses();
            return;
        }
        boolean ordered = words[2].equals("ordered");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("partitioner.class", "LineagePartitioner");
        settings.put("interceptor.classes", "LineagePartitioner");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("linger.ms", "1");
        Thread watching = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException closed) {
                // so it is
            }
            over = true;
        });
        watching.setDaemon(true);
        watching.start();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            if (ordered) {
                ordered(producer, words[1]);
            } else {
                flood(producer, words[1]);
            }
        }
        System.out.println("done\t");
    }

    static void addresses() {
        for (int base : new int[] {1, 3, 5, 7, 25}) {
            for (int count = 1; count <= 60; count++) {
                LineagePartitioner.Lineage lineage = new LineagePartitioner.Lineage(base, count);
                StringBuilder line = new StringBuilder(base + "\t" + count);
                for (int hash = 0; hash < 200; hash++) {
                    line.append("\t").append(lineage.address(hash * 7919));
                }
                System.out.println(line);
            }
        }
    }

    static void send(KafkaProducer<String, String> producer, String topic, int key, String value) {
        producer.send(new ProducerRecord<>(topic, "key-" + key, value), (where, error) ->
                settled.add(new Settled(key, value, error)));
    }

    static void flood(KafkaProducer<String, String> producer, String topic) throws Exception {
        int sent = 0;
        int heard = 0;
        while (!over || heard < sent) {
            for (int turn = 0; !over && turn < KEYS && sent - heard < 2000; turn++, sent++) {
                int key = sent % KEYS; // the limit may end a turn before its last key
                send(producer, topic, key, String.format("key-%d:%06d", key, sent / KEYS));
            }
            for (Settled one; (one = settled.poll(2, TimeUnit.MILLISECONDS)) != null; heard++) {
                tell(one);
            }
        }
    }

    static void ordered(KafkaProducer<String, String> producer, String topic) throws Exception {
        int[] numbers = new int[KEYS];
        int busy = KEYS;
        for (int key = 0; key < KEYS; key++) {
            next(producer, topic, key, numbers);
        }
        while (busy > 0) {
            Settled one = settled.take();
            if (one.error != null && !LineagePartitioner.isRefusal(one.error)) {
                throw one.error;
            }
            if (one.error != null) {
                System.out.println("again\t" + one.value);
                send(producer, topic, one.key, one.value);
            } else {
                tell(one);
                if (over) {
                    busy--;
                } else {
                    next(producer, topic, one.key, numbers);
                }
            }
        }
    }

    static void next(KafkaProducer<String, String> producer, String topic, int key, int[] numbers) {
        send(producer, topic, key, String.format("key-%d:%06d", key, numbers[key]++));
    }

    static void tell(Settled one) {
        System.out.println(one.value + "\t" + (one.error == null ? "" : one.error.getClass().getSimpleName()));
    }
}
