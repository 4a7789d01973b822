package shop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;

/** The control plane of `anabranch up --control`: each call is one request over HTTP. */
final class Control {
  private final HttpClient client = HttpClient.newHttpClient();
  private final String url = System.getenv().getOrDefault("ANABRANCH_CONTROL", "http://127.0.0.1:9190");

  JsonNode ask(String method, String path, Map<String, ?> body) {
    try {
      var content = HttpRequest.BodyPublishers.ofByteArray(Shop.JSON.writeValueAsBytes(body));
      var request = HttpRequest.newBuilder(URI.create(url + path)).method(method, content).build();
      var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
      if (answer.statusCode() != 200) {
        throw new IllegalStateException(method + " " + path + ": " + answer.body());
      }
      return Shop.JSON.readTree(answer.body());
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException(url, error);
    }
  }

  JsonNode get(String path) {
    return ask("GET", path, Map.of());
  }

  void topic(String topic, int partitions, int replicas) {
    ask("POST", "/v1/topics", Map.of("topic", topic, "partitions", partitions, "replicas", replicas));
  }

  void node(int node, String what) {
    ask("POST", "/v1/nodes/" + node + "/" + what, Map.of());
  }

  /** Wait until a condition holds, such as "topic=orders&isr=3%2B". */
  void wait(String condition) {
    get("/v1/wait?" + condition);
  }

  /** Why this cluster cannot serve a request, such as "POST /v1/clock"; empty if it can. */
  String reason(String request) {
    for (var one : get("/v1/capabilities").path("requests")) {
      if (one.path("name").asText().equals(request)) {
        return one.path("reason").asText();
      }
    }
    return "";
  }

  void advance(String span) {
    ask("POST", "/v1/clock", Map.of("advance", span));
  }

  /** A rule of faults: see docs/faults.md for its fields. */
  Rule rule(Map<String, ?> said) {
    return new Rule(ask("POST", "/v1/faults", said).path("name").asText());
  }

  /** A rule that the cluster follows. */
  final class Rule {
    private final String path;

    private Rule(String name) {
      path = "/v1/faults/" + name;
    }

    int hits() {
      return get(path).path("hits").asInt();
    }

    void waitHit() {
      get(path + "/wait");
    }

    void release() {
      ask("POST", path + "/release", Map.of());
    }
  }
}
