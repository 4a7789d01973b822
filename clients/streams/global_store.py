"""The store of a global table on disk: the latest value of each key, and how far each partition of the topic was read.

Rows and positions are written together, so after a crash reading goes on where the rows end. Nothing here belongs to a
transaction of a task. A store that no longer belongs to its topic starts over: by the rules of changelogs
(`changelog_bounds`), or if a partition was merged away and split off again meanwhile, so that its offsets may begin
again. The positions are the marks of the store on disk.

Invariant: the store has the rows of every record below its positions, and no newer ones. Source: GlobalStateManagerImpl
and GlobalStateUpdateTask of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.changelog_bounds import ChangelogBounds, reset_reason
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk, Write
from anabranch.clients.streams.topology_graph import Subtopology
from anabranch.protocol.lineage import Lineage

GENERATION: Final = b"generation"
"""The mark with the topic's generation when the positions were written."""
NO_GENERATION: Final = -1


class GlobalStore:
    """The store of one global table of an instance."""

    def __init__(self, part: Subtopology, disk: TaskDisk) -> None:
        """Create the store of a part of the topology (`Built.global_tables`)."""
        (self.topic,), (self.name,) = part.sources, part.stores
        self.part = part
        self.disk = disk
        self.rows = StateStore(self.name, disk, timestamped=True)
        marks = disk.marks(self.name)
        self.generation = int(marks.pop(GENERATION, b"%d" % NO_GENERATION))
        self.positions = {int(partition): int(offset) for partition, offset in marks.items() if offset}
        """The next offset to read, by partition."""

    def apply(self, records: Iterable[ConsumerRecord], positions: Mapping[int, int], generation: int) -> None:
        """Store records, in their order; then every record below these positions is stored."""
        changes = {record.key: self.rows.row_of(record) for record in records if record.key is not None}
        moved = {one: at for one, at in positions.items() if self.positions.get(one) != at}
        if changes or moved:
            self._write(changes, {b"%d" % one: b"%d" % at for one, at in moved.items()}, generation)
            self.positions.update(moved)

    def forget_others(self, partitions: Collection[int]) -> None:
        """Forget the positions in other partitions: they were removed, and begin at 0 if they come again."""
        gone = self.positions.keys() - set(partitions)
        if gone:
            self._write({}, {b"%d" % one: b"" for one in gone}, self.generation)
            for one in gone:
                del self.positions[one]

    def reset_reason(self, bounds: Mapping[int, ChangelogBounds | None], lineage: Lineage | None) -> str | None:
        """Return why the store has to start over; None while it belongs to its topic. `bounds` are those of the
        partitions that reading begins in, looked up since the positions were last written; None where unknown.
        """
        for partition, one in sorted(bounds.items()):
            if one is None:
                continue
            position = self.positions.get(partition, one.start)
            reason = reset_reason(position, self.rows.topic_id, one)
            if reason is not None:
                reason = reason.replace("changelog", "topic").replace("checkpoint", "position")
                return f"{self.topic}-{partition}: {reason}"
        if lineage is not None:
            for partition in sorted(self.positions.keys() & bounds.keys()):
                if has_returned(lineage, partition, self.generation):
                    return f"{self.topic}-{partition} was merged away and split off again"
        return None

    def note_topic(self, topic_id: bytes) -> None:
        """Note which topic the store belongs to."""
        if topic_id != self.rows.topic_id:
            self.disk.write(Write(topic_ids={self.name: topic_id}))
            self.rows.topic_id = topic_id

    def start_over(self) -> None:
        """Delete everything: the topic is read from its start."""
        self.disk.clear(self.name)
        self.positions, self.generation, self.rows.topic_id = {}, NO_GENERATION, b""

    def close(self) -> None:
        """Close the disk."""
        self.disk.close()

    def _write(self, changes: Mapping[bytes, bytes | None], marks: Mapping[bytes, bytes], generation: int) -> None:
        marks = {**marks, GENERATION: b"%d" % generation}
        self.disk.write(Write(changes={self.name: changes}, marks={self.name: marks}))
        self.generation = generation


def has_returned(lineage: Lineage, partition: int, since: int) -> bool:
    """Whether a topic has had a partition, was without it, and has it again, in the generations from `since` on.

    It may be removed in between, and then its offsets begin again.
    """
    counts = [count for generation, count in lineage.history if generation > since]
    if since >= lineage.history[0][0]:
        counts.insert(0, lineage.count_at(since))
    without = next((place for place, count in enumerate(counts) if count <= partition), len(counts))
    return any(count > partition for count in counts[without:])
