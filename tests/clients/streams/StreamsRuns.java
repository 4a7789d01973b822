// Kafka Streams' own TopologyTestDriver: a question per line on stdin is a topology and its input; the answer is what it sends.
//
//   java -cp 'jars/*' StreamsRuns.java run

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.function.Function;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.test.TestRecord;

public class StreamsRuns {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Serde<String> TEXT = Serdes.String();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            System.out.println(run(JSON.readTree(line)));
        }
    }

    static ObjectNode run(JsonNode question) {
        StreamsBuilder builder = new StreamsBuilder();
        Map<String, KStream<String, String>> streams = new HashMap<>();
        Map<String, KTable<String, String>> tables = new HashMap<>();
        @SuppressWarnings("unchecked")
        GlobalKTable<String, String>[] everywhere = new GlobalKTable[1];
        Set<String> sinks = new TreeSet<>();
        for (JsonNode step : question.get("steps")) {
            add(builder, step, streams, tables, everywhere, sinks);
        }
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        config.put("default.dsl.store", "in_memory");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, TEXT.getClass());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, TEXT.getClass());
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir") + "/runs-" + ProcessHandle.current().pid());
        ObjectNode answer = JSON.createObjectNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config)) {
            Map<String, TestInputTopic<String, String>> inputs = new HashMap<>();
            for (JsonNode record : question.get("records")) {
                TestInputTopic<String, String> input = inputs.computeIfAbsent(
                        record.get(0).asText(), topic -> driver.createInputTopic(topic, new StringSerializer(), new StringSerializer()));
                TestRecord<String, String> one = new TestRecord<>(text(record.get(1)), text(record.get(2)));
                input.pipeInput(new TestRecord<>(one.key(), one.value(), null, record.get(3).asLong()));
            }
            for (String topic : sinks) {
                ArrayNode rows = answer.putArray(topic);
                TestOutputTopic<String, String> output =
                        driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer());
                for (TestRecord<String, String> sent : output.readRecordsToList()) {
                    rows.addArray().add(sent.key()).add(sent.value()).add(sent.timestamp());
                }
            }
        }
        return answer;
    }

    static void add(
            StreamsBuilder builder,
            JsonNode step,
            Map<String, KStream<String, String>> streams,
            Map<String, KTable<String, String>> tables,
            GlobalKTable<String, String>[] everywhere,
            Set<String> sinks) {
        String out = step.path("out").asText();
        KStream<String, String> of = streams.get(step.path("of").asText());
        long n = step.path("n").asLong();
        switch (step.get("op").asText()) {
            case "source" -> streams.put(out, builder.stream(step.get("topic").asText(), Consumed.with(TEXT, TEXT)));
            case "table" -> tables.put(out, builder.table(step.get("topic").asText(), Consumed.with(TEXT, TEXT)));
            case "filter" -> streams.put(out, of.filter((key, value) -> value == null || number(value) % n != 0));
            case "map_values" -> streams.put(out, of.mapValues(value -> value == null ? null : "" + (number(value) + n)));
            case "flat_map_values" -> streams.put(
                    out, of.flatMapValues(value -> value == null ? List.of() : List.of(value, "" + (number(value) + n))));
            case "select_key" -> streams.put(out, of.selectKey((key, value) -> value == null ? key : "m" + number(value) % n));
            case "repartition" -> streams.put(
                    out, of.repartition(Repartitioned.with(TEXT, TEXT).withName(step.get("name").asText())));
            case "peek" -> streams.put(out, of.peek((key, value) -> {}));
            case "merge" -> streams.put(out, of.merge(streams.get(step.get("with").asText())));
            case "split" -> {
                Map<String, KStream<String, String>> ways = of.split(Named.as(out + "-"))
                        .branch((key, value) -> value != null && number(value) % n == 0, Branched.as("0"))
                        .branch((key, value) -> value != null && number(value) % n == 1, Branched.as("1"))
                        .defaultBranch(Branched.as("2"));
                ways.forEach((name, way) -> streams.put(name, way));
            }
            case "count" -> streams.put(
                    out, of.groupByKey(Grouped.with(TEXT, TEXT)).count().toStream().mapValues(value -> "" + value));
            case "sum" -> tables.put(out, of.groupByKey(Grouped.with(TEXT, TEXT))
                    .aggregate(() -> "0", (key, value, sum) -> sum(number(sum) + number(value)), Materialized.with(TEXT, TEXT)));
            case "cogroup" -> tables.put(out, of.groupByKey(Grouped.with(TEXT, TEXT))
                    .cogroup((String key, String value, String sum) -> sum(number(sum) + number(value)))
                    .cogroup(grouped(streams, step), (key, value, sum) -> sum((3 * number(sum) + number(value)) % 1000))
                    .aggregate(() -> "0", Materialized.with(TEXT, TEXT)));
            case "window_cogroup" -> streams.put(out, text(cogrouped(of, grouped(streams, step), step)));
            case "reduce" -> tables.put(out, of.groupByKey(Grouped.with(TEXT, TEXT))
                    .reduce((one, other) -> "" + Math.max(number(one), number(other)), Materialized.with(TEXT, TEXT)));
            case "join_table" -> tables.put(
                    out, joinTables(tables.get(step.get("of").asText()), tables.get(step.get("with").asText()), step));
            case "join_foreign" -> tables.put(out, joinForeign(
                    tables.get(step.get("of").asText()), tables.get(step.get("with").asText()), step));
            case "changes" -> streams.put(out, tables.get(step.get("of").asText()).toStream());
            case "window_count" -> streams.put(out, text(inTimeWindows(of, step).count(kept(Serdes.Long()))).mapValues(StreamsRuns::shown));
            case "window_reduce" -> streams.put(out, text(inTimeWindows(of, step).reduce(
                    (one, other) -> other == null ? one : last(one + other), kept(TEXT))));
            case "sliding_count" -> streams.put(out, text(inSlidingWindows(of, step).count(kept(Serdes.Long()))).mapValues(StreamsRuns::shown));
            case "sliding_reduce" -> streams.put(out, text(inSlidingWindows(of, step).reduce(
                    (one, other) -> last(one + other), kept(TEXT))));
            case "session_count" -> streams.put(out, text(inSessions(of, step).count(untilClosed(step, Serdes.Long()))).mapValues(StreamsRuns::shown));
            case "session_sum" -> streams.put(out, text(inSessions(of, step).aggregate(
                    () -> "0",
                    (key, value, sum) -> "" + (number(sum) + (value == null ? 0 : number(value))),
                    (key, one, other) -> "" + (number(one) + number(other)),
                    untilClosed(step, TEXT))));
            case "join" -> streams.put(
                    out,
                    step.get("left").asBoolean()
                            ? of.leftJoin(tables.get(step.get("with").asText()), StreamsRuns::joined, Joined.with(TEXT, TEXT, TEXT))
                            : of.join(tables.get(step.get("with").asText()), StreamsRuns::joined, Joined.with(TEXT, TEXT, TEXT)));
            case "global_table" -> everywhere[0] = builder.globalTable(step.get("topic").asText(), Consumed.with(TEXT, TEXT));
            case "join_global" -> {
                KeyValueMapper<String, String, String> key = (ours, value) -> rowKey(value, n);
                streams.put(out, step.get("left").asBoolean()
                        ? of.leftJoin(everywhere[0], key, (value, row) -> joined(value, row))
                        : of.join(everywhere[0], key, (value, row) -> joined(value, row)));
            }
            case "join_within" -> streams.put(out, joinWithin(of, streams.get(step.get("with").asText()), step));
            case "to" -> {
                sinks.add(step.get("topic").asText());
                of.to(step.get("topic").asText(), Produced.with(TEXT, TEXT));
            }
            default -> throw new IllegalArgumentException(step.toString());
        }
    }

    static TimeWindowedKStream<String, String> inTimeWindows(KStream<String, String> of, JsonNode step) {
        Duration size = Duration.ofMillis(step.get("size").asLong());
        long advance = step.get("advance").asLong();
        TimeWindows windows = TimeWindows.ofSizeAndGrace(size, Duration.ofMillis(step.get("grace").asLong()));
        return of.groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(advance == 0 ? windows : windows.advanceBy(Duration.ofMillis(advance)))
                .emitStrategy(emit(step));
    }

    static TimeWindowedKStream<String, String> inSlidingWindows(KStream<String, String> of, JsonNode step) {
        return of.groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(
                        Duration.ofMillis(step.get("size").asLong()), Duration.ofMillis(step.get("grace").asLong())))
                .emitStrategy(emit(step));
    }

    static SessionWindowedKStream<String, String> inSessions(KStream<String, String> of, JsonNode step) {
        return of.groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(
                        Duration.ofMillis(step.get("size").asLong()), Duration.ofMillis(step.get("grace").asLong())))
                .emitStrategy(emit(step));
    }

    static KGroupedStream<String, String> grouped(Map<String, KStream<String, String>> streams, JsonNode step) {
        return streams.get(step.get("with").asText()).groupByKey(Grouped.with(TEXT, TEXT));
    }

    static KTable<Windowed<String>, String> cogrouped(
            KStream<String, String> of, KGroupedStream<String, String> other, JsonNode step) {
        Duration size = Duration.ofMillis(step.get("size").asLong());
        Duration grace = Duration.ofMillis(step.get("grace").asLong());
        CogroupedKStream<String, String> both = of.groupByKey(Grouped.with(TEXT, TEXT))
                .cogroup((String key, String value, String text) -> last(text + (value == null ? "9" : value)))
                .cogroup(other, (key, value, text) -> last((value == null ? "8" : value) + text));
        return switch (step.get("kind").asText()) {
            case "time" -> both.windowedBy(TimeWindows.ofSizeAndGrace(size, grace)).aggregate(() -> "", kept(TEXT));
            case "sliding" -> both.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
                    .aggregate(() -> "", kept(TEXT));
            default -> both.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace))
                    .aggregate(() -> "", (key, one, two) -> last(one + two), kept(TEXT));
        };
    }

    static KStream<String, String> joinWithin(KStream<String, String> of, KStream<String, String> other, JsonNode step) {
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofDays(1), Duration.ofMillis(step.get("grace").asLong()))
                .before(Duration.ofMillis(step.get("before").asLong()))
                .after(Duration.ofMillis(step.get("after").asLong()));
        StreamJoined<String, String, String> stored = StreamJoined.with(TEXT, TEXT, TEXT);
        return switch (step.get("kind").asText()) {
            case "left" -> of.leftJoin(other, StreamsRuns::paired, windows, stored);
            case "outer" -> of.outerJoin(other, StreamsRuns::paired, windows, stored);
            default -> of.join(other, StreamsRuns::paired, windows, stored);
        };
    }

    static KTable<String, String> joinTables(KTable<String, String> of, KTable<String, String> other, JsonNode step) {
        Materialized<String, String, KeyValueStore<Bytes, byte[]>> stored = Materialized.as(step.get("store").asText());
        stored = stored.withKeySerde(TEXT).withValueSerde(TEXT);
        return switch (step.get("kind").asText()) {
            case "left" -> of.leftJoin(other, StreamsRuns::paired, stored);
            case "outer" -> of.outerJoin(other, StreamsRuns::paired, stored);
            default -> of.join(other, StreamsRuns::paired, stored);
        };
    }

    static KTable<String, String> joinForeign(KTable<String, String> of, KTable<String, String> other, JsonNode step) {
        Materialized<String, String, KeyValueStore<Bytes, byte[]>> stored = Materialized.as(step.get("store").asText());
        stored = stored.withKeySerde(TEXT).withValueSerde(TEXT);
        long n = step.path("n").asLong();
        Function<String, String> key = value -> rowKey(value, n);
        return step.get("kind").asText().equals("left")
                ? of.leftJoin(other, key, StreamsRuns::paired, stored)
                : of.join(other, key, StreamsRuns::paired, stored);
    }

    /** The key of a row, by the value of a record; none for a quarter of them. */
    static String rowKey(String value, long n) {
        return value == null || number(value) % 4 == n ? null : "k" + number(value) % 3;
    }

    /** Stores that forget nothing: with the retention by default, a jump of time loses the results of closed windows. */
    static <V, S extends StateStore> Materialized<String, V, S> kept(Serde<V> values) {
        return Materialized.<String, V, S>with(TEXT, values).withRetention(Duration.ofDays(1));
    }

    /** Stores that keep a session until it is closed: by default they drop it a millisecond before. */
    static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> untilClosed(JsonNode step, Serde<V> values) {
        long closesAfter = step.get("size").asLong() + step.get("grace").asLong() + 1;
        return Materialized.<String, V, SessionStore<Bytes, byte[]>>with(TEXT, values).withRetention(Duration.ofMillis(closesAfter));
    }

    static EmitStrategy emit(JsonNode step) {
        return step.get("closes").asBoolean() ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
    }

    static <V> KStream<String, V> text(KTable<Windowed<String>, V> table) {
        return table.toStream().selectKey(
                (key, value) -> key.key() + "@" + key.window().start() + "-" + key.window().end());
    }

    static String shown(Long count) {
        return count == null ? null : "" + count;
    }

    static String last(String text) {
        return text.substring(Math.max(0, text.length() - 15));
    }

    static String joined(String value, String row) {
        return "" + ((value == null ? 0 : number(value)) * 1000 + (row == null ? 0 : number(row)));
    }

    static String paired(String value, String other) {
        return "" + ((value == null ? 3 : 7 + number(value)) * 1009 + (other == null ? 5 : 11 + number(other))) % 1000003;
    }

    /** The sum as text; null, which deletes the key, if the sum is a multiple of 7. */
    static String sum(long sum) {
        return sum % 7 == 0 ? null : "" + sum;
    }

    static long number(String value) {
        return Long.parseLong(value);
    }

    static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }
}
