"""Registers this broker in ZooKeeper: the ephemeral `/brokers/ids/N`, whose czxid is the broker epoch.

The registration of a killed node stays until its old session times out. Kafka fails to start then; this broker waits
for the end of that session, whose timeout may exceed its own. It gives up when another node with the same id accepts
connections at the registered address, or after `EARLIER_SESSION_LIMIT_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.metadata.features import supported_features
from anabranch.broker.profiles.profile import profile_for
from anabranch.controller.model import Broker, Endpoint
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.session import NodeExists, NoNode

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)

EARLIER_SESSION_LIMIT_S: Final = 150.0
"""Longer than a session can outlive its client in a stock ZooKeeper (40 s) or a local one (120 s)."""
REPORT_EVERY_S: Final = 10.0
PAUSE_MIN_S: Final = 0.01
"""A timer may fire a moment early, and leave a remainder for which the node would spin."""
CONNECT_TIMEOUT_S: Final = 2.0


class DuplicateBroker(Exception):
    """Another process is registered with this broker's id."""


async def prepare_parents(session: ZkSession) -> None:
    """Create the znodes that every broker requires."""
    for path in paths.ALWAYS_CREATED:
        if await session.exists(path) is None:
            try:
                await session.create(path, make_parents=True)
            except NodeExists:
                log.debug("%s was created by another node", path)


async def cluster_id(session: ZkSession, fresh: str) -> str:
    """Return the cluster id; the first broker stores `fresh`."""
    while True:
        try:
            data, _ = await session.get(paths.CLUSTER_ID)
        except NoNode:
            try:
                await session.create(paths.CLUSTER_ID, znodes.encode_cluster_id(fresh), make_parents=True)
            except NodeExists:
                continue
            return fresh
        return znodes.decode_cluster_id(paths.CLUSTER_ID, data)


async def register(session: ZkSession, settings: BrokerSettings, timestamp_ms: int) -> int:
    """Register this broker, and return its broker epoch. Raises DuplicateBroker.

    `settings` contain the bound ports of the listeners (`BrokerSettings.bound`).
    """
    path = paths.broker(settings.node_id)
    known = supported_features(settings.withheld_features, profile_for(settings.kafka_version))
    features = tuple((name, *levels) for name, levels in sorted(known.items()))
    endpoints = tuple(
        Endpoint(one.name, one.reachable_host, one.reachable_port(one.port), one.protocol) for one in settings.listening
    )
    body = znodes.encode_broker(
        Broker(settings.node_id, -1, endpoints, settings.rack or None, features), timestamp_ms=timestamp_ms
    )
    while True:
        try:
            _, stat = await session.create_with_stat(path, body, ephemeral=True)
        except NodeExists:
            await _wait_until_free(session, path, settings, endpoints)
        else:
            return stat.czxid


async def _wait_until_free(
    session: ZkSession, path: str, settings: BrokerSettings, endpoints: tuple[Endpoint, ...]
) -> None:
    """Wait until an earlier registration is deleted or changed. Raises DuplicateBroker."""
    changed = asyncio.Event()
    try:
        data, stat = await session.get(path, lambda event: changed.set())
    except NoNode:
        return
    if stat.ephemeral_owner == session.session_id:
        await session.delete(path)  # our own: the response to its create was lost
        return
    others = _other_endpoints(path, data, endpoints)
    clock = asyncio.get_running_loop().time
    began_s, timeout_s = clock(), settings.zookeeper_session_timeout_ms / 1000 * 1.5 + 1
    limit_s = max(EARLIER_SESSION_LIMIT_S, timeout_s)
    while not changed.is_set():
        waited_s = clock() - began_s
        if waited_s >= limit_s or (waited_s >= timeout_s and await _any_accepts(others)):
            raise DuplicateBroker(
                f"broker id {settings.node_id} is in use by another live node; give this one another --id"
            )
        log.info(
            "broker id %d is registered by an earlier session; waiting for it to end, %.0f s so far",
            settings.node_id,
            waited_s,
        )
        due_s = (timeout_s if waited_s < timeout_s else limit_s) - waited_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(PAUSE_MIN_S, min(due_s, REPORT_EVERY_S))):
                await changed.wait()


def _other_endpoints(path: str, data: bytes, own: tuple[Endpoint, ...]) -> list[Endpoint]:
    """Return the registered addresses that are not our own; none if the registration is malformed."""
    try:
        earlier = znodes.decode_broker(path, data, czxid=-1)
    except MalformedZnode:
        return []
    addresses = {(one.host, one.port) for one in own}
    return [one for one in earlier.endpoints if (one.host, one.port) not in addresses]


async def _any_accepts(endpoints: list[Endpoint]) -> bool:
    for one in endpoints:
        # A host may be any text: an invalid one raises UnicodeError, an invalid port OverflowError.
        with contextlib.suppress(OSError, ValueError, OverflowError):
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(one.host, one.port)
            writer.close()
            return True
    return False
