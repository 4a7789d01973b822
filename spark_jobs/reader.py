"""A blocking client for Spark's driver: plain sockets around the sans-I/O connection.

It queries topics, partitions and offsets; `range_reader` reads records. A leader that moved or died is looked up again,
with pauses, until it answers or `timeout_s` is over: a broker's death must not fail a query that could wait.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final, TypeVar

from anabranch.clients.authentication import AuthenticationFailed, log_in
from anabranch.clients.security import Security
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from anabranch.protocol.connection import ClientConnection
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.host_port import ADVICE, format_host_port, parse_host_port
from anabranch.protocol.registry import api_of
from anabranch.spark_jobs import secured
from anabranch.spark_jobs.source_options import OPEN, Client

LATEST: Final = -1
EARLIEST: Final = -2
READ_COMMITTED: Final = 1
RECEIVE_BYTES: Final = 256 * 1024
PAUSE_S: Final = 0.1
GONE_TIMEOUT_S: Final = 5.0
"""How long a partition may be missing from its topic: a broker that has just started may not know it yet."""
CALL_TIMEOUT_S: Final = 15.0
API_VERSIONS_SENT: Final = 3

Result = TypeVar("Result")
Address = tuple[str, int]


class PartitionGone(KafkaError):
    """The topic exists and the partition does not: it was merged into another, and its records have expired."""


class _Link:
    def __init__(self, address: Address, security: Security | None = None) -> None:
        try:
            self._socket = socket.create_connection(address, timeout=CALL_TIMEOUT_S)
        except (ValueError, OverflowError) as error:  # a broker may name any host and port
            raise ConnectionError(f"invalid address: {error}") from None
        self._core = ClientConnection("anabranch-audit")
        hello = ApiVersionsRequest(client_software_name="anabranch", client_software_version="0.1.0")
        try:
            if security is not None and security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address[0])
            self._versions = {row.api_key: row.max_version for row in self.call(hello, API_VERSIONS_SENT).api_keys}
            if security is not None and security.mechanism:
                _at_once(log_in(replace(security, token_waits=False), self._answer))  # it may block this thread
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise AuthenticationFailed(
                f"{format_host_port(*address)} failed the TLS verification: {error.verify_message}"
            ) from None
        except BaseException:
            self.close()
            raise

    def call(self, request: Any, version: int | None = None) -> Any:
        api = api_of(type(request))
        chosen = min(api.newest_sent, self._versions[api.key]) if version is None else version
        expected, chunks = self._core.request(request, chosen)
        self._socket.sendall(b"".join(chunks))
        while True:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("closed by the broker")
            for correlation_id, response in self._core.receive(data):
                if correlation_id == expected:
                    return response

    async def _answer(self, request: Any) -> Any:
        return self.call(request)

    def close(self) -> None:
        self._socket.close()


def _at_once(work: Coroutine[Any, Any, Result]) -> Result | None:
    """Return the result of a coroutine that never suspends, as all its calls are answered synchronously."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("it waits")


class TopicReader:
    """Queries the topics of one cluster, and their offsets."""

    def __init__(self, bootstrap_servers: str, client: Client = OPEN, *, timeout_s: float = 60.0) -> None:
        """Create a reader; `client` has the security properties. Raises ValueError, OSError."""
        self._bootstrap = [_address(part) for part in bootstrap_servers.split(",") if part.strip()]
        if not self._bootstrap:
            raise ValueError('bootstrap.servers is empty: write "127.0.0.1:9092"')
        self._security = secured.security(client)
        self._timeout_s = timeout_s
        self._links: dict[Address, _Link] = {}
        self._known = list(self._bootstrap)

    def close(self) -> None:
        """Close every connection."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises `KafkaError` if it does not exist."""
        return sorted(self._retry(lambda: self._leaders(topic)))

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, which a recreated one does not have. Raises KafkaError if it does not exist."""
        return next(iter(self._retry(lambda: self._leaders(topic)).values()))[1].hex()

    def topics(self) -> list[str]:
        """Return every topic that is not internal."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response: MetadataResponse = self._retry(lambda: self._ask_any(request))
        return sorted(topic.name for topic in response.topics if not topic.is_internal and topic.name is not None)

    def offsets(self, topic: str, at: int | Mapping[int, int], *, committed_only: bool = False) -> dict[int, int]:
        """Return per partition the first offset (EARLIEST), the next one (LATEST), or that of the first record from a
        time on, in ms: -1 if there is none. `at`: one for all partitions, or one each. `committed_only`: the next one
        is the last stable offset.
        """
        return self._retry(lambda: self._offsets(topic, at, READ_COMMITTED if committed_only else 0))

    def _offsets(self, topic: str, at: int | Mapping[int, int], isolation_level: int) -> dict[int, int]:
        leaders = self._leaders(topic)
        timestamps = dict.fromkeys(leaders, at) if isinstance(at, int) else at
        questions: dict[Address, list[ListOffsetsPartition]] = defaultdict(list)
        for index, timestamp in timestamps.items():
            if index not in leaders:
                raise PartitionGone(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
            questions[leaders[index][0]].append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
        found: dict[int, int] = {}
        for leader, partitions in questions.items():
            topics = [ListOffsetsTopic(name=topic, partitions=partitions)]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
            for row in self._ask(leader, request).topics[0].partitions:
                _check(row.error_code, f"offset of {topic}-{row.partition_index}")
                found[row.partition_index] = row.offset
        return found

    def _leader(self, topic: str, index: int) -> tuple[Address, bytes]:
        leaders = self._leaders(topic)
        if index not in leaders:
            raise PartitionGone(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        return leaders[index]

    def _leaders(self, topic: str) -> dict[int, tuple[Address, bytes]]:
        """Look up the address of each partition's leader, with the topic's id."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response: MetadataResponse = self._ask_any(request)
        nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._known = [*nodes.values(), *(one for one in self._bootstrap if one not in nodes.values())]
        found = response.topics[0]
        _check(found.error_code, topic)
        leaders = {}
        for partition in found.partitions:
            if partition.leader_id not in nodes:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition.partition_index}")
            leaders[partition.partition_index] = (nodes[partition.leader_id], found.topic_id)
        return leaders

    def _ask_any(self, request: Any) -> Any:
        failure: OSError | None = None
        for address in sorted(self._known, key=lambda one: one not in self._links):
            try:
                return self._link(address).call(request)
            except AuthenticationFailed:
                raise
            except OSError as error:
                self._drop(address)
                failure = error
        servers = ", ".join(format_host_port(*one) for one in self._known)
        raise ConnectionError(f"no broker responded at {servers}: {failure}") from failure

    def _ask(self, address: Address, request: Any) -> Any:
        try:
            return self._link(address).call(request)
        except AuthenticationFailed:
            raise
        except OSError as error:
            raise ConnectionError(f"{format_host_port(*address)} did not respond: {error}") from error

    def _link(self, address: Address) -> _Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = _Link(address, self._security)
        return link

    def _drop(self, address: Address) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            with contextlib.suppress(OSError):
                link.close()

    def _retry(self, operation: Callable[[], Result]) -> Result:
        started_s = time.perf_counter()
        while True:
            try:
                return operation()
            except (OSError, KafkaError) as error:
                final = isinstance(error, AuthenticationFailed) or (
                    isinstance(error, KafkaError) and not error.code.retriable
                )
                timeout_s = min(GONE_TIMEOUT_S if isinstance(error, PartitionGone) else inf, self._timeout_s)
                if final or time.perf_counter() - started_s > timeout_s:
                    raise
                self.close()
            # Executors are Spark's own processes, without a loop or other work.
            threading.Event().wait(PAUSE_S)


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), what)


def _address(text: str) -> Address:
    host, port = parse_host_port(text.strip())
    if not host or not port:
        raise ValueError(f"bootstrap server {text!r} is invalid: {ADVICE}")
    return host, port
