"""Ending a session from outside, against a real ensemble of three."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.cluster.ensemble import LocalEnsemble
from anabranch.cluster.zookeeper_sessions import NoSession, expire, session_of
from anabranch.controller.zk.kazoo_session import KazooSession, open_kazoo
from anabranch.controller.zk.server.session_password import password_of
from anabranch.controller.zk.session import SessionEvent

pytestmark = [pytest.mark.zookeeper]


@pytest.mark.costly
async def test_ensemble_survives_one_server_and_sessions_expire_on_request(tmp_path: Path) -> None:
    """Kills a server, writes, and restarts it; then ends a session through each server, long before its timeout."""
    async with LocalEnsemble(tmp_path) as ensemble:
        await ensemble.kill(2)
        session = await open_kazoo(ensemble.hosts, session_timeout_ms=30000)
        await session.create("/written-by-two-of-three")
        await session.close()
        await ensemble.restart(2)
        for server in ensemble.servers.values():
            victim = await open_kazoo(ensemble.hosts, session_timeout_ms=30000)
            assert isinstance(victim, KazooSession)
            assert victim.credentials == (victim.session_id, password_of(victim.session_id))
            over = asyncio.Event()
            victim.on_session(lambda event, over=over: over.set() if event is SessionEvent.EXPIRED else None)
            await victim.create("/here", ephemeral=True)
            await expire(server.hosts, victim.session_id)
            async with asyncio.timeout(28):
                await over.wait()
            await victim.close()
            other = await open_kazoo(server.hosts)
            assert await other.exists("/written-by-two-of-three") is not None
            await other.close()


async def test_missing_session_cannot_be_expired(zookeeper_hosts: str) -> None:
    with pytest.raises(NoSession, match="could not be taken over"):
        await expire(zookeeper_hosts, 0x123456789ABCDEF)
    with pytest.raises(NoSession, match="neither a live broker nor the active controller"):
        await session_of(zookeeper_hosts, 7)
