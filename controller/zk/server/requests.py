"""The requests of ZooKeeper's clients, as the built-in server reads them.

A write that no server carries out (an invalid path, a kind of znode that is not here) is read with its refusal, because
in a multi it fails only after the writes before it. ACLs are not kept, so only the open one is accepted: a znode that
its creator believes to be protected would be worse. Source: `zookeeper.jute`, `PrepRequestProcessor`, `PathUtils`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Final

from anabranch.controller.zk.server.jute import JuteReader, MalformedRequest
from anabranch.controller.zk.session import Check, Create, Delete, Op, Set
from anabranch.protocol.values import value


class OpCode(enum.IntEnum):
    """The type of a request."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_WITH_STAT = 12
    CHECK = 13
    MULTI = 14
    CREATE_WITH_STAT = 15
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    CLOSE_SESSION = -11
    ERROR = -1


class Code(enum.IntEnum):
    """The error of a response (`KeeperException.Code`)."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    INVALID_ACL = -114
    AUTH_FAILED = -115


EPHEMERAL: Final = 1
SEQUENCE: Final = 2
FLAGS: Final = EPHEMERAL | SEQUENCE
CONTAINERS_AND_TTLS: Final = (4, 5, 6)
OPEN_ACL: Final = [(31, "world", "anyone")]
DIGEST: Final = "digest"
_ACL_BYTES_MIN: Final = 12
_INVALID: Final = re.compile("//|/\\.\\.?(/|\\Z)|[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


@value
class ConnectRequest:
    """The first message of a connection: opens a session, or resumes the one with this id and password."""

    timeout_ms: int
    session_id: int
    password: bytes
    knows_read_only: bool


@value
class GetData:
    """Read a znode."""

    path: str
    watch: bool


@value
class Exists:
    """Read the stat of a znode."""

    path: str
    watch: bool


@value
class GetChildren:
    """Read the names of a znode's children."""

    path: str
    watch: bool
    with_stat: bool


@value
class GetAcl:
    """Read the ACL of a znode."""

    path: str


@value
class Sync:
    """Have the server apply all earlier writes: one server always has."""

    path: str


@value
class Write:
    """One write, alone or in a multi."""

    kind: OpCode
    op: Op
    refusal: Code


@value
class Multi:
    """Writes of one transaction."""

    writes: tuple[Write, ...]


@value
class MultiRead:
    """Reads of one moment."""

    reads: tuple[GetData | GetChildren, ...]


@value
class SetWatches:
    """Set the watches of a resumed session again; those of changes after the zxid fire at once."""

    zxid: int
    data: tuple[str, ...]
    exists: tuple[str, ...]
    children: tuple[str, ...]


@value
class Authenticate:
    """A login."""

    scheme: str


@value
class SaslLogin:
    """A login by SASL."""


@value
class Ping:
    """Keeps the session alive."""


@value
class CloseSession:
    """Ends the session."""


@value
class Unsupported:
    """A request that this server does not have."""

    kind: int


Body = (
    GetData
    | Exists
    | GetChildren
    | GetAcl
    | Sync
    | Write
    | Multi
    | MultiRead
    | SetWatches
    | Authenticate
    | SaslLogin
    | Ping
    | CloseSession
    | Unsupported
)


@value
class Request:
    """A request with the number by which its response is recognized."""

    xid: int
    body: Body


def read_connect_request(message: bytes) -> ConnectRequest:
    """Read the first message of a connection. Raises MalformedRequest."""
    jute = JuteReader(message)
    jute.integer()  # protocol version
    jute.long()  # the last zxid that the client has seen: there is no other server which might have newer data
    timeout_ms, session_id, password = jute.integer(), jute.long(), jute.buffer()
    return ConnectRequest(timeout_ms, session_id, password, jute.left > 0)


def read_request(message: bytes) -> Request:
    """Read a request. Raises MalformedRequest."""
    jute = JuteReader(message)
    xid, kind = jute.integer(), jute.integer()
    read_body = _BODIES.get(kind)
    return Request(xid, Unsupported(kind) if read_body is None else read_body(jute))


def is_valid_path(path: str) -> bool:
    """Whether a znode may have this path."""
    return path == "/" or (path.startswith("/") and not path.endswith("/") and _INVALID.search(path) is None)


def _create(kind: OpCode) -> Callable[[JuteReader], Write]:
    def read(jute: JuteReader) -> Write:
        path, data = jute.text(), jute.buffer()
        acl = jute.many(lambda: (jute.integer(), jute.text(), jute.text()), _ACL_BYTES_MIN)
        flags = jute.integer()
        sequence = bool(flags & SEQUENCE)
        refusal = Code.OK
        if flags in CONTAINERS_AND_TTLS:
            refusal = Code.UNIMPLEMENTED
        elif flags & ~FLAGS or not path.startswith("/"):
            refusal = Code.BAD_ARGUMENTS
        elif acl != OPEN_ACL:
            refusal = Code.INVALID_ACL
        elif not is_valid_path(f"{path}0" if sequence else path):
            refusal = Code.BAD_ARGUMENTS
        return Write(kind, Create(path, data, bool(flags & EPHEMERAL), sequence), refusal)

    return read


def _delete(jute: JuteReader) -> Write:
    path, version = jute.text(), jute.integer()
    deletable = path != "/" and path.startswith("/")
    return Write(OpCode.DELETE, Delete(path, version), Code.OK if deletable else Code.BAD_ARGUMENTS)


def _set(jute: JuteReader) -> Write:
    op = Set(jute.text(), jute.buffer(), jute.integer())
    return Write(OpCode.SET_DATA, op, _path_refusal(op.path))


def _check(jute: JuteReader) -> Write:
    op = Check(jute.text(), jute.integer())
    return Write(OpCode.CHECK, op, _path_refusal(op.path))


def _path_refusal(path: str) -> Code:
    return Code.OK if is_valid_path(path) else Code.BAD_ARGUMENTS


def _get_data(jute: JuteReader) -> GetData:
    return GetData(jute.text(), jute.boolean())


def _get_children(jute: JuteReader) -> GetChildren:
    return GetChildren(jute.text(), jute.boolean(), with_stat=False)


def _set_watches(jute: JuteReader) -> SetWatches:
    return SetWatches(jute.long(), tuple(jute.texts()), tuple(jute.texts()), tuple(jute.texts()))


def _authenticate(jute: JuteReader) -> Authenticate:
    jute.integer()  # always 0
    return Authenticate(jute.text())


def _multi(jute: JuteReader) -> Multi:
    writes = []
    while (kind := _next_kind(jute)) is not None:
        if kind not in _WRITES:
            raise MalformedRequest(f"a multi with an operation of type {kind}")
        writes.append(_WRITES[kind](jute))
    return Multi(tuple(writes))


def _multi_read(jute: JuteReader) -> MultiRead:
    reads = []
    while (kind := _next_kind(jute)) is not None:
        if kind not in _READS:
            raise MalformedRequest(f"a multiRead with an operation of type {kind}")
        reads.append(_READS[kind](jute))
    return MultiRead(tuple(reads))


def _next_kind(jute: JuteReader) -> int | None:
    """Read the header of an operation: its type, or None after the last one."""
    kind, done = jute.integer(), jute.boolean()
    jute.integer()  # an error, in responses
    return None if done else kind


_WRITES: Final[dict[int, Callable[[JuteReader], Write]]] = {
    OpCode.CREATE: _create(OpCode.CREATE),
    OpCode.CREATE_WITH_STAT: _create(OpCode.CREATE_WITH_STAT),
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set,
    OpCode.CHECK: _check,
}
_READS: Final[dict[int, Callable[[JuteReader], GetData | GetChildren]]] = {
    OpCode.GET_DATA: _get_data,
    OpCode.GET_CHILDREN: _get_children,
}
_BODIES: Final[dict[int, Callable[[JuteReader], Body]]] = {
    **_WRITES,
    **_READS,
    OpCode.EXISTS: lambda jute: Exists(jute.text(), jute.boolean()),
    OpCode.GET_ACL: lambda jute: GetAcl(jute.text()),
    OpCode.GET_CHILDREN_WITH_STAT: lambda jute: GetChildren(jute.text(), jute.boolean(), with_stat=True),
    OpCode.SYNC: lambda jute: Sync(jute.text()),
    OpCode.MULTI: _multi,
    OpCode.MULTI_READ: _multi_read,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.AUTH: _authenticate,
    OpCode.SASL: lambda jute: SaslLogin(),
    OpCode.PING: lambda jute: Ping(),
    OpCode.CLOSE_SESSION: lambda jute: CloseSession(),
}
