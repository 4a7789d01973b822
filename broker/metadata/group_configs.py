"""The dynamic configurations of groups in /config/groups, read under each session and after each change.

Group ids are percent-encoded in znode names, as user names are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from anabranch.broker.config.config_changes import read_config
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import NoNode

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

NOTHING: Final[Mapping[str, str]] = {}


def entity(group_id: str) -> str:
    """The path of a group's configuration below /config."""
    return f"groups/{quote(group_id, safe='')}"


class GroupConfigs:
    """Cache of /config/groups."""

    def __init__(self, session: Callable[[], ZkSession]) -> None:
        self._session = session
        self._given: dict[str, Mapping[str, str]] = {}
        self._turn = asyncio.Lock()  # a load must not replace what a later change has read

    def of(self, group_id: str) -> Mapping[str, str]:
        """The properties that are set for a group."""
        return self._given.get(group_id, NOTHING)

    async def load(self) -> None:
        """Read the configurations of all groups, for changes between sessions."""
        session = self._session()
        async with self._turn:
            try:
                names = await retry_connection_loss(lambda: session.children(paths.config("groups")))
            except NoNode:
                names = []
            self._given = {unquote(name): await read_config(session, f"groups/{name}") for name in names}

    async def reload_group(self, name: str) -> None:
        """Read the changed configuration of one group; `name` is percent-encoded."""
        async with self._turn:
            given = await read_config(self._session(), f"groups/{name}")
            if given:
                self._given[unquote(name)] = given
            else:
                self._given.pop(unquote(name), None)
