"""Translates between kazoo's values and the port's: errors, stats, kinds of watch events, ACLs and logins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from kazoo import exceptions as kz
from kazoo.protocol.states import EventType, ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from anabranch.controller.zk import session as zk
from anabranch.controller.zk.access import SASL, Access, Login
from anabranch.controller.zk.session import Op, Stat, ZkError

ERRORS: Final[tuple[tuple[type[Exception], type[ZkError]], ...]] = (
    (kz.NoNodeError, zk.NoNode),
    (kz.NodeExistsError, zk.NodeExists),
    (kz.BadVersionError, zk.BadVersion),
    (kz.NotEmptyError, zk.NotEmpty),
    (kz.NoChildrenForEphemeralsError, zk.NoChildrenForEphemerals),
    (kz.SessionExpiredError, zk.SessionExpired),  # also when closed
    (kz.ConnectionLoss, zk.ConnectionLoss),
    (kz.OperationTimeoutError, zk.ConnectionLoss),
    (kz.SessionMovedError, zk.ConnectionLoss),
    (kz.UnimplementedError, zk.Unimplemented),
    (kz.NoAuthError, zk.NoAuth),
    (kz.AuthFailedError, zk.LoginRefused),
)
WATCH_KINDS: Final[dict[str, Literal["created", "deleted", "changed", "children", "lost"]]] = {
    EventType.CREATED: "created",
    EventType.DELETED: "deleted",
    EventType.CHANGED: "changed",
    EventType.CHILD: "children",
    EventType.NONE: "lost",
}
ACLS: Final[dict[Access, list[ACL]]] = {
    Access.OPEN: OPEN_ACL_UNSAFE,
    Access.READABLE: [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    Access.PRIVATE: CREATOR_ALL_ACL,
}


def login_arguments(login: Login | None) -> dict[str, Any]:
    """Return kazoo's arguments for a login."""
    if login is None:
        return {}
    if login.scheme == SASL:
        return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": login.user, "password": login.password}}
    return {"auth_data": [(login.scheme, f"{login.user}:{login.password}")]}


def stat_of(stat: ZnodeStat) -> Stat:
    """Convert kazoo's stat to the port's."""
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner, stat.numChildren)


def translate(error: Exception, path: str, index: int | None = None) -> Exception:
    """Return the port's error for kazoo's: a plain ZkError for others of kazoo, and any other exception unchanged."""
    for theirs, ours in ERRORS:
        if isinstance(error, theirs):
            return ours(path, index)
    return ZkError(f"{path} ({error!r})", index) if isinstance(error, kz.KazooException) else error


def raise_first_failure(ops: Sequence[Op], answers: Sequence[object]) -> None:
    """Raise the error that failed a multi, not those of rolled back or skipped operations."""
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception) and not isinstance(answer, kz.RolledBackError | kz.RuntimeInconsistency):
            raise translate(answer, ops[index].path, index)
