"""A proxy in front of a Kafka cluster: its listeners, rules, journal and events.

    async with Proxy(ProxySettings(upstream=(("127.0.0.1", 9092),))) as proxy:
        proxy.faults.add(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)
        ...                                             # clients of proxy.bootstrap_servers

The proxy learns the brokers from passing responses; at the start it asks the upstream, if that needs no login.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Annotated, Final, TypedDict

from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.backoff import Backoff
from anabranch.clients.connection import Connection
from anabranch.clients.security import Security
from anabranch.control.events import Events
from anabranch.faults.faults import Faults
from anabranch.journal.journal import Journal
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.errors import DecodeError, KafkaError
from anabranch.protocol.host_port import format_host_port
from anabranch.proxy import unsupported_rules
from anabranch.proxy.listeners import ListenerPorts, ProxyListener, reason_of
from anabranch.proxy.settings import ProxySettings
from anabranch.proxy.topic_names import TopicNames
from anabranch.runtime.startable import Startable

log: Final = logging.getLogger(__name__)

CLIENT_ID: Final = "anabranch-proxy"
ATTEMPT_MS: Final = 3000


class ProxyNodeRow(TypedDict):
    """A broker behind a proxy."""

    node: Annotated[int | None, "the broker's id; null while it is unknown"]
    host: Annotated[str, "the host on which the proxy accepts its clients"]
    port: int
    upstream: Annotated[str, "the broker's own host and port"]
    connections: Annotated[int, "the number of open connections"]


class Brokers(list[int]):
    """The known brokers; while none is known, every id is accepted."""

    def __contains__(self, node_id: object) -> bool:
        return not self or super().__contains__(node_id)


class Proxy(Startable):
    """A proxy in front of one cluster."""

    def __init__(self, settings: ProxySettings, rng: random.Random | None = None) -> None:
        self.settings = settings
        self.node_ids = Brokers()
        self.ports = ListenerPorts(settings, TopicNames(), self._on_listener)
        listener = "PLAINTEXT" if settings.tls is None else "SSL"
        self.faults = Faults(self.node_ids, listeners=(listener,), refuse=unsupported_rules.refuse_unsupported)
        self.events = Events()
        self.journal: Journal | None = None
        if settings.journal_size:
            self.journal = Journal(settings.journal_size, self.node_ids, frames=settings.frames)
            self.journal.knows(lambda: self.events.after(0))
            self.faults.on_hit(self.journal.on_hit)
        self.faults.on_hit(self.events.on_hit)
        self.faults.on_change(self._on_rules)
        self._rng = rng or random.Random()
        self._finding_brokers: asyncio.Task[None] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap addresses here."""
        host = self.settings.advertised_host or self.settings.host
        advertised = self.settings.port_for_clients
        return ",".join(format_host_port(host, advertised(one.port)) for one in self.ports.first)

    async def start(self) -> None:
        """Open the listeners, and ask the upstream for its brokers. OSError if a port is taken."""
        for upstream in self.settings.upstream:
            await self.ports.begin_at(upstream)
        if not await self._on_metadata():
            self._finding_brokers = asyncio.create_task(self._find_brokers())

    async def stop(self) -> None:
        """Close all listeners and connections."""
        self.faults.clear()
        if self._finding_brokers is not None:
            self._finding_brokers.cancel()
            await asyncio.gather(self._finding_brokers, return_exceptions=True)
        await self.ports.close()

    def nodes(self) -> list[ProxyNodeRow]:
        """The brokers as JSON rows."""
        host = self.settings.advertised_host or self.settings.host
        return [
            {
                "node": proxy_listener.node_id if proxy_listener.node_id >= 0 else None,
                "host": host,
                "port": self.settings.port_for_clients(proxy_listener.port),
                "upstream": format_host_port(*proxy_listener.upstream),
                "connections": len(proxy_listener.connections),
            }
            for proxy_listener in self.ports
        ]

    def _on_listener(self, proxy_listener: ProxyListener, before: int) -> None:
        """Handle a new listener, or one whose broker has become known."""
        self.faults.forget(before)
        if proxy_listener.node_id >= 0:
            self.node_ids.append(proxy_listener.node_id)
            self.node_ids.sort()
            self.events.publish(
                "broker",
                node=proxy_listener.node_id,
                port=proxy_listener.port,
                upstream="{}:{}".format(*proxy_listener.upstream),
            )
        if self.journal is not None:
            self.journal.follow(proxy_listener, proxy_listener.at)
        self.faults.follow(proxy_listener, proxy_listener.at)
        self._on_rules()

    def _on_rules(self) -> None:
        """Decode fetch sessions only if a rule needs their partitions."""
        named = any(armed.matcher.names_rows for armed in self.faults)
        for proxy_listener in self.ports:
            proxy_listener.upstream_dispatcher.asks_anew = named

    async def _find_brokers(self) -> None:
        """Ask for the brokers until the upstream answers, or requires a login."""
        backoff, failures = Backoff(100, 5000), 0
        while not await self._on_metadata():
            failures += 1
            await asyncio.sleep(backoff.wait_ms(failures, self._rng) / 1000)

    async def _on_metadata(self) -> bool:
        """Whether all bootstrap addresses have answered, or no answer is to be expected."""
        for proxy_listener in self.ports.first:
            if await self._has_answered(proxy_listener):
                return True
        return False

    async def _has_answered(self, proxy_listener: ProxyListener) -> bool:
        """Whether one address has answered, or no answer is to be expected."""
        host, port = proxy_listener.upstream
        security = Security(self.settings.upstream_tls)
        try:
            connection = await Connection.open(
                host, port, client_id=CLIENT_ID, security=security, connect_timeout_ms=ATTEMPT_MS
            )
        except (OSError, AuthenticationFailed, KafkaError) as error:
            cause = error.__cause__
            proxy_listener.log_trouble(reason_of(cause) if isinstance(cause, OSError) else str(error))
            return False
        proxy_listener.log_trouble("")
        try:
            answer = await connection.call(MetadataRequest(topics=[]), timeout_ms=ATTEMPT_MS)
            for one in sorted(answer.brokers, key=lambda one: one.node_id):
                self.ports.add_broker(one.node_id, one.host, one.port)
        except (OSError, KafkaError, DecodeError) as error:
            log.info("%s lists its brokers only to authenticated clients (%s)", format_host_port(host, port), error)
            return True
        finally:
            await connection.close()
        return bool(answer.brokers)
