"""This broker's place in ZooKeeper: the ephemeral `/brokers/ids/N`, whose czxid is the broker epoch.

A node that was killed leaves its registration behind until its old session times out. Unlike Kafka, which gives up
then, a starting broker waits for it to vanish, and only gives up when it stays: then another process uses the same
id.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.metadata.features import supported
from anabranch.broker.profiles.profile import profile_for
from anabranch.controller.model import Broker, Endpoint
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import NodeExists, NoNode

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)


class DuplicateBroker(Exception):
    """Another process holds this broker's id."""


async def prepare_parents(session: ZkSession) -> None:
    """Create the znodes that every broker expects to be there."""
    for path in paths.ALWAYS_CREATED:
        if await session.exists(path) is None:
            try:
                await session.create(path, make_parents=True)
            except NodeExists:
                log.debug("%s was created by another node", path)


async def cluster_id(session: ZkSession, fresh: str) -> str:
    """The id of the cluster; `fresh` if this is its first broker."""
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
    """Create this broker's registration and return its broker epoch. Raises DuplicateBroker.

    `settings` know the ports that the listeners have got (`BrokerSettings.bound`).
    """
    path = paths.broker(settings.node_id)
    known = supported(settings.withheld_features, profile_for(settings.kafka_version))
    features = tuple((name, *levels) for name, levels in sorted(known.items()))
    endpoints = tuple(
        Endpoint(one.name, one.reachable_host, one.reachable_port(one.port), one.protocol) for one in settings.listening
    )
    body = znodes.encode_broker(
        Broker(settings.node_id, -1, endpoints, settings.rack or None, features), timestamp_ms=timestamp_ms
    )
    deadline_s = asyncio.get_running_loop().time() + settings.zookeeper_session_timeout_ms / 1000 * 1.5 + 1
    while True:
        try:
            _, stat = await session.create_with_stat(path, body, ephemeral=True)
        except NodeExists:
            await _wait_until_free(session, path, settings, deadline_s)
        else:
            return stat.czxid


async def _wait_until_free(session: ZkSession, path: str, settings: BrokerSettings, deadline_s: float) -> None:
    """Wait for an older registration to vanish."""
    gone = asyncio.Event()
    stat = await session.exists(path, lambda event: gone.set())
    if stat is None:
        return
    if stat.ephemeral_owner == session.session_id:
        await session.delete(path)  # our own, from a create whose answer was lost
        return
    log.info("broker id %d is registered by an earlier session; waiting for it to end", settings.node_id)
    try:
        async with asyncio.timeout_at(deadline_s):
            await gone.wait()
    except TimeoutError:
        raise DuplicateBroker(
            f"broker id {settings.node_id} is in use by another live node; give this one another --id"
        ) from None
