"""Detects records whose key belongs to another partition: such a key's state cannot follow it through a resize.

A resize moves state by the hash of its key (`state_handover`), as the topic's own producers place records: murmur2 and
linear hashing. Stock producers place them as they like, often by a modulo over the partitions they see. As long as a
topic was never resized that does no harm, because the records of a key lie in one partition, whichever it is. Once it
was, the records of a key and its state may meet in different tasks, and each goes on from state that lacks the other's
records, without any sign. So a task with state looks at the place of each key:

    in a topic that was resized, a misplaced record fails like one that the application raises for: `processing_handler`
    decides whether the instance ends or goes on without it
    in a topic that was not, the task leaves a mark in its changelogs, once. When the topic is resized, an instance that
    finds the mark ends, before any state is moved on

A topic whose stock producers place keys by murmur2, and that only ever doubles, has none of these: there the modulo and
linear hashing agree. Pure; the policy that lets stock producers write to a resized topic is `reshard.legacy.producers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.changelog import Marks
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import addressing


class MisplacedKey(Exception):
    """A record of a resized topic is in another partition than its key's."""

    def __init__(self, topic: str, belongs_to: int, count: int) -> None:
        super().__init__(
            f"its key belongs to {topic}-{belongs_to} of {count} partitions, so its state is in another task. It was "
            "written by a producer with another partitioner (reshard.legacy.producers=refuse refuses such producers)"
        )


class KeyPlaces:
    """Computes the partitions of one topic's keys."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self.resized = len(lineage.history) > 1
        """Whether the topic ever had another number of partitions."""
        self._generation = -1
        self._count = 0
        self._address: Callable[[int], int] = addressing(lineage.base, lineage.base)

    def check_place(self, record: ConsumerRecord) -> MisplacedKey | None:
        """Return the error of a misplaced record; None if its place is right, or if it has no key."""
        if record.key is None:
            return None
        if record.generation != self._generation:
            self._generation, self._count = record.generation, self._lineage.count_at(record.generation)
            self._address = addressing(self._lineage.base, self._count)
        belongs_to = self._address(murmur2(record.key))
        return None if belongs_to == record.partition else MisplacedKey(record.topic, belongs_to, self._count)


def check_state_may_move(task: TaskId, marks: Collection[Marks], lineage: Lineage) -> None:
    """Raise `StreamsError` if a task's input was resized and has had misplaced keys, by the marks of its stores."""
    found = next((one.misplaced for one in marks if one.misplaced), "")
    if found and len(lineage.history) > 1:
        raise StreamsError(
            f"{task} has state of keys of other partitions, and its input was resized. State moves by the hash of its "
            f"key, away from the records of these keys. One such key is {found} written by a producer with another "
            "partitioner. Start again with another application id, and repartition the stream before the store; or "
            "create the topic again with reshard.legacy.producers=refuse"
        )
