import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.utils.Utils;

/**
 * Places keys where the lineage of an Anabranch topic wants them, for topics with reshard.legacy.producers=verify.
 *
 * <pre>
 * partitioner.class=LineagePartitioner
 * interceptor.classes=LineagePartitioner
 * </pre>
 *
 * As a partitioner it reads the read-only properties reshard.base and reshard.history of each topic that it is asked
 * about (the producer's user needs DESCRIBE_CONFIGS on it). As an interceptor it hears of records that a broker has
 * refused, and has the lineage read again: with one of the two lines alone it does not follow a resize.
 *
 * <p>What was refused is stored nowhere. If the application sends it again, it is a later record: whoever wants the
 * order of a key sends the next record of it when the one before is stored.
 */
public class LineagePartitioner implements Partitioner, ProducerInterceptor<Object, Object> {
    private static final long TIMEOUT_MS = 10_000;
    private static final Map<List<Object>, Lineages> BY_CLIENT = new ConcurrentHashMap<>();

    private List<Object> client;
    private Lineages lineages;

    @Override
    public void configure(Map<String, ?> settings) {
        client = List.of(settings.get("client.id"), settings.get("bootstrap.servers"));
        lineages = BY_CLIENT.compute(client, (name, known) -> known == null ? new Lineages(settings) : known.shared());
    }

    @Override
    public int partition(
            String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
        Lineage lineage = lineages.of(topic, cluster);
        if (keyBytes == null) {
            return ThreadLocalRandom.current().nextInt(lineage.count);
        }
        return lineage.address(Utils.toPositive(Utils.murmur2(keyBytes)));
    }

    @Override
    public ProducerRecord<Object, Object> onSend(ProducerRecord<Object, Object> sent) {
        return sent;
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception refusal) {
        if (metadata != null && isRefusal(refusal)) {
            lineages.refused(metadata.topic());
        }
    }

    /** The batch, the record whose key lies wrong, and (a plain KafkaException) the others beside that one. */
    public static boolean isRefusal(Exception error) {
        return error instanceof PolicyViolationException
                || error instanceof InvalidRecordException
                || (error != null && error.getClass() == KafkaException.class);
    }

    @Override
    public void close() {
        BY_CLIENT.computeIfPresent(client, (name, known) -> known.released() ? null : known);
    }

    /** How one topic places keys, as it was read at one moment. */
    public static final class Lineage {
        final int base;
        final int count;
        private final int level;

        public Lineage(int base, int count) {
            this.base = base;
            this.count = count;
            int root = count >= base ? base : 1;
            this.level = root * Integer.highestOneBit(count / root);
        }

        /** Linear hashing; below the base as if the first partitions had come of linear hashing over one. */
        public int address(int hash) {
            int partition = (count < base ? hash % base : hash) % (2 * level);
            return partition < count ? partition : partition - level;
        }
    }

    /** What one producer knows of its topics. */
    private static final class Lineages {
        private final Map<String, Lineage> known = new ConcurrentHashMap<>();
        private final Admin admin;
        private int users = 1;

        Lineages(Map<String, ?> producer) {
            Properties settings = new Properties();
            Set<String> understood = AdminClientConfig.configNames();
            producer.forEach((name, value) -> {
                if (understood.contains(name) && value != null && !name.equals("metric.reporters")) {
                    settings.put(name, value);
                }
            });
            settings.put("client.id", producer.get("client.id") + "-lineage");
            admin = Admin.create(settings);
        }

        Lineages shared() {
            users++;
            return this;
        }

        boolean released() {
            users--;
            if (users == 0) {
                admin.close();
            }
            return users == 0;
        }

        void refused(String topic) {
            known.remove(topic);
        }

        Lineage of(String topic, Cluster cluster) {
            Lineage lineage = known.get(topic);
            return lineage != null ? lineage : read(topic, cluster.partitionsForTopic(topic).size());
        }

        private synchronized Lineage read(String topic, int partitions) {
            Lineage meanwhile = known.get(topic);
            if (meanwhile != null) {
                return meanwhile;
            }
            ConfigResource asked = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            try {
                Config properties =
                        admin.describeConfigs(List.of(asked)).all().get(TIMEOUT_MS, TimeUnit.MILLISECONDS).get(asked);
                Lineage lineage = parse(properties, partitions);
                known.put(topic, lineage);
                return lineage;
            } catch (ExecutionException | TimeoutException failure) {
                Throwable why = failure instanceof ExecutionException ? failure.getCause() : failure;
                throw new KafkaException("cannot read the lineage of " + topic + ": " + why.getMessage(), why);
            } catch (InterruptedException stopped) {
                throw new org.apache.kafka.common.errors.InterruptException(stopped);
            }
        }

        private static Lineage parse(Config properties, int partitions) {
            ConfigEntry base = properties.get("reshard.base");
            ConfigEntry history = properties.get("reshard.history");
            if (base == null || history == null) {
                return new Lineage(partitions / Integer.lowestOneBit(partitions), partitions);
            }
            String[] steps = history.value().split(",");
            return new Lineage(Integer.parseInt(base.value()), Integer.parseInt(steps[steps.length - 1].split(":")[1]));
        }
    }
}
