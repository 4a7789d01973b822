import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.Stores;

/**
 * Two instances of Kafka Streams that count words: SERVERS INPUT OUTPUT HOW. With HOW "repartitioned" words go through a
 * topic of a fixed width before they are counted, with "direct" the keys of the input are counted where they lie. Says
 * "running" when both are, and "died" with the reason of each that ends; ends itself when its input is closed.
 */
public final class GrowingWordCount {
    public static void main(String[] words) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream(words[1]);
        KStream<String, String> counted = words[3].equals("direct")
            ? input
            : input.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .selectKey((key, word) -> word)
                .repartition(Repartitioned.<String, String>as("words").withNumberOfPartitions(3));
        counted.groupByKey()
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to(words[2]);
        List<KafkaStreams> instances = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            KafkaStreams one = new KafkaStreams(builder.build(), config(words[0]));
            one.setUncaughtExceptionHandler(error -> {
                say("died " + String.valueOf(error).replace('\n', ' '));
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            one.start();
            instances.add(one);
        }
        while (!instances.stream().allMatch(one -> one.state() == KafkaStreams.State.RUNNING)) Thread.sleep(20);
        say("running");
        while (System.in.read() != -1) { }
        instances.forEach(one -> say("state " + one.state()));
        instances.forEach(KafkaStreams::close);
    }

    static Properties config(String servers) throws Exception {
        Properties config = new Properties();
        config.put("application.id", "words");
        config.put("bootstrap.servers", servers);
        config.put("state.dir", Files.createTempDirectory("words").toString());
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("commit.interval.ms", "3000"); // longer than a look at metadata: a gate would be closed meanwhile
        config.put("statestore.cache.max.bytes", "0");
        config.put("metadata.max.age.ms", "300");
        config.put("session.timeout.ms", "6000");
        config.put("heartbeat.interval.ms", "500");
        return config;
    }

    static synchronized void say(String line) {
        System.out.println(line);
    }
}
