// Kafka Streams in a group whose broker deals the tasks, and what Admin says of the group.
//
//   java -cp 'jars/*' StreamsMembers.java count SERVERS APPLICATION STATE_DIR INPUT OUTPUT      until it is sent a line
//   java -cp 'jars/*' StreamsMembers.java describe SERVERS APPLICATION
//   java -cp 'jars/*' StreamsMembers.java delete SERVERS APPLICATION
//
// An instance counts words in a store, by way of a repartition topic. It writes a line whenever its state, its active
// tasks, its copies or the instances that it knows of change: "RUNNING 0_0,1_0 - 2".

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment.TaskIds;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class StreamsMembers {
    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "count": count(words[1], words[2], words[3], words[4], words[5]); break;
            case "describe": describe(words[1], words[2]); break;
            default: delete(words[1], words[2]);
        }
    }

    static void count(String servers, String application, String directory, String input, String output) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        properties.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        properties.put(StreamsConfig.APPLICATION_SERVER_CONFIG, "java.example:" + (1 + ProcessHandle.current().pid() % 60000));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(input)
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(number -> Long.toString(number))
            .to(output, Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.start();
        String said = "";
        while (System.in.available() == 0) {
            TreeSet<String> active = new TreeSet<>(), copies = new TreeSet<>();
            streams.metadataForLocalThreads().forEach(thread -> {
                add(active, thread.activeTasks());
                add(copies, thread.standbyTasks());
            });
            String line = streams.state() + " " + text(active) + " " + text(copies) + " "
                + streams.metadataForAllStreamsClients().size();
            if (!line.equals(said)) {
                System.out.println(line);
                said = line;
            }
            Thread.sleep(50);
        }
        streams.close();
        System.out.println("closed");
    }

    static void add(Collection<String> names, Collection<TaskMetadata> tasks) {
        tasks.forEach(task -> names.add(task.taskId().toString()));
    }

    static String text(Collection<String> names) {
        return names.isEmpty() ? "-" : String.join(",", names);
    }

    static void describe(String servers, String application) throws Exception {
        try (Admin admin = admin(servers)) {
            admin.listGroups(ListGroupsOptions.forStreamsGroups()).all().get().forEach(one -> System.out.println("listed "
                + one.groupId() + " " + one.type().get() + " " + one.protocol() + " " + one.groupState().get()));
            StreamsGroupDescription group = admin.describeStreamsGroups(List.of(application)).all().get().get(application);
            System.out.println("group " + group.groupState() + " topology " + group.topologyEpoch());
            group.subtopologies().forEach(one -> System.out.println("subtopology " + one.subtopologyId() + " reads "
                + one.sourceTopics() + one.repartitionSourceTopics().keySet() + " writes " + one.repartitionSinkTopics()
                + " keeps " + one.stateChangelogTopics().keySet()));
            group.members().forEach(one -> System.out.println("member " + one.userEndpoint().isPresent() + " "
                + tasks(one.assignment().activeTasks()) + " " + tasks(one.assignment().standbyTasks())));
            System.out.println("offsets " + admin.listStreamsGroupOffsets(
                Map.of(application, new ListStreamsGroupOffsetsSpec())).all().get().get(application).size());
        }
    }

    static String tasks(Collection<TaskIds> rows) {
        TreeSet<String> names = new TreeSet<>();
        rows.forEach(row -> row.partitions().forEach(index -> names.add(row.subtopologyId() + "_" + index)));
        return text(names);
    }

    static void delete(String servers, String application) throws Exception {
        try (Admin admin = admin(servers)) {
            admin.deleteStreamsGroups(List.of(application)).all().get();
            System.out.println("left " + admin.listGroups().all().get().size());
        } catch (ExecutionException refused) {
            System.out.println("refused " + refused.getCause().getClass().getSimpleName());
        }
    }

    static Admin admin(String servers) {
        return Admin.create(Map.of("bootstrap.servers", servers));
    }
}
