"""The HTTP endpoint `/metrics` for Prometheus: the metrics of this process's nodes, or of an audit.

Only this module imports prometheus_client, which encodes the formats. Each connection serves one GET. The endpoint runs
on the nodes' event loop. A scrape reads partitions and committed offsets in steps, and everything else, which is
consistent, in one callback. A failed scrape gets status 500 and a traceback in the log, and does not affect the nodes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Self

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from anabranch.broker.metrics.family import COUNTER, Samples
from anabranch.broker.metrics.histogram import Histogram
from anabranch.broker.metrics.node_families import FAMILIES
from anabranch.broker.metrics.readings import Reading, WatchedNode, read_node
from anabranch.protocol.host_port import connectable, format_host_port

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node

log: Final = logging.getLogger(__name__)

PATH: Final = "/metrics"
HEAD_BYTES_MAX: Final = 16384
TIMEOUT_S: Final = 30.0
"""The timeout of one scrape, for clients that send or read nothing."""
TEXT: Final = "text/plain; charset=utf-8"

FamilySamples = tuple[str, str, str, Samples]
"""Full name, kind, help, and samples (labels and value)."""
Shown = Callable[[], Iterable[FamilySamples]]


class Endpoint:
    """The metrics endpoint; an async context manager. Port 0: the system assigns one, see `url`."""

    def __init__(self, host: str, port: int, shown: Shown | None = None) -> None:
        """`shown` returns the metric families; None: those of the nodes given to `show`."""
        self._host = host
        self._port = port
        self._watched: dict[int, WatchedNode] = {}
        self._readings: list[tuple[int, Reading]] = []
        self._registry = CollectorRegistry()
        self._registry.register(_Families(shown or self._collect))
        ProcessCollector(registry=self._registry)
        self._listener: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The URL to scrape."""
        return f"http://{format_host_port(connectable(self._host), self._port)}{PATH}"

    def show(self, node: Node) -> None:
        """Add the metrics of a started node."""
        self._watched[node.settings.node_id] = WatchedNode(node)

    def _collect(self) -> Iterator[FamilySamples]:
        readings = [({"node": str(node_id)}, reading) for node_id, reading in self._readings]
        for family in FAMILIES:
            samples = (
                ({**labels, **more}, value) for labels, reading in readings for more, value in family.samples(reading)
            )
            yield family.full_name, family.kind, family.help, samples

    async def start(self) -> None:
        """Start listening. Raises OSError."""
        self._listener = await asyncio.start_server(
            self._serve, self._host, self._port, limit=HEAD_BYTES_MAX, start_serving=False
        )
        self._port = self._listener.sockets[0].getsockname()[1]
        await self._listener.start_serving()

    async def stop(self) -> None:
        """Stop listening, and cancel running scrapes."""
        if self._listener is not None:
            self._listener.close()
        for watched in self._watched.values():
            watched.stop()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.info("a scrape failed: %r", error)
        except asyncio.CancelledError:
            log.info(
                "a scrape was not answered: the endpoint is stopping"
            )  # not raised: asyncio's streams log a traceback for a cancelled task
        finally:
            self._answering.discard(task)
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        line, *fields = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return answer("400 Bad Request", TEXT, b"this is an HTTP server\n")
        method, target, _ = words
        if target.partition("?")[0] != PATH:
            return answer("404 Not Found", TEXT, f"only {PATH} is served\n".encode())
        if method not in ("GET", "HEAD"):
            return answer("405 Method Not Allowed", TEXT, b"GET it\n")
        pairs = (field.partition(":") for field in fields)
        accepts = ",".join(value.strip() for name, _, value in pairs if name.strip().lower() == "accept")
        encode, content_type = choose_encoder(accepts)
        try:
            readings = [(node_id, await read_node(watched)) for node_id, watched in sorted(self._watched.items())]
            self._readings = readings  # another scrape may have set its own meanwhile
            body = encode(self._registry)
            self._readings = []
        except Exception:
            log.exception("bug while reading the metrics")
            return answer("500 Internal Server Error", TEXT, b"the log tells why\n")
        return answer("200 OK", content_type, body, with_body=method == "GET")


def answer(status: str, content_type: str, body: bytes, *, with_body: bool = True) -> bytes:
    """Encode an HTTP response with `Connection: close`."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


def bound_text(bound: float) -> str:
    """Format a bucket's bound for Prometheus."""
    return "+Inf" if math.isinf(bound) else str(bound)


class _Families(Collector):
    """Reads all metric families at each scrape."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def describe(self) -> list[Metric]:
        """Return nothing: families are only known at a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield each family with all its samples."""
        for full_name, kind, text, samples in self._shown():
            metric = Metric(full_name.removesuffix("_total"), text, kind)
            for labels, value in samples:
                _add(metric, kind, labels, value)
            yield metric


def _add(metric: Metric, kind: str, labels: Mapping[str, str], value: float | Histogram) -> None:
    if isinstance(value, Histogram):
        for bound, count in value.cumulative():
            metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound_text(bound)}, count)
        metric.add_sample(f"{metric.name}_count", dict(labels), value.count)
        metric.add_sample(f"{metric.name}_sum", dict(labels), value.sum)
    else:
        metric.add_sample(f"{metric.name}_total" if kind == COUNTER else metric.name, dict(labels), value)
