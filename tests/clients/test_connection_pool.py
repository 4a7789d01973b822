"""Reconnections: waiters are notified."""

from __future__ import annotations

import asyncio
import logging

import pytest

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import NetworkConfig
from anabranch.clients.connection import Connection
from anabranch.clients.connection_pool import BACKOFF, DATA, GROUP, Address, ConnectionPool
from anabranch.clients.network import make_rng

WHERE = ("127.0.0.1", 9092)


class Refused(ConnectionPool):
    """Connections are refused everywhere."""

    attempts = 0

    async def open(self, address: Address) -> Connection:
        self.attempts += 1
        raise ConnectionRefusedError("nobody listens")


async def test_unreachable_node_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    config = NetworkConfig(bootstrap_servers=(WHERE,), retry_backoff=Backoff(initial_ms=1, limit_ms=1))
    links = Refused(config, make_rng(None), address_of=lambda _: WHERE, on_failure=lambda: None)
    tried_often = asyncio.Event()

    def ask(node_id: int) -> None:
        for channel in (DATA, GROUP):
            links.ready(node_id, channel)
        if links.attempts >= 5 * BACKOFF:
            tried_often.set()

    links.listeners.append(ask)
    ask(1)
    async with asyncio.timeout(60):
        await tried_often.wait()
    await links.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["node 1 cannot be reached: nobody listens; retrying"]


@pytest.mark.asyncio(loop_factories=["hasty"])
async def test_listener_may_connect_after_backoff_even_if_clock_lags() -> None:
    """Otherwise a fetcher that could not connect then would wait for ever."""
    config = NetworkConfig(bootstrap_servers=(WHERE,))
    links = Refused(config, make_rng(None), address_of=lambda _: WHERE, on_failure=lambda: None)
    tried_often = asyncio.Event()

    def ask(node_id: int) -> None:
        assert links.ready(node_id, DATA) is None
        if links.attempts == 5:
            tried_often.set()

    links.listeners.append(ask)
    ask(1)
    async with asyncio.timeout(60):
        await tried_often.wait()
    await links.close()
