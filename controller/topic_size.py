"""Limits the size of a topic: its znode is replaced as a whole, so it has to fit into one request to ZooKeeper.

The largest znode of a resize or reassignment is measured before it starts, because a plan must be executable to its
end. POLICY_VIOLATION is the error of Kafka's controllers for a topic with too many partitions: the request is valid,
and this cluster refuses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from anabranch.controller.model import Retired, TopicBody, TopicPartition
from anabranch.controller.state import ClusterState
from anabranch.controller.zk import znodes
from anabranch.controller.zk.sizes import ZNODE_BYTES_MAX
from anabranch.protocol.errors import ErrorCode, KafkaError

PARTITION_BYTES_MIN: Final = len('"0":[1],')
PARTITIONS_MAX: Final = ZNODE_BYTES_MAX // PARTITION_BYTES_MIN
"""More than ever fit: such a count is refused before a list of that length is built."""
LONGEST: Final = (1 << 63) - 1


def check_count(name: str, count: int) -> None:
    """Raise KafkaError if no topic could have so many partitions."""
    if count > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, too_large(name, count * PARTITION_BYTES_MIN))


def check(name: str, body: TopicBody) -> None:
    """Raise KafkaError if a topic's znode would not fit."""
    size = len(znodes.encode_topic(body))
    if size > ZNODE_BYTES_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, too_large(name, size))


def check_merged(state: ClusterState, name: str, planned: TopicBody, count: int) -> None:
    """Raise KafkaError if the tombstones of the merged partitions would not fit (R13)."""
    retired = dict(planned.retired)
    for index in planned.assignment:
        if index >= count:
            committed = state.partitions.get(TopicPartition(name, index))
            gen_start = () if committed is None else committed.state.gen_start
            retired[index] = Retired(LONGEST, LONGEST, (*gen_start, (planned.generation + 1, LONGEST)))
    kept = {index: replicas for index, replicas in planned.assignment.items() if index <= count}
    check(name, replace(planned, assignment=kept, retired=retired))


def too_large(name: str, size_bytes: int) -> str:
    """Return the error message for a topic whose znode would be too large."""
    return (
        f"The topic '{name}' would need {size_bytes:,} bytes for its partitions and their replicas; the limit is "
        f"{ZNODE_BYTES_MAX:,} bytes (three quarters of jute.maxbuffer). Use fewer partitions, or several topics."
    )
