"""Reads and changes access control lists in ZooKeeper; every broker applies announced changes while it runs.

One conditional transaction writes a change and its announcement; it fails if the pattern's entries have changed
meanwhile. Concurrent additions to one resource therefore lose nothing, and a writer's failure leaves no change
unannounced. The format is that of Kafka's brokers and tools. The writer does not wait for other brokers.

A malformed list prevents a node's start, as in Kafka. In a running node it is logged, and the previous entries stay in
force. Sources: `AclAuthorizer.updateResourceAcls`, `AclAuthorizer.loadCache`, `ZkAclChangeStore`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from anabranch.broker.config.config_changes import ChangeNotifications
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk import acl_znodes
from anabranch.controller.zk.session import BadVersion, Create, Delete, NodeExists, NoNode, Op, Set, TooLarge
from anabranch.protocol.acls import Acl, PatternType, ResourcePattern, ResourceType
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.authorization.authorizer import Authorizer
    from anabranch.broker.tasks.supervised_task import OnFailure
    from anabranch.controller.zk.session import ZkSession

Edit = Callable[[frozenset[Acl]], Iterable[Acl]]


async def prepare_parents(session: ZkSession) -> None:
    """Create the parent znodes of access control lists."""
    for path in acl_znodes.all_parents():
        with contextlib.suppress(NodeExists):
            await retry_connection_loss(lambda path=path: session.create(path, make_parents=True))  # type: ignore[misc]


async def change_acls(session: ZkSession, pattern: ResourcePattern, edit: Edit) -> frozenset[Acl]:
    """Replace a pattern's entries with the result of `edit`, announce the change, and return the previous entries.

    After a concurrent write or a lost response of ZooKeeper, `edit` runs again on the current entries. The result is
    then what `edit` received first.
    """
    path = acl_znodes.path_of(pattern)
    announcement = Create(*acl_znodes.encode_change(pattern), sequence=True)
    first: frozenset[Acl] | None = None
    while True:
        version, before = await _read(session, path)
        first = before if first is None else first
        after = frozenset(edit(before))
        if after == before:
            return first
        data = acl_znodes.encode_acls(after)
        write: Op = Create(path, data) if version is None else Set(path, data, version)
        if not after and version is not None:
            write = Delete(path, version)
        try:
            await retry_connection_loss(
                lambda: session.multi([write, announcement]),  # noqa: B023 -- awaited here
                size_bytes=len(data),
            )
            return first
        except TooLarge as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to update ACLs for {pattern}: {error}") from None
        except (BadVersion, NodeExists):
            continue
        except NoNode:
            await prepare_parents(session)


async def _read(session: ZkSession, path: str) -> tuple[int | None, frozenset[Acl]]:
    try:
        data, stat = await retry_connection_loss(lambda: session.get(path))
    except NoNode:
        return None, frozenset()
    return stat.version, acl_znodes.decode_acls(path, data)


class AclWatch:
    """Keeps an authorizer's entries equal to those in ZooKeeper."""

    def __init__(self, authorizer: Authorizer, died: OnFailure) -> None:
        self._authorizer = authorizer
        self._session: ZkSession | None = None
        self._turn = asyncio.Lock()  # apply entries in the order in which they were read
        self._watches = [
            ChangeNotifications("change of ACLs", f"{parent}/{acl_znodes.CHANGE_NAME}", self._on_change, "acl-changes")
            for parent in acl_znodes.CHANGES.values()
        ]
        for watch in self._watches:
            watch.on_failure = died

    async def watch(self, session: ZkSession) -> None:
        """Under a new session, set the watches, then read all entries: earlier changes may have been missed."""
        self._session = session
        await prepare_parents(session)
        for watch in self._watches:
            await watch.watch(session)
        async with self._turn:
            found = await self._read_all(session)
            for pattern in self._authorizer.acls.keys() | found.keys():
                entries = found.get(pattern, frozenset())
                if entries != self._authorizer.acls.get(pattern, frozenset()):
                    self._authorizer.replace(pattern, entries)
            self._authorizer.set_loaded()

    async def stop(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            await watch.stop()

    async def _read_all(self, session: ZkSession) -> dict[ResourcePattern, frozenset[Acl]]:
        patterns: list[ResourcePattern] = []
        for tree in PatternType:
            for kind in ResourceType:
                parent = acl_znodes.parent_of(kind, tree)
                names = await retry_connection_loss(lambda parent=parent: session.children(parent))  # type: ignore[misc]
                patterns += [ResourcePattern(kind, name, tree) for name in names]
        where = [acl_znodes.path_of(pattern) for pattern in patterns]
        bodies = await retry_connection_loss(lambda: session.get_many(where)) if where else []
        return {
            pattern: acl_znodes.decode_acls(path, body[0])
            for pattern, path, body in zip(patterns, where, bodies, strict=True)
            if body is not None
        }

    async def _on_change(self, path: str, data: bytes) -> None:
        await self.read_again(acl_znodes.decode_change(path, data))

    async def read_again(self, pattern: ResourcePattern) -> None:
        """Read a pattern's entries again."""
        session = self._session
        assert session is not None, "ACLs are read with a session"
        async with self._turn:
            _, entries = await _read(session, acl_znodes.path_of(pattern))
            self._authorizer.replace(pattern, entries)
