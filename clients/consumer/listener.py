"""The callbacks through which an application moves its own state along with its keys (KIP-253, contract F18)."""

from __future__ import annotations

from collections.abc import Collection

from protocol.topic_partition import TopicPartition


class PartitionKeyRebalanceListener:
    """Override what you need; both may be plain or `async`.

    Both run inside the call that asks for records, after everything handed out before has been dealt with. If both are
    due at once, `on_partition_key_maybe_revoked` runs first. An exception leaves the boundary uncrossed: it is raised
    to the caller, and the callback runs again with the next call. A crash may repeat a callback, never skip one.
    """

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> object:
        """Flush what belongs to keys read from these partitions so far: others may load it from now on."""

    def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> object:
        """Load what belongs to keys that may now arrive in these partitions: others have flushed it."""
