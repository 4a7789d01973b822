"""The callbacks with which an application moves its own state along with its keys (KIP-253, K618)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence

from anabranch.protocol.topic_partition import TopicPartition


class PartitionKeyRebalanceListener:
    """Callbacks to override; each may be plain or `async`.

    They run inside the call that asks for records, commits or stops, after everything delivered before is handled, and
    may call the consumer: commit in a revocation, seek in an assignment. An exception is raised to the caller, later
    steps are skipped, and the callback runs again with the next call. Keys move in two ways, and each has its pair of
    callbacks: whole partitions, in rebalances, and keys between partitions, in resizes. When a member is told to load,
    the previous owner was told to flush, unless it crashed or was removed from the group; then its uncommitted records
    are delivered again. Where the broker assigns (`group_protocol="consumer"`) there is no such barrier: a member that
    learns late of a resize flushes late, too.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> object:
        """These partitions go to other members, or return with the next assignment. Runs before the last commit.

        Before an eager rebalance: all partitions. At the end of a cooperative one (KIP-429): only those that it
        revokes.
        """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> object:
        """These partitions are read from now on: the whole assignment, or the additions of a cooperative rebalance,
        maybe none.

        Runs after every rebalance, before the positions of these partitions are looked up.
        """

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> object:
        """The group continued without this member: others may have read these partitions for some time already."""
        return self.on_partitions_revoked(partitions)

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> object:
        """Flush what belongs to keys read from these partitions so far: others may load it from now on.

        Runs once where a partition was cut, before the commit that opens others' gates, and before each rebalance for
        records read since. If it is due together with `on_partition_key_assigned`, it runs first.
        """

    def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> object:
        """Load what belongs to keys that may now arrive in these partitions: others have flushed it."""

    def holds_back(self, partition: TopicPartition, generation: int) -> bool:
        """Whether records of this generation have to wait in this partition, for reasons of the application.

        No callback: called often, before records are announced and delivered, and only when the group's gate is open.
        """
        return False

    def read_together(self, partition: TopicPartition) -> Sequence[TopicPartition]:
        """Return the partitions with which this one is read by time, itself included; nothing if it is read alone.

        Of the next records of such partitions, the one with the lowest timestamp is delivered first; of several, that
        of the partition that is named first here. If one of them has more records, and none of these is fetched, the
        others wait for it, unless it waits itself. No callback: called often.
        """
        return ()


async def call_listener(
    callback: Callable[[Collection[TopicPartition]], object], about: Collection[TopicPartition]
) -> None:
    """Run a callback, plain or `async`."""
    result = callback(sorted(about))
    if inspect.isawaitable(result):
        await result
