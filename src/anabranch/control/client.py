"""A blocking client of a cluster's control plane, for synchronous Python tests.

control = ControlClient("http://127.0.0.1:9190")
control.nodes[2].kill()
control.wait_for(topic="orders", isr="2+")
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.control.control_error import ControlError as ControlError
from anabranch.control.control_error import NotTrusted as NotTrusted
from anabranch.control.node_control import NodeControl, Nodes
from anabranch.protocol.suggestion import suggest_arguments

if TYPE_CHECKING:
    from anabranch.control.capabilities import CapabilitiesRow
    from anabranch.control.clock_client import ClockClient
    from anabranch.control.events import EventRow
    from anabranch.control.fault_client import FaultsClient
    from anabranch.control.journal_client import JournalClient
    from anabranch.control.snapshots_client import SnapshotsClient
    from anabranch.control.state import ClusterStateRow, TopicRow
    from anabranch.control.telemetry_client import TelemetryClient
    from anabranch.control.topic_routes import RecordRow, RecordsRow, StoredRow
    from anabranch.control.tour_client import TourClient
    from anabranch.control.wait_conditions import WaitCondition

PATIENCE_S: Final = 60.0
"""How long a response may take, in addition to the request's own waiting time."""


@suggest_arguments
class ControlClient:
    """Blocking calls to the control plane of `anabranch up --control`.

    Args:
        url: The root URL, as in the ready line: "http://HOST:PORT", or only "HOST:PORT".
        token: The token, as given to `--control-token`.
        ca_file: A PEM file of the CA that "https://HOST:PORT" is verified by; left out, the system's CAs.
    """

    def __init__(self, url: str, token: str = "", ca_file: str = "") -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._token, self._ca_file = token, ca_file
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def of_fork(self, url: str) -> ControlClient:
        """A client of a fork of this cluster, whose control plane has the same token and CA.

        Args:
            url: The `control` of the fork's response.
        """
        return ControlClient(url, self._token, self._ca_file)

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext | None:
        """The TLS context of a URL with https. Raises NotTrusted."""
        if not self._url.startswith("https://"):
            return None
        from anabranch.control.tls import trusting_context

        try:
            return trusting_context(self._ca_file)
        except (ValueError, OSError) as error:
            raise NotTrusted(f"the CA file {self._ca_file} is not read: {error}") from None

    @property
    def nodes(self) -> Mapping[int, NodeControl]:
        """The nodes by id, running or not."""
        return Nodes({row["node"]: NodeControl(self.ask, row["node"]) for row in self.ask("GET", "/v1/nodes")})

    @property
    def clock(self) -> ClockClient:
        """The cluster's clock: `clock.advance("45s")`."""
        from anabranch.control.clock_client import ClockClient

        return ClockClient(self.ask)

    @property
    def faults(self) -> FaultsClient:
        """The fault rules: `faults.add(api="Produce", error="REQUEST_TIMED_OUT", times=2)`."""
        from anabranch.control.fault_client import FaultsClient

        return FaultsClient(self.ask)

    @property
    def journal(self) -> JournalClient:
        """The journal of the last exchanges: `journal.count(api="OffsetCommit", group="billing")`."""
        from anabranch.control.journal_client import JournalClient

        return JournalClient(self.ask)

    @property
    def snapshots(self) -> SnapshotsClient:
        """The snapshots by name: `snapshots.take("seeded")`, `snapshots.restore("seeded")`."""
        from anabranch.control.snapshots_client import SnapshotsClient

        return SnapshotsClient(self.ask)

    @property
    def telemetry(self) -> TelemetryClient:
        """The metrics that clients push: `telemetry.wait_for("shop")`, `telemetry.metrics("shop")`."""
        from anabranch.control.telemetry_client import TelemetryClient

        return TelemetryClient(self.ask)

    @property
    def tour(self) -> TourClient:
        """The guided tour: `for step in tour.play("leader")`."""
        from anabranch.control.tour_client import TourClient

        return TourClient(self.ask)

    def reset(self) -> None:
        """Reset the cluster: same ports, no topics, groups or rules; client connections are closed."""
        self.ask("POST", "/v1/state/reset")

    def reason_against(self, name: str) -> str:
        """Why a request or a kind of rule is not possible on this cluster; empty if it is possible.

        Args:
            name: A request as in OpenAPI, such as "POST /v1/clock", or a kind of rule, such as "node=suspend".

        Raises:
            KeyError: No request or kind of rule has this name.
        """
        found: CapabilitiesRow = self.ask("GET", "/v1/capabilities")
        return {row["name"]: row["reason"] for row in (*found["requests"], *found["rules"])}[name]

    def state(self) -> ClusterStateRow:
        """Get nodes, topics, groups and transactions, all at one moment."""
        found: ClusterStateRow = self.ask("GET", "/v1/state")
        return found

    def create_topic(
        self, topic: str, partitions: int = 1, *, replicas: int = -1, configs: Mapping[str, str] | None = None
    ) -> TopicRow:
        """Create a topic, and wait until every partition has a leader.

        Args:
            topic: The topic's name.
            partitions: The number of partitions.
            replicas: The replication factor; -1: the cluster's default.
            configs: Topic configs by their Kafka names; _ may replace dots.

        Returns:
            The topic as a row.

        Raises:
            ControlError: The cluster refused the request.
        """
        named = {name.replace("_", "."): value for name, value in (configs or {}).items()}
        body = {"topic": topic, "partitions": partitions, "replicas": replicas, "configs": named}
        created: TopicRow = self.ask("POST", "/v1/topics", body)
        return created

    def resize(self, topic: str, partitions: int) -> TopicRow:
        """Change a topic's number of partitions, and wait until the resize is published.

        Args:
            topic: The topic's name.
            partitions: The new number of partitions, larger or smaller.

        Returns:
            The topic as a row.

        Raises:
            ControlError: The cluster refused the request.
        """
        resized: TopicRow = self.ask("POST", f"{_path_of(topic)}/partitions", {"partitions": partitions})
        return resized

    def produce(
        self,
        topic: str,
        value: str,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Sequence[Sequence[str]] = (),
    ) -> StoredRow:
        """Produce a record, as a producer does that keeps keys in order.

        Args:
            topic: The topic.
            value: The record's value.
            key: The record's key, which selects the partition.
            partition: An explicit partition, whatever the key.
            headers: The record's headers, each a name and a value.

        Returns:
            The record's partition and offset.

        Raises:
            ControlError: The cluster refused the request.
        """
        record = {"value": value, "key": key, "partition": partition, "headers": [list(one) for one in headers]}
        stored: list[StoredRow] = self.ask("POST", f"{_path_of(topic)}/records", {"records": [record]})
        return stored[0]

    def records(self, topic: str, partition: int, offset: int | None = None, limit: int = 50) -> list[RecordRow]:
        """Get records of a partition up to its high watermark.

        Args:
            topic: The topic.
            partition: The partition.
            offset: The first offset; if left out, the last records are returned.
            limit: The maximum number of records.

        Returns:
            Each with its `offset`, `key`, `value`, `headers`, `timestamp` and `epoch`.

        Raises:
            ControlError: The partition does not exist, or has no leader.
        """
        words = {"partition": partition, "limit": limit} | ({} if offset is None else {"offset": offset})
        found: RecordsRow = self.ask("GET", f"{_path_of(topic)}/records?{urllib.parse.urlencode(words)}")
        return found["records"]

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        """Elect a leader for a partition, as an administrator does.

        Args:
            topic: The topic.
            partition: The partition.
            unclean: Allow any live replica, at the risk of lost records, if no in-sync replica lives.

        Raises:
            ControlError: No new leader was elected; the message has Kafka's error, such as ELECTION_NOT_NEEDED.
        """
        path = f"/v1/topics/{urllib.parse.quote(topic, safe='')}/partitions/{partition}/elect"
        self.ask("POST", path, {"how": "unclean" if unclean else "preferred"})

    def wait_for(self, *, timeout_s: float = 30.0, **condition: Unpack[WaitCondition]) -> None:
        """Wait until all parts of a condition hold.

        Args:
            timeout_s: The timeout in seconds.
            **condition: Such as topic="orders", partition=0, leader=2, isr="1,2,3" (or "3+"), high_watermark=100;
                group="billing", state="Stable", members=2, lag=0; node=2; controller="any". `GET /v1/openapi.json`
                explains each.

        Raises:
            ControlError: The wait timed out (status 408); the message names the unmet parts.
        """
        words = {name: str(value) for name, value in condition.items()} | {"timeout": str(timeout_s)}
        self.ask("GET", f"/v1/wait?{urllib.parse.urlencode(words)}", patience_s=timeout_s + PATIENCE_S)

    def events(self, after: int = 0) -> list[EventRow]:
        """Get the events after an event number: each with its `number`, `kind` and details."""
        found: list[EventRow] = self.ask("GET", f"/v1/events?after={after}")
        return found

    def follow(self, after: int = 0) -> Iterator[EventRow]:
        """Iterate over the events after an event number, past and future, until the cluster ends."""
        headers = self._headers | {"Accept": "text/event-stream"}
        request = urllib.request.Request(f"{self._url}/v1/events?after={after}", headers=headers)
        with self._open(request, None) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def ask(self, method: str, path: str, body: object = None, *, patience_s: float = PATIENCE_S) -> Any:
        """Send one request; return the decoded JSON, or the bytes of a file.

        Raises:
            ControlError: The control plane refused the request.
            ConnectionError: No response came, or not in time.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers, method=method)
        with self._open(request, patience_s) as answer:
            content = answer.read()
            return json.loads(content) if answer.headers.get_content_type() == "application/json" else content

    @contextlib.contextmanager
    def _open(self, request: urllib.request.Request, patience_s: float | None) -> Iterator[http.client.HTTPResponse]:
        """Send a request; the block reads the response. Raises as `ask`."""
        try:
            with urllib.request.urlopen(request, timeout=patience_s, context=self._tls) as answer:
                yield answer
        except urllib.error.HTTPError as refused:
            with refused:
                content = refused.read()
            raise ControlError(refused.code, _reason_in(content)) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                from anabranch.control.tls import reason_of

                raise NotTrusted(f"cannot connect to {self._url}: {reason_of(error.reason)}") from None
            raise ConnectionError(f"cannot connect to {self._url}: {error.reason}") from None
        except TimeoutError:
            raise ConnectionError(f"no response from {self._url} within {patience_s:g} s") from None
        except (UnicodeError, http.client.InvalidURL) as error:
            raise ConnectionError(f"{self._url} is not a URL with HOST:PORT: {error}") from None
        except http.client.RemoteDisconnected:
            from anabranch.control.tls import PERHAPS_TLS

            raise ConnectionError(f"{self._url}: {PERHAPS_TLS}") from None
        except http.client.IncompleteRead:
            raise ConnectionError(f"the response of {self._url} breaks off: the control plane has ended") from None
        except http.client.HTTPException as error:
            raise ConnectionError(f"no HTTP server is at {self._url}: {error}") from None


def _reason_in(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")


def _path_of(topic: str) -> str:
    return f"/v1/topics/{urllib.parse.quote(topic, safe='')}"
