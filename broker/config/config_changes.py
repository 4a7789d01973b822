"""Configuration changes through ZooKeeper: written below /config, with a notification below /config/changes.

A change and its notification are one ZooKeeper transaction, so a crash of the writer cannot separate them. A
notification is a sequential znode in Kafka's format (`config_change_N`, version 2) that names the entity to read again.
ACLs and delegation tokens use such notifications, too.

Handling a notification twice is harmless. A node need not handle those of the time before its session, because it then
reads all configurations that it uses. Each node deletes a notification 15 minutes after it first saw it; Kafka uses the
znode's age, which needs synchronized clocks. Sources: `ZkConfigManager`, `ZkNodeChangeNotificationListener`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.tasks.supervised_task import OnFailure, log_failure
from anabranch.broker.tasks.znode_watch import ZnodeWatch
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.session import (
    BadVersion,
    Create,
    NodeExists,
    NoNode,
    Set,
    TooLarge,
    ZkError,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)

RETENTION_S: Final = 15 * 60
DEFAULT_ENTITY: Final = "<default>"
Handler = Callable[[str], Awaitable[None]]
NotificationHandler = Callable[[str, bytes], Awaitable[None]]
Edit = Callable[[dict[str, str]], Mapping[str, str]]


async def read_config(session: ZkSession, entity_path: str) -> dict[str, str]:
    """Read the configuration of an entity, such as "topics/T" or "brokers/<default>"."""
    path = paths.config(entity_path)
    try:
        data, _ = await retry_connection_loss(lambda: session.get(path))
    except NoNode:
        return {}
    return config_in(path, data)


def config_in(path: str, data: bytes) -> dict[str, str]:
    """Decode a configuration. A malformed one counts as empty: another program's mistake must not stop a node."""
    try:
        return znodes.decode_config(path, data)
    except MalformedZnode:
        log.error("%s is malformed and counts as empty", path)  # without its content, which may be a password
        return {}


async def change_config(session: ZkSession, entity_path: str, edit: Edit) -> None:
    """Replace the configuration of an entity with the result of `edit`, and create its notification, atomically.

    `edit` is called again with the new configuration after a concurrent write, or after a lost response of ZooKeeper.
    Raises KafkaError(INVALID_CONFIG) if the configuration is too large for a znode.
    """
    path = paths.config(entity_path)
    announcement = Create(paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_path), sequence=True)
    while True:
        try:
            data, stat = await retry_connection_loss(lambda: session.get(path))
            changed = znodes.encode_config(edit(config_in(path, data)))
            write: Create | Set = Set(path, changed, stat.version)
        except NoNode:
            write = Create(path, znodes.encode_config(edit({})))
        try:
            ops = [write, announcement]
            await retry_connection_loss(lambda: session.multi(ops), size_bytes=len(write.data))  # noqa: B023 -- awaited here
            return
        except TooLarge as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{error}: the configuration is too large for one znode."
            ) from None
        except (BadVersion, NodeExists):
            continue
        except NoNode:
            for parent in (paths.parent(path), paths.CONFIG_CHANGES):
                with contextlib.suppress(NodeExists):
                    await retry_connection_loss(lambda parent=parent: session.create(parent, make_parents=True))  # type: ignore[misc]


class ChangeNotifications:
    """Watches the notifications below one znode, and handles each new one."""

    def __init__(self, what: str, prefix: str, take: NotificationHandler, task: str) -> None:
        """`what`: their name in the log. `prefix`: their path up to the number. `take` may raise MalformedZnode."""
        self.on_failure: OnFailure = log_failure
        self._what = what
        self._watch = ZnodeWatch(what, task, self._read)
        self._parent, _, self._name = prefix.rpartition("/")
        self._take_up = take
        self._session: ZkSession | None = None
        self._last = -1
        self._seen: dict[str, float] = {}

    async def watch(self, session: ZkSession) -> None:
        """Watch under this session. Skips existing notifications, so read all configurations after this."""
        await self.stop()
        self._session = session
        names = await self._names()
        self._last = max(map(self._number_of, names), default=-1)
        self._note(names)
        self._watch.start(self.on_failure)

    async def stop(self) -> None:
        """Stop watching."""
        await self._watch.stop()

    async def _names(self) -> list[str]:
        session = self._session
        assert session is not None, "names are read with a session"
        names = await retry_connection_loss(lambda: session.children(self._parent, self._watch.on_change))
        return sorted(name for name in names if self._number_of(name) >= 0)

    async def _read(self) -> None:
        names = await self._names()
        self._note(names)
        for name in names:
            if self._number_of(name) > self._last:
                await self._handle(f"{self._parent}/{name}")
                self._last = self._number_of(name)
        session = self._session
        old = asyncio.get_running_loop().time() - RETENTION_S
        for name in [name for name, seen_s in self._seen.items() if seen_s < old]:
            del self._seen[name]
            if session is not None:
                with contextlib.suppress(NoNode):
                    await session.delete(f"{self._parent}/{name}")

    def _note(self, names: list[str]) -> None:
        now = asyncio.get_running_loop().time()
        self._seen = {name: self._seen.get(name, now) for name in names}

    async def _handle(self, path: str) -> None:
        session = self._session
        assert session is not None
        try:
            data, _ = await retry_connection_loss(lambda: session.get(path))
        except NoNode:
            return
        try:
            await self._take_up(path, data)
        except MalformedZnode as error:
            log.error("ignoring a malformed %s: %s", self._what, error)

    def _number_of(self, name: str) -> int:
        return sequence_number(name, self._name)


class ConfigChanges(ChangeNotifications):
    """Watches configuration changes, and calls the handlers of their entity types."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        """`handlers`: entity type ("topics", "brokers", "clients", ...) -> handler of an entity's change."""
        super().__init__("change of configuration", paths.CONFIG_CHANGE_PREFIX, self._on_change, "config-changes")
        self._handlers = dict(handlers)

    def on_change(self, entity_type: str, handler: Handler) -> None:
        """Call `handler(entity name)` for each change of an entity of this type."""
        self._handlers[entity_type] = handler

    async def _on_change(self, path: str, data: bytes) -> None:
        entity_type, _, name = znodes.decode_config_change(path, data).partition("/")
        handler = self._handlers.get(entity_type)
        if handler is None:
            return
        try:
            await handler(name)
        except ZkError:
            raise
        except Exception:
            log.exception("bug while applying the configuration of %s/%s", entity_type, name)


def sequence_number(name: str, prefix: str) -> int:
    """The sequence number of a notification znode; -1 for another name."""
    suffix = name.removeprefix(prefix)
    return int(suffix) if suffix.isdecimal() and suffix != name else -1
