"""A cache of the SCRAM credentials in ZooKeeper (/config/users).

The node loads all credentials when it joins its cluster. It reads a user's credentials again when a change of that
user's configuration is announced. Invalid credentials are skipped, with one log line that does not quote them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.authentication.scram_server import DIGESTS, Credential
from anabranch.broker.config.config_changes import read_config
from anabranch.broker.credentials import scram_store
from anabranch.broker.quotas.quota_configs import desanitize, sanitize

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)


class ScramCredentials:
    """The SCRAM credentials of all users, by mechanism."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Credential] = {}

    def of(self, mechanism: str, user: str) -> Credential | None:
        """Return a user's credential for a mechanism, or None."""
        return self._known.get((mechanism, user))

    async def load(self, session: ZkSession) -> None:
        """Read the credentials of all users."""
        users = await scram_store.users(session)
        gone = {user for _, user in self._known} - set(users)
        await self._read(session, [*users, *gone])

    async def on_change(self, session: ZkSession, entity: str) -> None:
        """Read one user's credentials again; `entity` is the name as in paths, and may include a client id."""
        user = desanitize(entity.partition("/")[0])
        if user is not None:
            await self.read(session, user)

    async def read(self, session: ZkSession, user: str) -> None:
        """Read one user's credentials again."""
        await self._read(session, [user])

    async def _read(self, session: ZkSession, users: Iterable[str]) -> None:
        for user in users:
            config = await read_config(session, f"users/{sanitize(user)}")
            for mechanism in DIGESTS:
                self._known.pop((mechanism, user), None)
                if mechanism in config:
                    try:
                        self._known[mechanism, user] = Credential.parse(config[mechanism])
                    except ValueError:
                        log.error("ignoring the malformed %s credential of user %r", mechanism, user)
