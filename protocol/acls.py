"""What an access control list says: kinds of resources, operations and permissions, by number and by name.

The numbers are those of requests, the names those of Kafka's znodes and tools. Sources: Kafka's `ResourceType`,
`PatternType`, `AclOperation`, `AclPermissionType`; KIP-11, KIP-290, KIP-373.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from anabranch.protocol.values import value

EVERYBODY: Final = "User:*"
"""The principal of an entry that is about every user."""
ANYWHERE: Final = "*"
"""The host of an entry that is about every host."""
EVERY_NAME: Final = "*"
"""The literal name that stands for all resources of a type; with a prefix it is an ordinary character."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of the type CLUSTER."""


class ResourceType(IntEnum):
    """What a permission is about."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a pattern is compared with that of a resource."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What somebody wants to do."""

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
    """Whether an entry grants or takes away."""

    DENY = 2
    ALLOW = 3


Word = TypeVar("Word", ResourceType, Operation, Permission)


def to_camel(word: ResourceType | Operation | Permission) -> str:
    """The name in znodes: `TransactionalId`, `DescribeConfigs`, `Allow`."""
    return word.name.title().replace("_", "")


def from_camel(kind: type[Word], text: str) -> Word:
    """The value of a name in a znode, in any case; ValueError if there is none."""
    for word in kind:
        if to_camel(word).lower() == text.lower():
            return word
    raise ValueError(f"{text!r} is no {kind.__name__}")


@value
class ResourcePattern:
    """The resources that an entry is about: one, all of a type, or all whose names begin alike."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


@value
class Acl:
    """One entry: whether a principal, coming from a host, may do something."""

    principal: str
    host: str
    operation: Operation
    permission: Permission
