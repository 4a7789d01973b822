// Kafka's own assignors of the group coordinator, asked from outside: a group per line on stdin, its targets on stdout.
//
//   java -cp 'jars/*' AssignorOracle.java
//
// A line: ASSIGNOR even|uneven TOPIC=COUNT,... MEMBER|INSTANCE|TOPIC,...|TOPIC:0.1.2;... ...      ("-": none)

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

public class AssignorOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
    }

    static Uuid id(String topic) {
        return new Uuid(1, topic.charAt(0));
    }

    static String answer(String[] words) throws Exception {
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String topic : parts(words[2], ",")) {
            counts.put(id(topic), Integer.parseInt(topic.split("=")[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (int place = 3; place < words.length; place++) {
            String[] columns = words[place].split("\\|");
            Set<Uuid> topics = new LinkedHashSet<>();
            for (String topic : parts(columns[2], ",")) topics.add(id(topic));
            Map<Uuid, Set<Integer>> target = new LinkedHashMap<>();
            for (String topic : parts(columns[3], ";")) {
                Set<Integer> partitions = new TreeSet<>();
                for (String index : topic.substring(2).split("\\.")) partitions.add(Integer.parseInt(index));
                target.put(id(topic), Collections.unmodifiableSet(partitions));
                for (int index : partitions) owners.computeIfAbsent(id(topic), one -> new HashMap<>()).put(index, columns[0]);
            }
            Optional<String> instance = columns[1].equals("-") ? Optional.empty() : Optional.of(columns[1]);
            members.put(columns[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(Collections.unmodifiableMap(target))));
        }
        SubscriptionType type = words[1].equals("even") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        PartitionAssignor assignor = words[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        GroupAssignment given = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        });
        StringBuilder told = new StringBuilder();
        for (String member : members.keySet()) {
            StringJoiner targets = new StringJoiner(";");
            MemberAssignment target = given.members().get(member);
            if (target != null) {
                for (Uuid topic : new TreeSet<>(target.partitions().keySet())) {
                    StringJoiner indexes = new StringJoiner(".");
                    for (int index : new TreeSet<>(target.partitions().get(topic))) indexes.add("" + index);
                    targets.add((char) topic.getLeastSignificantBits() + ":" + indexes);
                }
            }
            told.append(told.isEmpty() ? "" : " ").append(member).append("|").append(targets.length() == 0 ? "-" : targets);
        }
        return told.toString();
    }

    static List<String> parts(String text, String separator) {
        return text.equals("-") ? List.of() : List.of(text.split(separator));
    }
}
