// Kafka's own consumer as a member of a group that writes down what it is handed, for `anabranch.chaos run --member`.
//
//     javac -cp "JARS/*" -d build/members examples/members/Member.java
//     python -m anabranch.chaos run --duration 60 --kafka 4.1 \
//         --member "java=java -Xmx64m -XX:TieredStopAtLevel=1 -cp 'build/members:JARS/*' Member classic"
//
// The group protocol is `classic`, `cooperative` or `consumer`; the other words are added by the run. The sequence of a
// record is what its value says behind the slash. What was written down is committed with the next poll.

import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Member {
    static final String LINE = "{\"key\":\"%s\",\"sequence\":%s,\"partition\":%d,\"offset\":%d,\"member\":\"%d\"}\n";

    public static void main(String[] words) throws Exception {
        var consumer = new KafkaConsumer<>(
                settings(words[0], words[1], words[3]), new StringDeserializer(), new StringDeserializer());
        var main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException hurried) {
                Thread.currentThread().interrupt();
            }
        }));
        try (consumer; var file = FileChannel.open(Path.of(words[4]), StandardOpenOption.APPEND)) {
            consumer.subscribe(List.of(words[2]));
            while (true) {
                var told = new StringBuilder();
                for (var one : consumer.poll(Duration.ofMillis(200))) {
                    told.append(line(one));
                }
                var bytes = ByteBuffer.wrap(told.toString().getBytes(StandardCharsets.UTF_8));
                while (bytes.hasRemaining()) {
                    file.write(bytes);
                }
            }
        } catch (WakeupException ending) {
            // by SIGTERM
        }
    }

    static Properties settings(String protocol, String servers, String group) {
        var settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("auto.commit.interval.ms", "500");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("request.timeout.ms", "10000");
        settings.put("default.api.timeout.ms", "20000");
        if (protocol.equals("consumer")) {
            settings.put("group.protocol", "consumer");
            return settings;
        }
        var assignor = protocol.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "1000");
        return settings;
    }

    static String line(ConsumerRecord<String, String> one) {
        var sequence = one.value().substring(one.value().lastIndexOf('/') + 1);
        return LINE.formatted(one.key(), sequence, one.partition(), one.offset(), ProcessHandle.current().pid());
    }
}
