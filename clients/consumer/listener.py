"""The callbacks through which an application moves its own state along with its keys (KIP-253, K618)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection

from anabranch.protocol.topic_partition import TopicPartition


class PartitionKeyRebalanceListener:
    """Override what you need; all may be plain or `async`.

    They run inside the call that asks for records, commits or stops, after everything handed out before has been dealt
    with, and may call the consumer: commit in a revocation, seek in an assignment. An exception is raised to the
    caller, nothing that should follow the callback happens, and it runs again with the next call. Keys move in two
    ways, and each has its pair: whole partitions, when members come and go, and keys between partitions, when a topic
    is resized. A member that is told to load can rely on it that the one before was told to flush, unless that one
    crashed or was thrown out of the group; then what it had not committed is delivered again. Where the broker assigns
    (`group_protocol="consumer"`) there is no barrier for it: a member that hears late of a resize flushes late, too.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> object:
        """These partitions go to other members, or come back with the next assignment. Runs before the last commit.

        Before a rebalance, all of them; in a cooperative one (KIP-429) only those that it takes away, at its end.
        """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> object:
        """These are read from now on: the whole assignment, or what a cooperative rebalance has added, maybe nothing.

        Runs after every rebalance, before the positions of these partitions are looked up.
        """

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> object:
        """The group went on without this member: others may have read these partitions for some time already."""
        return self.on_partitions_revoked(partitions)

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> object:
        """Flush what belongs to keys read from these partitions so far: others may load it from now on.

        Runs once where a partition was cut, before the commit that lets others go on, and before each rebalance for
        what was read since. If it is due together with `on_partition_key_assigned`, it runs first.
        """

    def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> object:
        """Load what belongs to keys that may now arrive in these partitions: others have flushed it."""

    def holds_back(self, partition: TopicPartition, generation: int) -> bool:
        """Whether records of this generation have to wait in this partition, for whatever the application knows.

        No callback: asked, often, before they are announced and handed out, and only when the group would have them.
        """
        return False


async def call_listener(
    callback: Callable[[Collection[TopicPartition]], object], about: Collection[TopicPartition]
) -> None:
    """Run a callback, plain or `async`."""
    result = callback(sorted(about))
    if inspect.isawaitable(result):
        await result
