package anabranch;

import java.io.IOException;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.utility.DockerImageName;

/**
 * Brokers in one container, ready when start() returns.
 *
 * <p>Clients connect to the addresses that brokers advertise, so a broker must know its published port. The published
 * ports are therefore chosen before the container starts: adjacent ones, the last for the control plane.
 */
public final class AnabranchContainer extends GenericContainer<AnabranchContainer> {
  private static final int BROKER_PORT = 9092;
  private static final int CONTROL_PORT = 9190;
  private static final int FIRST_PORT = 20_000; // below the ports that systems use for outgoing connections
  private static final int LAST_PORT = 32_000;
  private static final int TRIES = 100;

  private final String token = UUID.randomUUID().toString();
  private final List<String> properties = new ArrayList<>();
  private int brokers = 1;
  private int first;

  public AnabranchContainer() {
    this(DockerImageName.parse("anabranch"));
  }

  public AnabranchContainer(DockerImageName image) {
    super(image);
    withEnv("ANABRANCH_CONTROL_TOKEN", token);
    waitingFor(Wait.forLogMessage("ready bootstrap=.*\\n", 1).withStartupTimeout(Duration.ofMinutes(1)));
  }

  public AnabranchContainer withBrokers(int brokers) {
    this.brokers = brokers;
    return this;
  }

  /** Set a broker's property by its Kafka name. */
  public AnabranchContainer withProperty(String name, String value) {
    properties.addAll(List.of("--config", name + "=" + value));
    return this;
  }

  @Override
  protected void configure() {
    first = adjacentFreePorts(brokers + 1);
    for (int broker = 0; broker < brokers; broker++) {
      addFixedExposedPort(first + broker, BROKER_PORT + broker);
    }
    addFixedExposedPort(first + brokers, CONTROL_PORT);
    var words = new ArrayList<>(List.of("up", "--brokers", "" + brokers));
    words.addAll(List.of("--host", "0.0.0.0", "--port", "" + BROKER_PORT, "--advertise", getHost() + ":" + first));
    words.addAll(List.of("--control", "0.0.0.0:" + CONTROL_PORT));
    words.addAll(properties);
    setCommand(words.toArray(String[]::new));
  }

  /** The brokers' addresses, for bootstrap.servers of any Kafka client. */
  public String bootstrapServers() {
    return IntStream.range(first, first + brokers)
        .mapToObj(port -> getHost() + ":" + port)
        .collect(Collectors.joining(","));
  }

  /** The address of the control plane, for requests with the token. */
  public String controlUrl() {
    return "http://" + getHost() + ":" + (first + brokers);
  }

  /** The value of each request's header Authorization. */
  public String authorization() {
    return "Bearer " + token;
  }

  private static int adjacentFreePorts(int count) {
    for (int attempt = 0; attempt < TRIES; attempt++) {
      int first = ThreadLocalRandom.current().nextInt(FIRST_PORT, LAST_PORT - count);
      if (IntStream.range(first, first + count).allMatch(AnabranchContainer::isFree)) {
        return first;
      }
    }
    throw new IllegalStateException("no " + count + " adjacent free ports");
  }

  private static boolean isFree(int port) {
    try (var socket = new ServerSocket(port)) {
      return true;
    } catch (IOException taken) {
      return false;
    }
  }
}
