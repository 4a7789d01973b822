"""The id of a task: a subtopology, and the index of its source partitions.

Source: TaskId of Kafka Streams. A task is a tuple (named topology, subtopology, partition), so it hashes and sorts at
the speed of one, in Kafka's order.
"""

from __future__ import annotations

from typing import Self


class TaskId(tuple[str, int, int]):
    """A task id. Prints as Kafka's state directory: `0_3`, or `topology__0_3` in a named topology."""

    __slots__ = ()

    def __new__(cls, subtopology: int, partition: int, named_topology: str = "") -> Self:
        """Create an id, with arguments in spoken order; the tuple is in sort order."""
        return super().__new__(cls, (named_topology, subtopology, partition))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an id. Raises ValueError for an invalid one."""
        named_topology, separator, numbers = text.rpartition("__")
        subtopology, _, partition = numbers.partition("_")
        if not (subtopology.isdecimal() and partition.isdecimal()) or (separator and not named_topology):
            raise ValueError(f"{text!r} is not a task id")
        return cls(int(subtopology), int(partition), named_topology)

    @property
    def named_topology(self) -> str:
        """The task's named topology; empty in applications with one topology."""
        return self[0]

    @property
    def subtopology(self) -> int:
        """The subtopology's number, counted from its sources."""
        return self[1]

    @property
    def partition(self) -> int:
        """The partition of each of its source topics."""
        return self[2]

    def __str__(self) -> str:
        name = f"{self.subtopology}_{self.partition}"
        return f"{self.named_topology}__{name}" if self.named_topology else name

    __repr__ = __str__

    def __getnewargs__(self) -> tuple[int, int, str]:
        return self.subtopology, self.partition, self.named_topology
