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
        self.ports = ListenerPorts(settings, TopicNames(), self._on_door)
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
        self._looking: asyncio.Task[None] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap addresses here."""
        host = self.settings.advertised_host or self.settings.host
        return ",".join(format_host_port(host, door.port) for door in self.ports.first)

    async def start(self) -> None:
        """Open the listeners, and ask the upstream for its brokers. OSError if a port is taken."""
        for upstream in self.settings.upstream:
            await self.ports.begin_at(upstream)
        if not await self._on_metadata():
            self._looking = asyncio.create_task(self._look_on())

    async def stop(self) -> None:
        """Close all listeners and connections."""
        self.faults.clear()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.ports.close()

    def nodes(self) -> list[ProxyNodeRow]:
        """The brokers as JSON rows."""
        host = self.settings.advertised_host or self.settings.host
        return [
            {
                "node": door.node_id if door.node_id >= 0 else None,
                "host": host,
                "port": door.port,
                "upstream": format_host_port(*door.upstream),
                "connections": len(door.connections),
            }
            for door in self.ports
        ]

    def _on_door(self, door: ProxyListener, before: int) -> None:
        """Handle a new listener, or one whose broker has become known."""
        self.faults.forget(before)
        if door.node_id >= 0:
            self.node_ids.append(door.node_id)
            self.node_ids.sort()
            self.events.publish("broker", node=door.node_id, port=door.port, upstream="{}:{}".format(*door.upstream))
        if self.journal is not None:
            self.journal.follow(door, door.at)
        self.faults.follow(door, door.at)
        self._on_rules()

    def _on_rules(self) -> None:
        """Decode fetch sessions only if a rule needs their partitions."""
        named = any(armed.matcher.names_rows for armed in self.faults)
        for door in self.ports:
            door.upstream_dispatcher.asks_anew = named

    async def _look_on(self) -> None:
        """Ask for the brokers until the upstream answers, or requires a login."""
        backoff, failures = Backoff(100, 5000), 0
        while not await self._on_metadata():
            failures += 1
            await asyncio.sleep(backoff.wait_ms(failures, self._rng) / 1000)

    async def _on_metadata(self) -> bool:
        """Whether all bootstrap addresses have answered, or no answer is to be expected."""
        for door in self.ports.first:
            if await self._asked(door):
                return True
        return False

    async def _asked(self, door: ProxyListener) -> bool:
        """Whether one address has answered, or no answer is to be expected."""
        host, port = door.upstream
        security = Security(self.settings.upstream_tls)
        try:
            connection = await Connection.open(
                host, port, client_id=CLIENT_ID, security=security, connect_timeout_ms=ATTEMPT_MS
            )
        except (OSError, AuthenticationFailed, KafkaError) as error:
            cause = error.__cause__
            door.log_trouble(reason_of(cause) if isinstance(cause, OSError) else str(error))
            return False
        door.log_trouble("")
        try:
            answer = await connection.call(MetadataRequest(topics=[]), timeout_ms=ATTEMPT_MS)
            for one in sorted(answer.brokers, key=lambda one: one.node_id):
                self.ports.meet(one.node_id, one.host, one.port)
        except (OSError, KafkaError, DecodeError) as error:
            log.info("%s lists its brokers only to authenticated clients (%s)", format_host_port(host, port), error)
            return True
        finally:
            await connection.close()
        return bool(answer.brokers)
