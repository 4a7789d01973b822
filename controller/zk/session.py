"""The ZooKeeper port: the operations that the cluster uses, and their guarantees.

A `ZkSession` is one ZooKeeper session, from its first connection to its end. It never resumes after its end: after
EXPIRED (or `close`) every call raises SessionExpired, and the owner opens a new session. So an object that holds a
session can never act under a newer one by accident, which is what fencing by ephemeral znodes needs.

What every adapter promises:

- Requests of one session are carried out in the order they were made; writes and conditional writes are linearizable.
  Reads are not: a server of an ensemble may lag behind what another session has written. `sync` has it catch up.
- `multi` is all or nothing, and its failure names the first operation that failed.
- A write that is larger than a server reads (`sizes`) raises TooLarge, and nothing happens.
- A watch fires once. A session is told of a change by its watch *before* any of its reads can show the new data.
  The watch may come before the read that set it returns: so a callback notes that something changed and lets
  its owner read again; it never compares.
- While the connection is down (SUSPENDED) nothing is known: requests under way raise ConnectionLoss and may or may
  not have been carried out, later ones wait, and every watch fires with the kind "lost" and is gone.
- Callbacks run on the event loop, after the session event that caused them.

Adapters: `memory` (in process), `kazoo_session` (real server); tests/contracts/test_zk_session.py holds them together.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from anabranch.protocol.values import value

ANY_VERSION = -1


@value
class Stat:
    """The stat of a znode."""

    czxid: int  # transaction that created it: for /brokers/ids/N this is the broker epoch
    mzxid: int  # transaction that last wrote its data
    version: int  # writes to its data since creation
    ephemeral_owner: int  # session id, or 0
    children_count: int


class ZkError(Exception):
    """A failed ZooKeeper request; `index` is the place of the failing operation in a multi."""

    def __init__(self, path: str = "", index: int | None = None) -> None:
        super().__init__(path, index)
        self.path = path
        self.index = index

    def __str__(self) -> str:
        where = f" {self.path}" if self.path else ""
        return f"{type(self).__name__}{where}" + (
            f" (operation {self.index} of a multi)" if self.index is not None else ""
        )


class NoNode(ZkError):
    """The znode, or the parent of one to be created, does not exist."""


class NodeExists(ZkError):
    """The znode to be created exists."""


class BadVersion(ZkError):
    """The znode's data version is not the expected one: another writer has changed it."""


class NotEmpty(ZkError):
    """The znode to be deleted has children."""


class NoChildrenForEphemerals(ZkError):
    """An ephemeral znode cannot be a parent."""


class SessionExpired(ZkError):
    """The session is over (expired or closed); its ephemerals are deleted, and this object is no longer usable."""


class ConnectionLoss(ZkError):
    """The connection broke during the request: it may or may not have been executed."""


class NoServerListens(ConnectionLoss):
    """No server accepted a first connection in time: none listens at these addresses, or not yet."""


class TooLarge(ZkError):
    """The request exceeds ZooKeeper's size limit: nothing was sent, and a retry does not help."""

    def __init__(self, path: str = "", index: int | None = None, *, size_bytes: int = -1) -> None:
        super().__init__(path, index)
        self.size_bytes = size_bytes

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.size_bytes:,} bytes)"


class NoAuth(ZkError):
    """The znode belongs to another login, or the server refuses this session's."""

    def __str__(self) -> str:
        where = f"{self.path or 'this'} belongs to another login"
        return f"ZooKeeper refuses: {where}; zookeeper.auth must be equal on all nodes of the cluster"


class LoginRefused(NoAuth):
    """The server does not know the session's user, or the password is wrong."""

    def __str__(self) -> str:
        return f"ZooKeeper refuses the login of zookeeper.auth: {self.path}"


class Unimplemented(ZkError):
    """The server does not support this request."""


@value
class Create:
    """Create a znode whose parent exists."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequence: bool = False


@value
class Set:
    """Replace a znode's data if it has the version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@value
class Delete:
    """Delete a childless znode if it has the version."""

    path: str
    version: int = ANY_VERSION


@value
class Check:
    """Fail the multi unless the znode has the version: this fences a write."""

    path: str
    version: int


Op = Create | Set | Delete | Check


class SessionEvent(enum.Enum):
    """A change of a session's state."""

    CONNECTED = "connected"  # again, after SUSPENDED, and still the same session
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


@value
class WatchEvent:
    """A watch's event. "lost" has no path: the watch is lost and anything may have changed, so read again."""

    path: str | None
    kind: Literal["created", "deleted", "changed", "children", "lost"]


WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionEvent], None]


class ZkSession(Protocol):
    """One ZooKeeper session. Versions of -1 match any."""

    @property
    def session_id(self) -> int:
        """The `ephemeral_owner` of this session's ephemerals."""

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Return data and stat; the watch fires on changed and deleted, and is not set when this raises NoNode."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return data and stat of each znode in one snapshot, None for missing ones; without watches."""

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """Return the names of the children, sorted; the watch fires on children and deleted."""

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Return the stat or None; the watch is set either way, and fires on created, changed and deleted."""

    async def sync(self) -> None:
        """Let later reads of this session show all writes that were completed before this call."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a znode and return its path (with ten digits appended for a sequence)."""
        created, _ = await self.create_with_stat(
            path, data, ephemeral=ephemeral, sequence=sequence, make_parents=make_parents
        )
        return created

    async def create_with_stat(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> tuple[str, Stat]:
        """Create a znode, and return also its stat from the same transaction."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace the data."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a childless znode."""

    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        """Execute all operations or none: path of a Create, stat of a Set, None of a Delete or Check."""

    def on_session(self, callback: SessionCallback) -> None:
        """Call back on every session event from now on."""

    async def close(self) -> None:
        """End the session: its ephemerals are deleted at once, its watches never fire again."""
