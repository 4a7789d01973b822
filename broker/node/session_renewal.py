"""Keeps one node in the cluster: it joins under a ZooKeeper session, and under a new one when that has expired.

A failed join is repeated under a new session, without a limit: ZooKeeper may not respond for hours. Errors that a new
session cannot end are raised: `NoServerListens` at the start, and `DuplicateBroker`.

Invariant: one join runs at a time. A session that expires during its own join fails that join. The expiry of a session
under which the node has not joined, or no longer, starts none. Source: Kafka's `ZooKeeperClient.reinitialize`, which
calls the `StateChangeHandler`s of the broker and the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from anabranch.broker.membership import registration
from anabranch.broker.tasks.supervised_task import supervised_task
from anabranch.controller.zk.session import ConnectionLoss, NoServerListens, SessionEvent, SessionExpired, ZkError

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)

RENEWAL_PAUSE_S: Final = 0.5
Connect = Callable[[], Awaitable["ZkSession"]]


class SessionRenewal:
    """The sessions of one node, one after the other."""

    def __init__(
        self,
        node_id: int,
        connect: Connect,
        *,
        join: Callable[[ZkSession], Awaitable[None]],
        leave: Callable[[ZkSession], Awaitable[None]],
        on_expired: Callable[[], None],
        give_up: Callable[[Exception], None],
    ) -> None:
        """`join` registers the node under a session, `leave` closes a session and ends what depends on it.

        `on_expired` is called at once when a session expires; `give_up` ends the node.
        """
        self._node_id = node_id
        self._connect = connect
        self._join = join
        self._leave = leave
        self._on_expired = on_expired
        self._give_up = give_up
        self._renewal: asyncio.Task[None] | None = None
        self._joined: ZkSession | None = None
        """The session under which this node last joined the cluster."""
        self._expired: ZkSession | None = None
        """The last session that expired."""
        self._stopping = False

    async def find_cluster(self, fresh_cluster_id: Callable[[], str]) -> tuple[ZkSession, str]:
        """Open the first session, and return it with the cluster's id. Raises `NoServerListens`."""
        while True:
            try:
                session = await self._connect()
                try:
                    await registration.prepare_parents(session)
                    return session, await registration.cluster_id(session, fresh_cluster_id())
                except BaseException:
                    await session.close()
                    raise
            except NoServerListens:
                raise
            except (ConnectionLoss, SessionExpired) as error:
                log.warning("node %d cannot start yet: ZooKeeper does not respond: %s", self._node_id, error)
                await asyncio.sleep(RENEWAL_PAUSE_S)

    async def join(self, session: ZkSession | None) -> None:
        """Join under this session; after a failure, retry under new sessions until it succeeds."""
        while True:
            try:
                session = session or await self._connect()
                try:
                    await self._join_under(session)
                except BaseException:
                    await self._leave(session)
                    raise
                return
            except (ZkError, OSError, TimeoutError) as error:
                log.warning("node %d cannot join the cluster yet: %s", self._node_id, error)
            session = None
            await asyncio.sleep(RENEWAL_PAUSE_S)

    async def _join_under(self, session: ZkSession) -> None:
        session.on_session(lambda event: self.on_session(session, event))
        await self._join(session)
        if self._expired is session:
            raise SessionExpired
        self._joined = session

    def on_session(self, session: ZkSession, event: SessionEvent) -> None:
        """Join again if the session has expired under which the node has joined."""
        log.info("ZooKeeper session %#x: %s", session.session_id, event.value)
        if event is not SessionEvent.EXPIRED:
            return
        self._expired = session
        self._on_expired()
        if self._joined is session and not self._stopping:
            self._renewal = supervised_task(self._renew(session), f"renewal-{self._node_id}", self._give_up)

    async def _renew(self, expired: ZkSession) -> None:
        """Join the cluster again under a new session, without a timeout."""
        try:
            await self._leave(expired)
            await self.join(None)
        except registration.DuplicateBroker as error:
            self._give_up(error)
        finally:
            self._renewal = None

    def stop(self) -> None:
        """End a join that runs, and start none from now on."""
        self._stopping = True
        if self._renewal is not None:
            self._renewal.cancel()
