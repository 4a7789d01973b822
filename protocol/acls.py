"""The vocabulary of ACLs: resource types, operations and permissions, by number and by name.

The numbers are those of requests, the names those of Kafka's znodes and tools. Sources: Kafka's `ResourceType`,
`PatternType`, `AclOperation`, `AclPermissionType`; KIP-11, KIP-290, KIP-373.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from anabranch.protocol.values import value

EVERYBODY: Final = "User:*"
"""The principal of an entry for every user."""
ANYWHERE: Final = "*"
"""The host of an entry for every host."""
EVERY_NAME: Final = "*"
"""The literal name for all resources of a type; with a prefix it is an ordinary character."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of the type CLUSTER."""
ANY: Final = 1
"""In a filter: every type, operation or permission."""
MATCH: Final = 2
"""In a filter: the patterns of every type that match a name."""


class ResourceType(IntEnum):
    """The type of an ACL's resource."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern's name is compared with a resource's."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation on a resource."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """Whether an entry allows or denies."""

    DENY = 2
    ALLOW = 3


_T, _O = ResourceType, Operation
SUPPORTED: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    _T.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    _T.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE),
    _T.CLUSTER: (
        *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE),
    ),
    _T.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
    _T.DELEGATION_TOKEN: (_O.DESCRIBE,),
    _T.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations reported for a resource (KIP-430)."""

Word = TypeVar("Word", ResourceType, Operation, Permission)


def to_camel(word: ResourceType | Operation | Permission) -> str:
    """Return the name in znodes: `TransactionalId`, `DescribeConfigs`, `Allow`."""
    return word.name.title().replace("_", "")


def from_camel(kind: type[Word], text: str) -> Word:
    """Return the value of a name in a znode, in any case. Raises ValueError for an unknown one."""
    for word in kind:
        if to_camel(word).lower() == text.lower():
            return word
    raise ValueError(f"{text!r} is not a {kind.__name__}")


@value
class ResourcePattern:
    """The resources of an entry: one, all of a type, or all with a prefix."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


@value
class Acl:
    """One entry: whether a principal, connecting from a host, may perform an operation."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


@value
class AclFilter:
    """A filter for entries. None and `ANY` match all; `MATCH` matches each pattern that applies to a name."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def covers(self, pattern: ResourcePattern) -> bool:
        """Whether the filter matches a pattern."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if pattern.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == EVERY_NAME

    def picks(self, acl: Acl) -> bool:
        """Whether the filter matches an entry of a matching pattern. Nothing is implied: ALL is one operation."""
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )
