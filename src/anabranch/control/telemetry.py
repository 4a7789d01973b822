"""The metrics that clients push to brokers (KIP-714), for queries by tests.

Brokers know the subscriptions of connected clients. This module keeps each client's last push, also after the client is
gone, because many clients push a last time when they close. It keeps at most `CLIENTS_MAX` clients and `BYTES_MAX`
bytes, and evicts the clients with the oldest push. A client's first and last pushes are events.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypedDict

from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.compression import Compression

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node
    from anabranch.broker.telemetry.instances import Instance, Push
    from anabranch.broker.telemetry.subscriptions import Client
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.control.events import Events

CLIENTS_MAX: Final = 1000
BYTES_MAX: Final = 64 << 20
"""At least the maximum size of one push."""


class PushRow(TypedDict):
    """The last push of a client."""

    at: Annotated[float, "the clock of events, in seconds"]
    bytes: Annotated[int, "the size after decompression"]
    compressed_bytes: int
    compression: str


class TelemetryRow(TypedDict):
    """A client that has asked for its subscription, or pushed metrics (KIP-714)."""

    client: Annotated[str, "its client id"]
    instance: Annotated[str, "its client instance id"]
    software: str
    software_version: str
    host: str
    port: int
    node: Annotated[int, "the broker that it asked last"]
    wanted: Annotated[list[str] | None, "the metrics of its subscription; null if it is gone"]
    interval_ms: Annotated[int | None, "the interval of its subscription; null if it is gone"]
    refused: Annotated[str, "the error code of its last push; empty if it was accepted"]
    pushes: Annotated[int, "the number of pushes"]
    terminated: Annotated[bool, "whether it closed, and pushed a last time"]
    last: Annotated[PushRow | None, "null before the first push"]


@dataclass(frozen=True, slots=True)
class PushedMetrics:
    """The last push of a client."""

    client: Client
    node_id: int
    pushes: int
    """The number of pushes, including this one."""
    at_s: float
    compression: Compression
    compressed_bytes: int
    terminating: bool
    metrics: bytes
    """The bytes of an OTLP MetricsData."""

    def row(self) -> PushRow:
        """The push as a JSON row."""
        return {
            "at": round(self.at_s, 6),
            "bytes": len(self.metrics),
            "compressed_bytes": self.compressed_bytes,
            "compression": self.compression.name.lower(),
        }


class ClientTelemetry:
    """The clients of one cluster that have pushed, or asked for their subscription."""

    def __init__(
        self, cluster: ClusterView, events: Events, *, clients_max: int = CLIENTS_MAX, bytes_max: int = BYTES_MAX
    ) -> None:
        self._cluster = cluster
        self._events = events
        self._clients_max = clients_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._pushed: OrderedDict[str, PushedMetrics] = OrderedDict()
        """Client instance id -> last push, the oldest push first."""
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_taken(self) -> bool:
        """Whether a broker accepts client metrics."""
        return any(node.services.takes_telemetry for node in self._cluster.nodes.values())

    def watch(self, node: Node) -> None:
        """Record the pushes to a node from now on."""
        if node.services.takes_telemetry:
            node.services.telemetry.receivers.append(functools.partial(self._take, node.settings.node_id))

    def forget(self) -> None:
        """Forget all clients: the cluster was reset."""
        self._pushed.clear()
        self._bytes = 0

    def rows(self, client: str | None = None) -> list[TelemetryRow]:
        """The clients that have asked or pushed, optionally only those with this client id or client instance id."""
        known_instances = dict(self._instances())
        known = {one.client_instance_id: one for one in self._clients(known_instances)}
        chosen = [one for one in known.values() if client in (None, one.client_id, one.client_instance_id)]
        return [
            _row(one, known_instances.get(one.client_instance_id), self._pushed.get(one.client_instance_id))
            for one in sorted(chosen, key=lambda one: (one.client_id, one.client_instance_id))
        ]

    def last(self, client: str) -> PushedMetrics | None:
        """The last push of a client with this client id or client instance id."""
        about = (one for one in reversed(self._pushed.values()) if client in _names(one.client))
        return next(about, None)

    def metrics_of(self, client_instance_id: str) -> bytes:
        """The metrics of a client's last push; empty without one."""
        pushed = self._pushed.get(client_instance_id)
        return b"" if pushed is None else pushed.metrics

    async def wait_for(
        self, client: str, pushes: int, timeout_s: float, *, terminated: bool = False
    ) -> list[TelemetryRow]:
        """Wait until a client has pushed `pushes` times. TimeoutError names the unmet condition."""

        def missing() -> str:
            return unmet_pushes(self.rows(client), client, pushes, terminated=terminated)

        try:
            async with asyncio.timeout(timeout_s):
                while missing():
                    self._changed = self._changed or asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
        except TimeoutError:
            raise TimeoutError(f"after {timeout_s:g} s {missing()}") from None
        return self.rows(client)

    def _take(self, node_id: int, client: Client, push: Push, metrics: bytes) -> None:
        before = self._pushed.pop(client.client_instance_id, None)
        self._bytes += len(metrics) - (0 if before is None else len(before.metrics))
        self._pushed[client.client_instance_id] = PushedMetrics(
            client=client,
            node_id=node_id,
            pushes=1 if before is None else before.pushes + 1,
            at_s=asyncio.get_running_loop().time(),
            compression=Compression(push.compression),
            compressed_bytes=len(push.metrics),
            terminating=push.terminating,
            metrics=metrics,
        )
        while len(self._pushed) > self._clients_max or self._bytes > self._bytes_max:
            _, oldest = self._pushed.popitem(last=False)
            self._bytes -= len(oldest.metrics)
        for kind, happened in (("telemetry began", before is None), ("telemetry ended", push.terminating)):
            if happened:
                self._events.publish(
                    kind, node=node_id, client=client.client_id, instance=client.client_instance_id, bytes=len(metrics)
                )
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def _instances(self) -> Iterator[tuple[str, tuple[int, Instance]]]:
        """Client instance id -> where it has asked; the last to ask comes last."""
        found = [
            (node_id, one)
            for node_id, node in self._cluster.nodes.items()
            if node.services.takes_telemetry
            for one in node.services.telemetry.clients()
        ]
        for node_id, one in sorted(found, key=lambda row: row[1].seen_at_ms):
            yield one.client.client_instance_id, (node_id, one)

    def _clients(self, known_instances: dict[str, tuple[int, Instance]]) -> Iterator[Client]:
        yield from (one.client for one in self._pushed.values())
        yield from (one.client for _, one in known_instances.values())


def unmet_pushes(rows: Sequence[TelemetryRow], client: str, pushes: int, *, terminated: bool) -> str:
    """The unmet condition of a wait for these rows of a client, in one line; empty if it holds."""
    if not rows:
        return f"no client {client!r} has requested a subscription"
    count = sum(row["pushes"] for row in rows)
    if count < pushes:
        return f"{client} has pushed {count} of {pushes} times: {missing_reason(rows[0])}"
    if terminated and not all(row["terminated"] for row in rows):
        return f"{client} has not sent its terminating push"
    return ""


def missing_reason(row: TelemetryRow) -> str:
    """Why a client that has asked does not push more, as far as that is known."""
    if row["refused"]:
        return f"refused with {row['refused']}"
    if row["wanted"] is None:
        return "it has disconnected"
    if not row["wanted"]:
        return "no subscription matches it"
    return f"its subscription is {', '.join(row['wanted'])} every {row['interval_ms']} ms"


def _names(client: Client) -> tuple[str, str]:
    return client.client_id, client.client_instance_id


def _row(client: Client, known_instances: tuple[int, Instance] | None, pushed: PushedMetrics | None) -> TelemetryRow:
    instance = None if known_instances is None else known_instances[1]
    return {
        "client": client.client_id,
        "instance": client.client_instance_id,
        "software": client.software_name,
        "software_version": client.software_version,
        "host": client.host,
        "port": client.port,
        "node": known_instances[0] if known_instances is not None else pushed.node_id if pushed is not None else -1,
        "wanted": None if instance is None else list(instance.subscription.metrics),
        "interval_ms": None if instance is None else instance.subscription.interval_ms,
        "refused": "" if instance is None or not instance.failed_with else ErrorCode(instance.failed_with).name,
        "pushes": 0 if pushed is None else pushed.pushes,
        "terminated": pushed is not None and pushed.terminating,
        "last": None if pushed is None else pushed.row(),
    }
