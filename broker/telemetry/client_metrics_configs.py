"""Reads client metrics subscriptions (/config/client-metrics) under each session, and applies their changes.

Stored subscriptions are not validated as in `config_requests`, because another writer may have stored them. A malformed
one is logged and ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from anabranch.broker.config.config_changes import read_config
from anabranch.broker.telemetry.subscriptions import Subscription, subscription
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import NoNode
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)

FOLDER: Final = "client-metrics"


def entity(name: str) -> str:
    """Return a subscription's path below /config."""
    return f"{FOLDER}/{quote(name, safe='')}"


class ClientMetricsConfigs:
    """All client metrics subscriptions, by name."""

    def __init__(self, session: Callable[[], ZkSession]) -> None:
        self._session = session
        self._given: dict[str, Mapping[str, str]] = {}
        self._turn = asyncio.Lock()  # a load must not replace what a later change has read
        self._listeners: list[Callable[[Sequence[Subscription]], None]] = []

    @property
    def names(self) -> list[str]:
        """The names of subscriptions that have properties."""
        return sorted(self._given)

    def of(self, name: str) -> Mapping[str, str]:
        """Return a subscription's properties."""
        return self._given.get(name, {})

    def on_change(self, listener: Callable[[Sequence[Subscription]], None]) -> None:
        """Call `listener(subscriptions)` after each change."""
        self._listeners.append(listener)

    async def load(self) -> None:
        """Read all subscriptions: changes may have been missed."""
        session, before = self._session(), self._given
        async with self._turn:
            try:
                names = await retry_connection_loss(lambda: session.children(paths.config(FOLDER)))
            except NoNode:
                names = []
            read = {unquote(name): await read_config(session, f"{FOLDER}/{name}") for name in names}
            self._given = {name: given for name, given in read.items() if given}
        if self._given != before:
            self._notify()

    async def reload_subscription(self, name: str) -> None:
        """Read a changed subscription."""
        async with self._turn:
            given = await read_config(self._session(), f"{FOLDER}/{name}")
            if given:
                self._given[unquote(name)] = given
            else:
                self._given.pop(unquote(name), None)
        self._notify()

    def _notify(self) -> None:
        subscriptions = []
        for name, given in self._given.items():
            try:
                subscriptions.append(subscription(given))
            except KafkaError as error:
                log.error("ignoring the malformed client metrics subscription %s: %s", name, error)
        for listener in self._listeners:
            listener(subscriptions)
