"""Elects the controller through /controller, and fences its writes with the version of /controller_epoch.

Kafka's scheme (`KafkaZkClient.registerControllerAndIncrementControllerEpoch`): one transaction creates the ephemeral
/controller and raises /controller_epoch, conditional on the version just read. The new version is the fence of the
term: the next winner raises it, and from then on every write of this one fails as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from anabranch.controller.settings import ControllerSettings
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    Set,
    Stat,
    TooLarge,
    WatchCallback,
    ZkError,
    ZkSession,
)
from anabranch.controller.zk.sizes import multi_bytes
from anabranch.protocol.values import value

T = TypeVar("T")


SUSPECT_BYTES: Final = 64 * 1024
"""Every server accepts requests smaller than this."""
LOSSES_MAX: Final = 5


class NoLongerController(Exception):
    """Another controller was elected: the tenure is over, and every write of it fails."""


@value
class ControllerTenure:
    """One period as controller: its epoch, and the version of /controller_epoch that fences its writes."""

    epoch: int
    fence: int


class Candidacy:
    """One candidate under one ZooKeeper session."""

    def __init__(self, session: ZkSession, settings: ControllerSettings, now_ms: Callable[[], int]) -> None:
        self._session = session
        self._settings = settings
        self._now_ms = now_ms

    async def elect(self) -> ControllerTenure | None:
        """Try once to win the election. Returns the tenure, or None if another node is controller."""
        epoch, version = await self._newest_epoch()
        settings = self._settings
        body = znodes.ControllerBody(settings.node_id, settings.host, settings.port, self._now_ms())
        try:
            await self._session.multi(
                [
                    Create(paths.CONTROLLER, znodes.encode_controller(body), ephemeral=True),
                    Set(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version),
                ]
            )
        except (NodeExists, BadVersion, ConnectionLoss):
            # The reply to a successful attempt may be lost, so check which session owns the node.
            if not await self.holds_office() or (await self._newest_epoch())[0] != epoch + 1:
                return None
        return ControllerTenure(epoch + 1, version + 1)

    async def holds_office(self, watch: WatchCallback | None = None) -> bool:
        """Whether this session owns /controller."""
        stat = await self.holder(watch)
        return stat is not None and stat.ephemeral_owner == self._session.session_id

    async def holder(self, watch: WatchCallback | None = None) -> Stat | None:
        """Return the stat of /controller, None if it does not exist; the watch fires on a change."""
        return await retry_connection_loss(lambda: self._session.exists(paths.CONTROLLER, watch))

    async def resign(self, term: ControllerTenure) -> None:
        """Delete /controller, so that an election need not wait for the session timeout. Does nothing if it is lost."""
        with contextlib.suppress(ZkError):
            await self._session.multi([Check(paths.CONTROLLER_EPOCH, term.fence), Delete(paths.CONTROLLER)])

    async def vacate(self) -> None:
        """Remove a /controller of this session that belongs to no current tenure; never another session's.

        An attempt whose response was lost may have succeeded, and another node may have been elected since. So each
        attempt checks the znode's owner, and is conditional on the epoch, which every election raises.
        """
        while True:
            _, version = await self._newest_epoch()
            if not await self.holds_office():
                return
            with contextlib.suppress(BadVersion, NoNode, ConnectionLoss):
                await self._session.multi([Check(paths.CONTROLLER_EPOCH, version), Delete(paths.CONTROLLER)])
                return

    async def _newest_epoch(self) -> tuple[int, int]:
        while True:
            try:
                data, stat = await retry_connection_loss(lambda: self._session.get(paths.CONTROLLER_EPOCH))
                return znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, data), stat.version
            except NoNode:
                with contextlib.suppress(NodeExists, ConnectionLoss):
                    await self._session.create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))


async def retry_connection_loss(ask: Callable[[], Awaitable[T]], *, size_bytes: int = 0) -> T:
    """Repeat an idempotent request after each lost connection until it is answered; the session delays each attempt.

    Raises TooLarge when a request of this size repeatedly loses a connection that had come back: the server then closes
    it because the request exceeds its limit.
    """
    losses = 0
    while True:
        try:
            return await ask()
        except ConnectionLoss:
            losses += 1
            if size_bytes > SUSPECT_BYTES and losses >= LOSSES_MAX:
                raise TooLarge(size_bytes=size_bytes) from None


async def commit_fenced(session: ZkSession, term: ControllerTenure, ops: Sequence[Op]) -> list[str | Stat | None]:
    """Commit a transaction of this tenure.

    Raises NoLongerController if it is over, otherwise the first failed operation's error. After a lost connection it is
    retried: the caller finds out from the znode whether the first attempt succeeded.
    """
    guarded = [Check(paths.CONTROLLER_EPOCH, term.fence), *ops]
    try:
        answers = await retry_connection_loss(lambda: session.multi(guarded), size_bytes=multi_bytes(guarded))
    except ZkError as error:
        if error.index == 0:
            raise NoLongerController(f"controller epoch {term.epoch} has ended") from error
        raise
    return answers[1:]
