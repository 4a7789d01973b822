// Kafka's own Java clients, and Kafka Streams. The commands and what they tell: see ../common.py; besides them
//
//     streams    servers topic target application   -> counted {word, count}   a word count, exactly once

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class Driver {
    static final int KEYS = 7;
    static final ObjectMapper JSON = new ObjectMapper();
    static final CountDownLatch stopped = new CountDownLatch(1);
    static JsonNode asked;

    public static void main(String[] words) throws Exception {
        asked = JSON.readTree(words[1]);
        var watching = new Thread(Driver::watch);
        watching.setDaemon(true);
        watching.start();
        switch (words[0]) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "transact" -> transact();
            case "admin" -> admin();
            case "streams" -> streams();
            case "doors" -> doors();
            default -> throw new IllegalArgumentException(words[0]);
        }
        emit("done", Map.of());
        System.exit(0);
    }

    static Properties ways(JsonNode door) throws java.io.IOException {
        var made = new Properties();
        made.put("bootstrap.servers", door.get("servers").asText());
        made.put("security.protocol", door.get("protocol").asText());
        if (door.hasNonNull("ca")) {
            made.put("ssl.truststore.type", "PEM");
            made.put("ssl.truststore.location", door.get("ca").asText());
        }
        if (door.hasNonNull("identity")) {
            made.put("ssl.keystore.type", "PEM");
            made.put("ssl.keystore.location", door.get("identity").asText());
        }
        if (!door.hasNonNull("mechanism")) return made;
        var mechanism = door.get("mechanism").asText();
        var secret = "%s=\"%s\" %s=\"%s\"";
        var named = "org.apache.kafka.common.security.";
        made.put("sasl.mechanism", mechanism);
        if (mechanism.equals("OAUTHBEARER")) {
            var options = "";
            var url = door.hasNonNull("token_url") ? door.get("token_url").asText() : "";
            if (url.isEmpty()) {
                var file = Files.createTempFile("token", "");
                Files.writeString(file, door.get("token").asText());
                url = file.toUri().toString();
            } else {
                options = secret.formatted("clientId", door.get("user").asText(), "clientSecret", door.get("password").asText());
            }
            var allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls";
            System.setProperty(allowed, System.getProperty(allowed, url) + "," + url);
            made.put("sasl.oauthbearer.token.endpoint.url", url);
            made.put("sasl.login.callback.handler.class", named + "oauthbearer.OAuthBearerLoginCallbackHandler");
            made.put("sasl.jaas.config", named + "oauthbearer.OAuthBearerLoginModule required " + options + ";");
        } else {
            var module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            var login = secret.formatted("username", door.get("user").asText(), "password", door.get("password").asText());
            made.put("sasl.jaas.config", named + module + " required " + login + ";");
        }
        return made;
    }

    static void through(JsonNode door) throws Exception {
        int patience = door.hasNonNull("patience_s") ? door.get("patience_s").asInt() * 1000 : 60000;
        var value = "by " + door.get("name").asText();
        var sending = ways(door);
        sending.put("max.block.ms", patience);
        try (var producer = new KafkaProducer<>(sending, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(text("topic", ""), value)).get();
        }
        var reading = ways(door);
        reading.put("group.id", door.get("name").asText());
        reading.put("auto.offset.reset", "earliest");
        long until = System.currentTimeMillis() + patience;
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(text("topic", "")));
            while (System.currentTimeMillis() < until)
                for (var one : consumer.poll(Duration.ofMillis(100))) if (one.value().equals(value)) return;
        }
        throw new java.util.concurrent.TimeoutException("nothing came back");
    }

    static void doors() {
        for (var door : asked.get("doors")) {
            var fields = new HashMap<String, Object>(Map.of("door", door.get("name").asText()));
            try {
                through(door);
                emit("in", fields);
            } catch (Exception error) {
                var reasons = new StringJoiner("; ");
                for (Throwable reason = error; reason != null; reason = reason.getCause()) reasons.add(reason.toString());
                fields.put("error", reasons.toString());
                emit("out", fields);
            }
        }
    }

    static void watch() {
        try {
            while (System.in.read() >= 0) {}
        } catch (java.io.IOException closed) {
            // so it is
        }
        stopped.countDown();
    }

    static boolean over() {
        return stopped.getCount() == 0;
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

    static void step(String name, Object seen) {
        var fields = new HashMap<String, Object>();
        fields.put("name", name);
        fields.put("seen", seen);
        emit("step", fields);
    }

    static String text(String name, String otherwise) {
        return asked.hasNonNull(name) ? asked.get(name).asText() : otherwise;
    }

    static int number(String name, int otherwise) {
        return asked.hasNonNull(name) ? asked.get(name).asInt() : otherwise;
    }

    static Properties properties(Object... pairs) {
        var made = new Properties();
        made.put("bootstrap.servers", text("servers", ""));
        for (int place = 0; place < pairs.length; place += 2) made.put(pairs[place], pairs[place + 1]);
        return made;
    }

    static KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(properties(pairs), new StringSerializer(), new StringSerializer());
    }

    static ProducerRecord<String, String> record(int number) {
        return new ProducerRecord<>(text("topic", ""), "key-" + number % KEYS, String.format("%08d", number));
    }

    static void produce() throws Exception {
        int first = number("first", 0), count = number("count", 0);
        try (var producer = producer("compression.type", text("codec", "none"), "linger.ms", "1")) {
            for (int place = first; !over() && (count == 0 || place < first + count); place++) {
                var sent = record(place);
                producer.send(sent, (where, error) -> {
                    if (error == null) emit("acked", Map.of("value", sent.value()));
                    else emit("failed", Map.of("value", sent.value(), "error", error.getClass().getSimpleName()
                        .replace("PolicyViolation", "POLICY_VIOLATION ")));
                });
                if (number("pace_ms", 0) > 0) Thread.sleep(number("pace_ms", 0));
            }
        }
    }

    static class Told implements ConsumerRebalanceListener {
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            emit("assigned", Map.of("partitions", partitions.stream().map(TopicPartition::partition).toList()));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            emit("revoked", Map.of("partitions", partitions.stream().map(TopicPartition::partition).toList()));
        }
    }

    static void consume() {
        var cooperative = text("assignor", "").equals("cooperative");
        var settings = properties(
            "group.id", text("group", ""),
            "auto.offset.reset", "earliest",
            "auto.commit.interval.ms", "200",
            "session.timeout.ms", String.valueOf(number("session_ms", 30000)),
            "heartbeat.interval.ms", "500",
            "metadata.max.age.ms", "1000",
            "isolation.level", text("isolation", "read_uncommitted"),
            "partition.assignment.strategy",
            cooperative ? CooperativeStickyAssignor.class.getName() : RangeAssignor.class.getName());
        if (asked.hasNonNull("instance")) settings.put("group.instance.id", text("instance", ""));
        if (asked.hasNonNull("protocol")) {
            settings.put("group.protocol", text("protocol", ""));
            for (var name : List.of("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")) {
                settings.remove(name); // the broker says these
            }
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(text("topic", "")), new Told());
            while (!over()) {
                for (var one : consumer.poll(Duration.ofMillis(100))) {
                    emit("record", Map.of("partition", one.partition(), "offset", one.offset(),
                        "key", one.key(), "value", one.value()));
                }
            }
        }
    }

    static void transact() throws Exception {
        int per = number("per", 1);
        try (var producer = producer("transactional.id", text("transactional_id", ""))) {
            producer.initTransactions();
            for (int place = 0; place < number("transactions", 0); place++) {
                var records = IntStream.range(place * per, (place + 1) * per).mapToObj(Driver::record).toList();
                producer.beginTransaction();
                for (var one : records) producer.send(one).get();
                if (place % 2 == 1) producer.abortTransaction();
                else producer.commitTransaction();
                emit(place % 2 == 1 ? "aborted" : "committed",
                    Map.of("values", records.stream().map(ProducerRecord::value).toList()));
            }
        }
    }

    static void admin() throws Exception {
        var topic = text("topic", "");
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (var client = Admin.create(properties())) {
            var created = new NewTopic(topic, 2, (short) 3).configs(Map.of("retention.ms", "60000"));
            client.createTopics(List.of(created)).all().get();
            while (partitions(client, topic) != 2) {}
            step("create", 2);
            step("describe", retention(client, resource));
            var change = new AlterConfigOp(new ConfigEntry("retention.ms", "120000"), AlterConfigOp.OpType.SET);
            client.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            String value;
            while (!(value = retention(client, resource)).equals("120000")) {}
            step("alter", value);
            try (var producer = producer()) {
                for (int place = 0; place < 5; place++) {
                    producer.send(new ProducerRecord<>(topic, 1, null, "x")).get();
                }
            }
            var partition = new TopicPartition(topic, 1);
            var deleted = client.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(2)));
            step("delete records", deleted.lowWatermarks().get(partition).get().lowWatermark());
            client.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            while (partitions(client, topic) != 4) {}
            step("grow", 4);
            client.deleteTopics(List.of(topic)).all().get();
            while (client.listTopics().names().get().contains(topic)) {}
            step("delete", null);
        }
    }

    static int partitions(Admin client, String topic) throws Exception {
        return known(() -> client.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
    }

    static String retention(Admin client, ConfigResource resource) throws Exception {
        return known(() -> client.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value());
    }

    /** Asks any broker, until it is one that has heard of the topic. */
    static <T> T known(Callable<T> question) throws Exception {
        while (true) {
            try {
                return question.call();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) throw error;
            }
        }
    }

    static void streams() throws Exception {
        var builder = new StreamsBuilder();
        builder.stream(text("topic", ""), Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .peek((word, count) -> emit("counted", Map.of("word", word, "count", count)))
            .to(text("target", ""), Produced.with(Serdes.String(), Serdes.Long()));
        var settings = properties(
            "application.id", text("application", ""),
            "state.dir", Files.createTempDirectory("streams").toString(),
            "processing.guarantee", "exactly_once_v2",
            "replication.factor", "3",
            "commit.interval.ms", "100",
            "auto.offset.reset", "earliest");
        try (var running = new KafkaStreams(builder.build(), settings)) {
            running.start();
            stopped.await();
        }
    }
}
