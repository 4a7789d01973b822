// Kafka Streams' own classes, asked from outside: how they write messages, and how they decide.
//
//   java -cp 'jars/*' StreamsOracle.java golden    one JSON line per message and version: its values, its bytes
//   java -cp 'jars/*' StreamsOracle.java decide    a question per line on stdin, an answer per line on stdout

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.StreamsPartitionAssignor;
import org.apache.kafka.streams.processor.internals.assignment.*;
import org.apache.kafka.streams.state.HostInfo;

public class StreamsOracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int LATEST = 11;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("golden")) {
            for (int version = 1; version <= LATEST; version++) {
                System.out.println(subscription(version));
                System.out.println(assignment(version));
            }
            return;
        }
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            JsonNode question = JSON.readTree(line);
            System.out.println(question.has("rounds") ? shareOut(question) : place(question));
        }
    }

    // -- messages ------------------------------------------------------------------------------------------------

    static ObjectNode subscription(int version) {
        Map<TaskId, Long> sums = new LinkedHashMap<>();
        sums.put(new TaskId(0, 1), -2L);
        sums.put(new TaskId(0, 2), version < 7 ? -3L : 123456789012L);
        sums.put(new TaskId(1, 3), version < 7 ? -3L : 0L);
        if (version >= 11) {
            sums = new LinkedHashMap<>();
            sums.put(new TaskId(0, 1, "zürich"), -2L);
            sums.put(new TaskId(7, 4, "zürich"), 5L);
        }
        Map<String, String> tags = new LinkedHashMap<>();
        if (version >= 11) {
            tags.put("zone", "a");
            tags.put("rack", "ü-1");
        }
        int supported = version < 3 ? -1 : LATEST;
        UUID process = new UUID(0xfedcba9876543210L, 0x0123456789abcdefL);
        String endPoint = version < 2 || version == 9 ? null : "host-a.example:8080";
        SubscriptionInfo info = new SubscriptionInfo(
            version, supported, new ProcessId(process), endPoint, sums, (byte) -7, 4, tags);

        ObjectNode values = JSON.createObjectNode();
        values.put("version", version).put("latest_supported_version", supported);
        values.put("process_id", process.toString().replace("-", ""));
        values.put("user_end_point", endPoint == null ? "" : endPoint);
        ObjectNode written = values.putObject("task_offset_sums");
        sums.forEach((task, sum) -> written.put(task.toString(), sum));
        values.put("unique_field", version < 8 ? 0 : -7).put("error_code", version < 9 ? 0 : 4);
        ObjectNode writtenTags = values.putObject("client_tags");
        tags.forEach(writtenTags::put);
        return golden("subscription", values, info.encode());
    }

    static ObjectNode assignment(int version) {
        String name = version < 11 ? null : "名前";
        List<TaskId> active = List.of(new TaskId(0, 0, name), new TaskId(0, 1, name), new TaskId(0, 0, name));
        Map<TaskId, Set<TopicPartition>> standby = new LinkedHashMap<>();
        standby.put(new TaskId(1, 2, name), set(new TopicPartition("orders", 2), new TopicPartition("refunds", 2)));
        standby.put(new TaskId(1, 0, name), set());
        Map<HostInfo, Set<TopicPartition>> hosts = new LinkedHashMap<>();
        Map<HostInfo, Set<TopicPartition>> standbyHosts = new LinkedHashMap<>();
        if (version >= 2) {
            hosts.put(new HostInfo("host-a", 8080), set(new TopicPartition("orders", 0), new TopicPartition("orders", 1)));
            hosts.put(new HostInfo("host-b", 65535), set());
        }
        if (version >= 6) {
            standbyHosts.put(new HostInfo("host-a", 8080), set());
            standbyHosts.put(new HostInfo("host-b", 65535), set(new TopicPartition("refunds", 2)));
        }
        int supported = version < 3 ? -1 : LATEST;
        long nextMs = version < 7 ? Long.MAX_VALUE : 1700000000123L;
        AssignmentInfo info = new AssignmentInfo(
            version, supported, active, standby, hosts, standbyHosts, version < 4 ? 0 : 3);
        info.setNextRebalanceTime(nextMs);

        ObjectNode values = JSON.createObjectNode();
        values.put("version", version).put("commonly_supported_version", supported);
        active.forEach(task -> values.withArray("active_tasks").add(task.toString()));
        ObjectNode copies = values.putObject("standby_tasks");
        values.set("partitions_by_host", hosts(hosts));
        values.set("standby_partitions_by_host", hosts(standbyHosts));
        values.put("error_code", version < 4 ? 0 : 3).put("next_rebalance_ms", nextMs);
        standby.forEach((task, partitions) -> {
            copies.putArray(task.toString());
            partitions.forEach(one -> copies.withArray(task.toString()).add(one.toString()));
        });
        return golden("assignment", values, info.encode());
    }

    static ObjectNode hosts(Map<HostInfo, Set<TopicPartition>> hosts) {
        ObjectNode written = JSON.createObjectNode();
        hosts.forEach((host, partitions) -> {
            written.putArray(host.host() + ":" + host.port());
            partitions.forEach(one -> written.withArray(host.host() + ":" + host.port()).add(one.toString()));
        });
        return written;
    }

    static Set<TopicPartition> set(TopicPartition... partitions) {
        return new LinkedHashSet<>(List.of(partitions));
    }

    static ObjectNode golden(String message, ObjectNode values, ByteBuffer wire) {
        wire.rewind();
        StringBuilder hex = new StringBuilder();
        while (wire.hasRemaining()) {
            hex.append(String.format("%02x", wire.get()));
        }
        ObjectNode line = JSON.createObjectNode();
        line.put("message", message).set("values", values);
        return line.put("wire", hex.toString());
    }

    // -- decisions -----------------------------------------------------------------------------------------------

    static ObjectNode place(JsonNode question) {
        JsonNode config = question.get("config");
        List<String> tags = new ArrayList<>();
        config.get("tags").forEach(tag -> tags.add(tag.asText()));
        AssignmentConfigs configs = new AssignmentConfigs(
            config.get("lag").asLong(), config.get("warmups").asInt(), config.get("standbys").asInt(), 600000L, tags,
            OptionalInt.empty(), OptionalInt.empty(), question.has("racks") ? "min_traffic" : "none");
        Map<ProcessId, ClientState> clients = new TreeMap<>();
        for (JsonNode client : question.get("clients")) {
            ProcessId id = new ProcessId(UUID.fromString(client.get("id").asText()));
            Map<TaskId, Long> lags = new TreeMap<>();
            client.get("lags").fields().forEachRemaining(lag -> lags.put(TaskId.parse(lag.getKey()), lag.getValue().asLong()));
            Map<String, String> clientTags = new TreeMap<>();
            client.get("tags").fields().forEachRemaining(tag -> clientTags.put(tag.getKey(), tag.getValue().asText()));
            clients.put(id, new ClientState(
                tasks(client.get("active")), tasks(client.get("standby")), lags, clientTags,
                client.get("capacity").asInt(), id));
        }
        LegacyTaskAssignor assignor = switch (question.get("assignor").asText()) {
            case "sticky" -> new LegacyStickyTaskAssignor();
            case "as_before" -> new FallbackPriorTaskAssignor();
            default -> new HighAvailabilityTaskAssignor();
        };
        boolean probing = assignor.assign(
            clients, tasks(question.get("every")), tasks(question.get("stateful")), racks(question, configs), configs);
        ObjectNode answer = JSON.createObjectNode().put("probing", probing);
        ObjectNode active = answer.putObject("active");
        ObjectNode standby = answer.putObject("standby");
        clients.forEach((id, state) -> {
            active.set(id.toString(), names(state.activeTasks()));
            standby.set(id.toString(), names(state.standbyTasks()));
        });
        return answer;
    }

    /** Where replicas and clients are; each task has a topic of its own for each of its partitions. */
    static RackAwareTaskAssignor racks(JsonNode question, AssignmentConfigs configs) {
        Map<TaskId, Set<TopicPartition>> partitions = new TreeMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        Map<String, Node> nodes = new TreeMap<>();
        Map<ProcessId, Map<String, Optional<String>>> clients = new TreeMap<>();
        if (question.has("racks")) {
            question.get("racks").fields().forEachRemaining(row -> {
                Set<TopicPartition> ofTask = partitions.computeIfAbsent(TaskId.parse(row.getKey()), task -> new LinkedHashSet<>());
                for (JsonNode replicas : row.getValue()) {
                    TopicPartition one = new TopicPartition(row.getKey() + "-" + ofTask.size(), 0);
                    List<Node> on = new ArrayList<>();
                    replicas.forEach(rack -> on.add(nodes.computeIfAbsent(
                        rack.asText(), name -> new Node(nodes.size(), "host", 1, name))));
                    Node[] all = on.toArray(new Node[0]);
                    infos.add(new PartitionInfo(one.topic(), one.partition(), all[0], all, all));
                    ofTask.add(one);
                }
            });
            question.get("clients").forEach(client -> clients.put(
                new ProcessId(UUID.fromString(client.get("id").asText())),
                Map.of("thread", Optional.of(client.get("rack").asText()))));
        }
        Cluster cluster = new Cluster("", nodes.values(), infos, Set.of(), Set.of());
        return new RackAwareTaskAssignor(cluster, partitions, Map.of(), Map.of(), clients, null, configs, Time.SYSTEM);
    }

    static ObjectNode shareOut(JsonNode question) throws Exception {
        ClientState state = new ClientState(new ProcessId(new UUID(0, 1)), Map.of());
        SortedSet<String> members = new TreeSet<>();
        question.get("members").fields().forEachRemaining(member -> {
            Map<TaskId, Long> sums = new TreeMap<>();
            member.getValue().fields().forEachRemaining(sum -> sums.put(TaskId.parse(sum.getKey()), sum.getValue().asLong()));
            state.addPreviousTasksAndOffsetSums(member.getKey(), sums);
            members.add(member.getKey());
        });
        Map<TaskId, Long> ends = new TreeMap<>();
        question.get("ends").fields().forEachRemaining(end -> ends.put(TaskId.parse(end.getKey()), end.getValue().asLong()));
        state.computeTaskLags(new ProcessId(new UUID(0, 1)), ends);
        Method share = StreamsPartitionAssignor.class.getDeclaredMethod(
            "assignTasksToThreads", Collection.class, boolean.class, SortedSet.class, ClientState.class, Map.class);
        share.setAccessible(true);
        Map<String, Integer> load = new HashMap<>();
        ObjectNode answer = JSON.createObjectNode();
        for (JsonNode round : question.get("rounds")) {
            @SuppressWarnings("unchecked")
            Map<String, List<TaskId>> shares = (Map<String, List<TaskId>>) share.invoke(
                null, tasks(round.get("tasks")), round.get("stateful").asBoolean(), members, state, load);
            ObjectNode given = answer.withArray("rounds").addObject();
            shares.forEach((member, got) -> given.set(member, names(got)));
        }
        return answer;
    }

    static SortedSet<TaskId> tasks(JsonNode names) {
        SortedSet<TaskId> tasks = new TreeSet<>();
        names.forEach(name -> tasks.add(TaskId.parse(name.asText())));
        return tasks;
    }

    static JsonNode names(Collection<TaskId> tasks) {
        List<String> names = new ArrayList<>();
        new TreeSet<>(tasks).forEach(task -> names.add(task.toString()));
        return JSON.valueToTree(names);
    }
}
