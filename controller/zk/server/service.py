"""The built-in ZooKeeper: its sessions and watches, and the execution of each request. It does no I/O.

A session lives on when its connection is lost, until its timeout: a client that comes back with its id and password
resumes it on the new connection. Its ephemerals are deleted in one transaction when it ends. Watches belong to the
connection. A write sends their events before its own response, and every request is executed when it is read, so no
connection shows new data before the event. Source: `ZooKeeperServer`, `SessionTrackerImpl`, `FinalRequestProcessor`.

Not here: ACLs (only the open one is accepted), containers and TTLs, quotas, other servers. Sessions end with this
process: a client that comes back after a restart is told that its session has expired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar, assert_never

from anabranch.controller.zk.server import jute, responses
from anabranch.controller.zk.server.jute import MalformedRequest
from anabranch.controller.zk.server.requests import (
    DIGEST,
    Authenticate,
    Body,
    CloseSession,
    Code,
    ConnectRequest,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    OpCode,
    Ping,
    SaslLogin,
    SetWatches,
    Sync,
    Unsupported,
    Write,
)
from anabranch.controller.zk.server.session_password import password_of
from anabranch.controller.zk.session import (
    BadVersion,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    WatchEvent,
    ZkError,
)
from anabranch.controller.zk.tree import ZnodeTree
from anabranch.controller.zk.watch_manager import WatchManager

log = logging.getLogger(__name__)

T = TypeVar("T")

TIMEOUT_MIN_MS: Final = 500
TIMEOUT_MAX_MS: Final = 120_000
MULTI_READ_BYTES_MAX: Final = 64 << 20
"""The limit of one response to many reads: a request of 1 MB can name a large znode 60,000 times."""
CODES: Final[dict[type[ZkError], Code]] = {
    NoNode: Code.NO_NODE,
    BadVersion: Code.BAD_VERSION,
    NoChildrenForEphemerals: Code.NO_CHILDREN_FOR_EPHEMERALS,
    NodeExists: Code.NODE_EXISTS,
    NotEmpty: Code.NOT_EMPTY,
}
NO_LOGIN: Final = "the built-in ZooKeeper has no logins and no ACLs; use --zookeeper local, or an ensemble"


class Refused(ZkError):
    """A request that this server does not carry out."""

    def __init__(self, code: Code) -> None:
        super().__init__()
        self.code = code


class LoginRefused(Refused):
    """A login that this server does not have; its connection is closed."""


class Watcher(Protocol):
    """The connection of a client."""

    def send(self, message: bytes) -> None:
        """Send a message."""

    def close(self, reason: str = "") -> None:
        """Close the connection when all is sent; log a reason that is an error of the client."""


@dataclass(slots=True, eq=False)
class ServerSession:
    """One session."""

    session_id: int
    timeout_ms: int
    deadline_s: float
    connection: Watcher | None


class ZooKeeperService:
    """The state of one server.

    Args:
        tree: The znodes, none of them ephemeral.
        first_session_id: Greater than all ids of earlier processes with this tree.
        clock: The time for sessions, in seconds.
        wall_clock_ms: The time that znodes show, in milliseconds since the epoch.
    """

    def __init__(
        self,
        tree: ZnodeTree,
        *,
        first_session_id: int,
        clock: Callable[[], float],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.tree = tree
        self.sessions: dict[int, ServerSession] = {}
        self._watches: WatchManager[Watcher] = WatchManager()
        self._next_session_id = first_session_id
        self._clock = clock
        self._wall_clock_ms = wall_clock_ms
        self._owner_refused = False

    # ---------------------------------------------------------------------------------------------- sessions

    def connect(self, request: ConnectRequest, connection: Watcher) -> ServerSession | None:
        """Open or resume a session on a connection, which closes its former one; None if it has expired."""
        timeout_ms = min(max(request.timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)
        if not request.session_id:
            session = ServerSession(self._next_session_id, timeout_ms, 0.0, None)
            self._next_session_id += 1
            self.sessions[session.session_id] = session
            self.tree.zxid += 1  # a transaction, as in ZooKeeper
        else:
            known = self.sessions.get(request.session_id)
            if known is None or request.password != password_of(request.session_id):
                return None
            session = known
            session.timeout_ms = timeout_ms
        former, session.connection = session.connection, connection
        if former is not None:
            former.close()
        self.touch(session)
        return session

    def touch(self, session: ServerSession) -> None:
        """Postpone the session's end: its client has sent something."""
        session.deadline_s = self._clock() + session.timeout_ms / 1000

    def disconnect(self, connection: Watcher) -> None:
        """Drop what belongs to a lost connection; its session waits for another one."""
        self._watches.remove(lambda watcher: watcher is connection)
        for session in self.sessions.values():
            if session.connection is connection:
                session.connection = None

    def end_session(self, session: ServerSession) -> None:
        """End a session, and delete its ephemerals."""
        if self.sessions.pop(session.session_id, None) is not None:
            ephemerals = [Delete(path) for path in self.tree.owned_by(session.session_id)]
            self._write(partial(self.tree.perform, session.session_id, ephemerals))

    def expire_sessions(self) -> None:
        """End the sessions whose clients were silent for their timeout, and close their connections."""
        now_s = self._clock()
        for session in [one for one in self.sessions.values() if one.deadline_s <= now_s]:
            log.info("session %#x has expired after %d ms", session.session_id, session.timeout_ms)
            self.end_session(session)
            if session.connection is not None:
                session.connection.close()

    # ---------------------------------------------------------------------------------------------- requests

    def execute(self, session: ServerSession, connection: Watcher, request: Body) -> bytes:
        """Execute a request, and return the body of its response. Raises ZkError."""
        match request:
            case GetData() | Exists() | GetChildren() | GetAcl() | MultiRead():
                return self._read(connection, request)
            case Write():
                return self._write(partial(self._perform, session, request))
            case Multi():
                return self._multi(session, request)
            case SetWatches():
                self._set_watches(connection, request)
            case Sync():
                return jute.text(request.path)
            case CloseSession():
                self.end_session(session)
            case Authenticate():
                if request.scheme != DIGEST:
                    raise LoginRefused(Code.AUTH_FAILED)
            case SaslLogin():
                raise LoginRefused(Code.AUTH_FAILED)
            case Ping():
                pass
            case Unsupported():
                raise Refused(Code.UNIMPLEMENTED)
            case _:
                assert_never(request)
        return b""

    def _read(self, connection: Watcher, request: GetData | Exists | GetChildren | GetAcl | MultiRead) -> bytes:
        match request:
            case MultiRead():
                return responses.results_body(self._read_each(connection, request.reads))
            case Exists():
                if request.watch:
                    self._watches.watch_data(request.path, connection)
                return jute.stat(self.tree.node(request.path))
            case GetData():
                found = self.tree.node(request.path)  # raises before the watch is set, as ZooKeeper does
                if request.watch:
                    self._watches.watch_data(request.path, connection)
                return responses.data_body(found)
            case GetChildren():
                found = self.tree.node(request.path)
                if request.watch:
                    self._watches.watch_children(request.path, connection)
                names = jute.texts(found.children)
                return names + jute.stat(found) if request.with_stat else names
            case GetAcl():
                return responses.ACL + jute.stat(self.tree.node(request.path))
            case _:
                assert_never(request)

    def _read_each(self, connection: Watcher, reads: Iterable[GetData | GetChildren]) -> Iterator[bytes]:
        """Yield the results of many reads. Raises MalformedRequest above the limit; clients read one by one then."""
        size = 0
        for one in reads:
            result = self._read_one(connection, one)
            size += len(result)
            if size > MULTI_READ_BYTES_MAX:
                raise MalformedRequest(f"a multiRead of over {MULTI_READ_BYTES_MAX:,} bytes")
            yield result

    def _read_one(self, connection: Watcher, request: GetData | GetChildren) -> bytes:
        kind = OpCode.GET_DATA if isinstance(request, GetData) else OpCode.GET_CHILDREN
        try:
            return responses.result(kind, self._read(connection, request))
        except ZkError as error:
            return responses.failed_result(code_of(error))

    def _multi(self, session: ServerSession, request: Multi) -> bytes:
        """Execute all writes or none: then those before the failed one have no error, those after it another."""
        done: list[bytes] = []

        def perform_all() -> None:
            for write in request.writes:
                done.append(responses.result(write.kind, self._perform(session, write, in_multi=True)))

        try:
            self._write(perform_all)
        except ZkError as error:
            after = len(request.writes) - len(done) - 1
            codes = [Code.OK] * len(done) + [code_of(error)] + [Code.RUNTIME_INCONSISTENCY] * after
            return responses.results_body(map(responses.failed_result, codes))
        return responses.results_body(done)

    def _perform(self, session: ServerSession, write: Write, *, in_multi: bool = False) -> bytes:
        """Execute a write in the current transaction, and return the body of its response."""
        if write.refusal:
            if write.refusal is Code.INVALID_ACL and not self._owner_refused:
                self._owner_refused = True  # once: a client may try many
                log.warning("%s is refused: %s", write.op.path, NO_LOGIN)
            if write.refusal is Code.BAD_ARGUMENTS and isinstance(write.op, Create):
                self.tree.node_of_parent(write.op.path)  # a missing parent is found first
            raise Refused(write.refusal)
        created = self.tree.perform_one(session.session_id, write.op)
        match write.kind:
            case OpCode.CREATE:
                return jute.text(str(created))
            case OpCode.CREATE_WITH_STAT:
                return jute.text(str(created)) + jute.stat(self.tree.node(str(created)))
            case OpCode.SET_DATA:
                return jute.stat(self.tree.node(write.op.path))
            case OpCode.CHECK if not in_multi:
                return jute.stat(self.tree.node(write.op.path))
            case _:
                return b""

    def _write(self, apply: Callable[[], T]) -> T:
        """Run a transaction, and send the events of its watches, one to a connection for each change."""
        self.tree.now_ms = self._wall_clock_ms()
        result, changes = self.tree.transact(apply)
        for change in changes:
            for connection in dict.fromkeys(self._watches.trigger(change)):
                connection.send(responses.watch_event(change, self.tree.zxid))
        return result

    def _set_watches(self, connection: Watcher, request: SetWatches) -> None:
        """Set watches again, and send the events of changes that the client has missed (`DataTree.setWatches`)."""
        missed: list[WatchEvent] = []
        for path in request.data:
            node = self.tree.nodes.get(path)
            if node is None:
                missed.append(WatchEvent(path, "deleted"))
            elif node.mzxid > request.zxid:
                missed.append(WatchEvent(path, "changed"))
            else:
                self._watches.watch_data(path, connection)
        for path in request.exists:
            if path in self.tree.nodes:
                missed.append(WatchEvent(path, "created"))
            else:
                self._watches.watch_data(path, connection)
        for path in request.children:
            node = self.tree.nodes.get(path)
            if node is None:
                missed.append(WatchEvent(path, "deleted"))
            elif node.pzxid > request.zxid:
                missed.append(WatchEvent(path, "children"))
            else:
                self._watches.watch_children(path, connection)
        for event in missed:
            connection.send(responses.watch_event(event, self.tree.zxid))


def code_of(error: ZkError) -> Code:
    """Return the error code of a response."""
    return error.code if isinstance(error, Refused) else CODES[type(error)]
