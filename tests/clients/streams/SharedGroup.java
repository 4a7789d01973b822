// An instance of Kafka Streams: copies each record of one topic to another, and signs it. Says which tasks it has.
//
//   java -cp 'jars/*' SharedGroup.java SERVERS APPLICATION STATE_DIR INPUT OUTPUT      until stdin ends

import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

public class SharedGroup {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        properties.put(StreamsConfig.APPLICATION_SERVER_CONFIG, "java.example:1");
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", 6000);
        properties.put("heartbeat.interval.ms", 500);
        properties.put("internal.leave.group.on.close", true);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[3]).mapValues(value -> value + " by java").to(arguments[4]);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.start();
        String said = "";
        while (System.in.available() == 0) {
            TreeSet<String> tasks = new TreeSet<>();
            streams.metadataForLocalThreads().forEach(thread ->
                thread.activeTasks().forEach(task -> tasks.add(task.taskId().toString())));
            String state = streams.state() + " " + String.join(",", tasks);
            if (!state.equals(said)) {
                System.out.println(state);
                said = state;
            }
            Thread.sleep(50);
        }
        streams.close();
    }
}
