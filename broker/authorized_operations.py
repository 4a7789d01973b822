"""The operations that a client may do with a resource, as a set of bits: all of them, as there is no authorizer.

Sources: Kafka's `AclOperation` for the numbers, `AclEntry.supportedOperations` for which exist per kind of resource.
"""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -(2**31)
"""The value of a field that the client has not asked for."""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(
    3, 13
)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER: Final = _bits(CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE)
GROUP: Final = _bits(READ, DESCRIBE, DELETE)
TOPIC: Final = _bits(READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS)
