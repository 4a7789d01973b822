"""Changes of configuration: written below /config, announced below /config/changes, and noticed by every node.

A change and its announcement are one transaction, so that no change stays unknown because its writer died; the formats
are Kafka's (`config_change_N`, version 2, the path of the entity). An announcement says only whose configuration to
read again; how they are noticed and forgotten is `announcements`'. Source: `ZkConfigManager`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.change_notifications import ChangeNotifications
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk import paths, znodes
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

DEFAULT_ENTITY: Final = "<default>"
Handler = Callable[[str], Awaitable[None]]
Edit = Callable[[dict[str, str]], Mapping[str, str]]


async def read_config(session: ZkSession, entity_path: str) -> dict[str, str]:
    """The configuration of an entity, such as "topics/T" or "brokers/<default>"."""
    path = paths.config(entity_path)
    try:
        data, _ = await retry_connection_loss(lambda: session.get(path))
    except NoNode:
        return {}
    return znodes.decode_config(path, data)


async def change_config(session: ZkSession, entity_path: str, edit: Edit) -> None:
    """Replace the configuration of an entity by what `edit` returns for it, and announce that, both or neither.

    Others may write at the same time: then `edit` is asked again, about what they wrote. It is also asked again when
    the answer of ZooKeeper was lost.
    """
    path = paths.config(entity_path)
    announcement = Create(paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_path), sequence=True)
    while True:
        try:
            data, stat = await retry_connection_loss(lambda: session.get(path))
            changed = znodes.encode_config(edit(znodes.decode_config(path, data)))
            write: Create | Set = Set(path, changed, stat.version)
        except NoNode:
            write = Create(path, znodes.encode_config(edit({})))
        try:
            ops = [write, announcement]
            await retry_connection_loss(lambda: session.multi(ops), size_bytes=len(write.data))  # noqa: B023 -- awaited here
            return
        except TooLarge as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{error}: ZooKeeper does not take so much for one resource."
            ) from None
        except (BadVersion, NodeExists):
            continue
        except NoNode:
            for parent in (paths.parent(path), paths.CONFIG_CHANGES):
                with contextlib.suppress(NodeExists):
                    await retry_connection_loss(lambda parent=parent: session.create(parent, make_parents=True))  # type: ignore[misc]


class ConfigChanges(ChangeNotifications):
    """Watches the announcements under one session, and calls the handlers of their entity types."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        """`handlers`: entity type ("topics", "brokers", "clients", ...) -> what to do about an entity's change."""
        super().__init__("change of configuration", paths.CONFIG_CHANGE_PREFIX, self._announced, "config-changes")
        self._handlers = dict(handlers)

    def on_change(self, entity_type: str, handler: Handler) -> None:
        """Call `handler(entity name)` for every announced change of an entity of this type."""
        self._handlers[entity_type] = handler

    async def _announced(self, path: str, data: bytes) -> None:
        entity_type, _, name = znodes.decode_config_change(path, data).partition("/")
        handler = self._handlers.get(entity_type)
        if handler is None:
            return
        try:
            await handler(name)
        except ZkError:
            raise
        except Exception:
            log.exception("bug in taking up the configuration of %s/%s", entity_type, name)
