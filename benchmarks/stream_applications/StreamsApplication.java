// The applications as Kafka Streams writes them. One word follows those of the others: the bytes of the cache of each
// store, with which Kafka Streams leaves out changes of a key that another change follows before the next commit.
//
//   java -cp 'jars/*:.' StreamsApplication KIND SERVERS APPLICATION STATE_DIR GUARANTEE COMMIT_MS \
//       STANDBYS INPUT TABLE OUTPUT CACHE

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

public class StreamsApplication {
    public static void main(String[] words) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[1]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, words[2]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, words[3]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
            words[4].equals("exactly_once") ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, words[5]);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, words[10]);
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, words[6]);
        properties.put(StreamsConfig.PROBING_REBALANCE_INTERVAL_MS_CONFIG, 60_000);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> records = builder.stream(words[7]);
        results(words[0], builder, records, words[8]).to(words[9]);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        // By default an instance remains in the group until its session ends, which takes 45 seconds.
        CloseOptions leaving = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.start();
    }

    static KStream<String, String> results(
        String kind, StreamsBuilder builder, KStream<String, String> records, String table) {
        switch (kind) {
            case "counts":
                return records.groupByKey().count(Materialized.as("counts")).toStream()
                    .mapValues(count -> Long.toString(count));
            case "windows":
                return records.groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
                    .count(Materialized.as("minutes")).toStream()
                    .map((window, count) -> KeyValue.pair(window.key(), window.window().start() + " " + count));
            default:
                return records.join(builder.<String, String>table(table, Materialized.as("rows")),
                    (value, row) -> value + " " + row);
        }
    }
}
