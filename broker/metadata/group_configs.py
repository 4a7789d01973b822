"""What was set for single groups: /config/groups, read under each session and taken up when it changes.

Names of groups are percent-encoded in znodes' names, as those of users are.
"""

from __future__ import annotations

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
    """Where the settings of a group are, below /config."""
    return f"groups/{quote(group_id, safe='')}"


class GroupConfigs:
    """The settings of all groups that have some."""

    def __init__(self, session: Callable[[], ZkSession]) -> None:
        self._session = session
        self._given: dict[str, Mapping[str, str]] = {}

    def of(self, group_id: str) -> Mapping[str, str]:
        """What was set for a group."""
        return self._given.get(group_id, NOTHING)

    async def load(self) -> None:
        """Read all of them: changes may have gone unnoticed."""
        session = self._session()
        try:
            names = await retry_connection_loss(lambda: session.children(paths.config("groups")))
        except NoNode:
            names = []
        self._given = {unquote(name): await read_config(session, f"groups/{name}") for name in names}

    async def changed(self, name: str) -> None:
        """The settings of a group were written."""
        given = await read_config(self._session(), f"groups/{name}")
        if given:
            self._given[unquote(name)] = given
        else:
            self._given.pop(unquote(name), None)
