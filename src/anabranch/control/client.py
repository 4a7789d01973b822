"""A cluster's control plane for tests in Python that block, as those of blocking clients do.

control = ControlClient("http://127.0.0.1:9190")
control.nodes[2].kill()
control.wait_for(topic="orders", isr="2+")
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.control.control_error import ControlError as ControlError

if TYPE_CHECKING:
    from anabranch.control.clock_client import ClockClient
    from anabranch.control.fault_client import FaultsClient
    from anabranch.control.journal_client import JournalClient
    from anabranch.control.snapshots_client import SnapshotsClient
    from anabranch.control.telemetry_client import TelemetryClient
    from anabranch.control.tour_client import TourClient
    from anabranch.control.wait_conditions import WaitCondition

PATIENCE_S: Final = 60.0
"""How long an answer may take, beyond what the request itself waits for."""


@dataclass(frozen=True, slots=True)
class NodeControl:
    """One node."""

    _control: ControlClient
    node_id: int

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        rows: list[dict[str, Any]] = self._control.ask("GET", "/v1/nodes")
        return next(bool(row["running"]) for row in rows if row["node"] == self.node_id)

    def kill(self) -> None:
        """End it without a word. ControlError if it does not run; so do the others, where they cannot."""
        self._do("kill")

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """Kill it, and start it again at the end of the block if it is down then."""
        self.kill()
        try:
            yield
        finally:
            if not self.running:
                self.start()

    def stop(self) -> None:
        """Stop it in order: its leaderships move to other nodes first."""
        self._do("stop")

    def start(self) -> None:
        """Start it again, on its old port and with its old data; returns when all nodes know it."""
        self._do("start")

    def freeze(self) -> None:
        """Stop it in the middle of what it does: it keeps its connections, and says nothing on them."""
        self._do("freeze")

    def thaw(self) -> None:
        """Let it go on; its ZooKeeper session may be over by then."""
        self._do("thaw")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """A block in which it is frozen."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def expire_session(self) -> None:
        """End its ZooKeeper session; it runs on, and joins anew."""
        self._do("session/expire")

    def suspend_session(self) -> None:
        """Cut it off from ZooKeeper until `resume_session`."""
        self._do("session/suspend")

    def resume_session(self) -> None:
        """Let it reach ZooKeeper again."""
        self._do("session/resume")

    def _do(self, what: str) -> None:
        self._control.ask("POST", f"/v1/nodes/{self.node_id}/{what}")


class Nodes(dict[int, NodeControl]):
    """The nodes of a cluster by their ids."""

    def __missing__(self, node_id: int) -> NodeControl:
        raise KeyError(f"no node {node_id!r}; there are {', '.join(map(str, self))}")


class ControlClient:
    """Blocking calls to the control plane of `anabranch up --control`.

    Args:
        url: Its root, as the ready line names it: "http://HOST:PORT", or only "HOST:PORT".
        token: What `--control-token` asks for.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    @property
    def nodes(self) -> Mapping[int, NodeControl]:
        """The nodes by their ids, running or not."""
        return Nodes({row["node"]: NodeControl(self, row["node"]) for row in self.ask("GET", "/v1/nodes")})

    @property
    def clock(self) -> ClockClient:
        """Its time: `clock.advance("45s")`."""
        from anabranch.control.clock_client import ClockClient

        return ClockClient(self.ask)

    @property
    def faults(self) -> FaultsClient:
        """Its rules: `faults.add(api="Produce", error="REQUEST_TIMED_OUT", times=2)`."""
        from anabranch.control.fault_client import FaultsClient

        return FaultsClient(self.ask)

    @property
    def journal(self) -> JournalClient:
        """Its last exchanges: `journal.count(api="OffsetCommit", group="billing")`."""
        from anabranch.control.journal_client import JournalClient

        return JournalClient(self.ask)

    @property
    def snapshots(self) -> SnapshotsClient:
        """Its states that are kept by name: `snapshots.take("seeded")`, `snapshots.restore("seeded")`."""
        from anabranch.control.snapshots_client import SnapshotsClient

        return SnapshotsClient(self.ask)

    @property
    def telemetry(self) -> TelemetryClient:
        """What clients push of their own metrics: `telemetry.wait_for("shop")`, `telemetry.metrics("shop")`."""
        from anabranch.control.telemetry_client import TelemetryClient

        return TelemetryClient(self.ask)

    @property
    def tour(self) -> TourClient:
        """Its guided tour: `for step in tour.play("leader")`."""
        from anabranch.control.tour_client import TourClient

        return TourClient(self.ask)

    def reset(self) -> None:
        """Have it be as after its start: same ports, no topics, groups or rules; clients' connections are closed."""
        self.ask("POST", "/v1/state/reset")

    def state(self) -> dict[str, Any]:
        """Nodes, topics, groups and transactions at one moment."""
        found: dict[str, Any] = self.ask("GET", "/v1/state")
        return found

    def create_topic(
        self, topic: str, partitions: int = 1, *, replicas: int = -1, configs: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Create a topic, and return when every partition of it has a leader.

        Args:
            topic: Its name.
            partitions: How many it begins with.
            replicas: How many brokers hold each; -1: the cluster's default.
            configs: Settings by their Kafka names, in which _ may stand for dots.

        Returns:
            The topic as the control plane tells of it.

        Raises:
            ControlError: The cluster refused it.
        """
        named = {name.replace("_", "."): value for name, value in (configs or {}).items()}
        body = {"topic": topic, "partitions": partitions, "replicas": replicas, "configs": named}
        created: dict[str, Any] = self.ask("POST", "/v1/topics", body)
        return created

    def resize(self, topic: str, partitions: int) -> dict[str, Any]:
        """Give a topic another count of partitions, more or fewer, and return when that is published.

        Args:
            topic: Its name.
            partitions: How many there are to be.

        Returns:
            The topic as the control plane tells of it.

        Raises:
            ControlError: The cluster refused it.
        """
        resized: dict[str, Any] = self.ask("POST", f"{_path_of(topic)}/partitions", {"partitions": partitions})
        return resized

    def produce(
        self, topic: str, value: str, *, key: str | None = None, partition: int | None = None
    ) -> dict[str, int]:
        """Store a record, as a producer does that keeps keys in order.

        Args:
            topic: The topic.
            value: The record's value.
            key: Its key, which says where it belongs.
            partition: Or where it goes, whatever its key.

        Returns:
            Its partition and offset.

        Raises:
            ControlError: The cluster refused it.
        """
        record = {"value": value, "key": key, "partition": partition}
        stored: list[dict[str, int]] = self.ask("POST", f"{_path_of(topic)}/records", {"records": [record]})
        return stored[0]

    def records(self, topic: str, partition: int, offset: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """Records of a partition up to its high watermark.

        Args:
            topic: The topic.
            partition: The partition.
            offset: The first one; the last ones of all if left out.
            limit: How many.

        Returns:
            Each with its `offset`, `key`, `value`, `headers`, `timestamp` and `epoch`.

        Raises:
            ControlError: There is no such partition, or nobody leads it.
        """
        words = {"partition": partition, "limit": limit} | ({} if offset is None else {"offset": offset})
        found: dict[str, Any] = self.ask("GET", f"{_path_of(topic)}/records?{urllib.parse.urlencode(words)}")
        rows: list[dict[str, Any]] = found["records"]
        return rows

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        """Have a leader elected for a partition, as an administrator does.

        Args:
            topic: Its topic.
            partition: Its number.
            unclean: Any replica that lives, although records may be lost by that, where none that is in sync lives.

        Raises:
            ControlError: There is no new leader; the message has Kafka's code, such as ELECTION_NOT_NEEDED.
        """
        path = f"/v1/topics/{urllib.parse.quote(topic, safe='')}/partitions/{partition}/elect"
        self.ask("POST", path, {"how": "unclean" if unclean else "preferred"})

    def wait_for(self, *, timeout_s: float = 30.0, **condition: Unpack[WaitCondition]) -> None:
        """Wait until all of a condition holds.

        Args:
            timeout_s: How long to wait.
            **condition: Such as topic="orders", partition=0, leader=2, isr="1,2,3" (or "3+"), high_watermark=100;
                group="billing", state="Stable", members=2, lag=0; node=2; controller="any". `GET /v1/openapi.json`
                tells what each means.

        Raises:
            ControlError: The time was up (status 408); the message says what was missing.
        """
        words = {name: str(value) for name, value in condition.items()} | {"timeout": str(timeout_s)}
        self.ask("GET", f"/v1/wait?{urllib.parse.urlencode(words)}", patience_s=timeout_s + PATIENCE_S)

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """What has happened after an event's number: each with its `number`, `kind` and details."""
        found: list[dict[str, Any]] = self.ask("GET", f"/v1/events?after={after}")
        return found

    def follow(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """What has happened after an event's number, and what happens, until the cluster ends."""
        headers = self._headers | {"Accept": "text/event-stream"}
        request = urllib.request.Request(f"{self._url}/v1/events?after={after}", headers=headers)
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def ask(self, method: str, path: str, body: object = None, *, patience_s: float = PATIENCE_S) -> Any:
        """Send one request; returns what its JSON says, or a file's bytes.

        Raises:
            ControlError: It was refused.
            ConnectionError: Nobody answers, or not in time.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=patience_s) as answer:
                content = answer.read()
                return json.loads(content) if answer.headers.get_content_type() == "application/json" else content
        except urllib.error.HTTPError as refused:
            with refused:
                content = refused.read()
            try:
                reason = str(json.loads(content)["error"])
            except (ValueError, KeyError, TypeError):
                reason = content.decode(errors="replace")
            raise ControlError(refused.code, reason) from None
        except urllib.error.URLError as error:
            raise ConnectionError(f"nobody answers at {self._url}: {error.reason}") from None
        except TimeoutError:
            raise ConnectionError(f"no answer from {self._url} within {patience_s:g} s") from None


def _path_of(topic: str) -> str:
    return f"/v1/topics/{urllib.parse.quote(topic, safe='')}"
