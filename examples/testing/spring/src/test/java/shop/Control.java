package shop;

import com.jayway.jsonpath.JsonPath;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** The control plane of `anabranch up --control`: each call is one request over HTTP. */
final class Control {
  private static final HttpClient CLIENT = HttpClient.newHttpClient();
  private static final String URL = System.getenv().getOrDefault("ANABRANCH_CONTROL", "http://127.0.0.1:9190");

  private Control() {}

  static String ask(String method, String path, String body) {
    try {
      var content = HttpRequest.BodyPublishers.ofString(body);
      var request = HttpRequest.newBuilder(URI.create(URL + path)).method(method, content).build();
      var answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
      if (answer.statusCode() != 200) {
        throw new IllegalStateException(method + " " + path + ": " + answer.body());
      }
      return answer.body();
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException(URL, error);
    }
  }

  static String bootstrapServers() {
    List<Map<String, Object>> nodes = JsonPath.read(ask("GET", "/v1/nodes", ""), "$");
    return nodes.stream().map(node -> node.get("host") + ":" + node.get("port")).collect(Collectors.joining(","));
  }

  /** Add a rule of faults, whose fields docs/faults.md lists, and return the rule's path. */
  static String rule(String json) {
    return "/v1/faults/" + JsonPath.read(ask("POST", "/v1/faults", json), "$.name");
  }

  static int hits(String rule) {
    return JsonPath.read(ask("GET", rule, ""), "$.hits");
  }
}
