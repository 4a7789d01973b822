"""Access control of znodes, and the login of a session.

Each znode has an ACL, which remains after its creator's session. With
`zookeeper.set.acl=true` each znode that is made belongs to the login that made it, which all nodes of a cluster share:

    readable    its owners do everything, everybody reads: most znodes, so that tools can look
    private     only its owners read: users' keys, tokens, and settings of brokers
    open        everybody does everything: /consumers, in which consumers of long ago write their offsets

Znodes that are there already stay as they are. Source: Kafka's `ZkData.defaultAcls`.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

from anabranch.controller.zk import paths
from anabranch.protocol.values import value

DIGEST: Final = "digest"
SASL: Final = "sasl"
FORM: Final = f"{DIGEST}:USER:PASSWORD, or {SASL}:USER:PASSWORD for an ensemble with SASL users"
_PRIVATE: Final = ("/config/users", paths.BROKER_CONFIGS, "/delegation_token/tokens")


class Access(enum.Enum):
    """The permissions on a znode of clients that do not own it."""

    OPEN = "open"
    READABLE = "readable"
    PRIVATE = "private"


def access_to(path: str, *, secured: bool) -> Access:
    """Return the permissions of other clients on a new znode."""
    if not secured or path == paths.CONSUMERS:
        return Access.OPEN
    return Access.PRIVATE if path.startswith(_PRIVATE) else Access.READABLE


@value
class Login:
    """The login of a session.

    With the scheme "digest" any server accepts any user and password, and compares them only with a znode's owner: the
    password is part of the owner's name, as a hash. With "sasl" (DIGEST-MD5) the server has a list of users.
    """

    scheme: str
    user: str
    password: str = dataclasses.field(repr=False)


def login_in(text: str) -> Login:
    """Parse a login in the `FORM`. Raises ValueError, which does not quote it."""
    scheme, _, rest = text.partition(":")
    user, _, password = rest.partition(":")
    if scheme not in (DIGEST, SASL) or not user or not password:
        raise ValueError(f"write {FORM}")
    return Login(scheme, user, password)
