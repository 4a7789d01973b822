"""The state of one task: its stores, how much of their changelogs they hold, and how far they are restored.

Changes of a running task wait in memory until the transaction that carries them to the changelogs, together with the
input's offsets and the output, is committed; then they go to the disk with the new checkpoints, in one write. So the
disk never has what was not committed, and an aborted transaction is forgotten by dropping a dict.

Knows nothing of the task's state: `tasks` and `task_machine` say when it is restored, and up to where. Pure, but for
the disk. Source: ProcessorStateManager of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.changelog import Checkpoint, Marks, arrived_mark, is_mark
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk, Write


class ProcessorStateManager:
    """The stores of one task, by name."""

    def __init__(self, stores: Iterable[str], timestamped: Collection[str], disk: TaskDisk) -> None:
        self.disk = disk
        self.stores = {name: StateStore(name, disk, timestamped=name in timestamped) for name in stores}
        self.targets: dict[str, int] | None = None
        """The offset of each changelog that must be reached before the task may run; None while unknown."""
        self.unchecked = True
        """Whether the stores are not compared with the bounds of their changelogs yet, or doubted since."""

    @property
    def checkpoint_sum(self) -> int:
        """The sum of the checkpoints."""
        return sum(store.checkpoint.offset for store in self.stores.values())

    @property
    def entries(self) -> int:
        """The number of keys in the stores on disk."""
        return sum(self.disk.entries(name) for name in self.stores)

    @property
    def cut_off(self) -> bool:
        """Whether the changelog of a store has lost its first records."""
        return any(store.cut_off for store in self.stores.values())

    @property
    def changed(self) -> bool:
        """Whether there is anything to commit besides offsets."""
        return any(store.changes for store in self.stores.values())

    def on_committed(self, written: Mapping[str, Sequence[int]], *, transactional: bool) -> None:
        """Write changes that were committed to the changelogs at these offsets to the disk."""
        for name, store in self.stores.items():
            offsets = written.get(name, ())
            if offsets and min(offsets) < store.checkpoint.offset:
                self.doubt(name)  # they are offsets of another changelog of that name
            store.checkpoint.wrote(offsets, transactional=transactional)
        self.disk.write(
            Write(
                changes={name: store.changes for name, store in self.stores.items() if store.changes},
                marks={name: store.marks for name, store in self.stores.items()},
                checkpoints={name: store.checkpoint.offset for name, store in self.stores.items()},
            )
        )
        for store in self.stores.values():
            store.drop_changes()
            store.log_marks = False

    def on_aborted(self) -> None:
        """Drop uncommitted changes. The content of the changelogs is unknown until they are read again."""
        for store in self.stores.values():
            store.drop_changes()
            store.checkpoint.doubt()
            store.marks = self.disk.marks(store.name)

    # restoring

    def restore(self, store: str, records: Iterable[ConsumerRecord], position: int) -> int:
        """Store changelog records below `position`; return their number without marks."""
        changes: dict[bytes, bytes | None] = {}
        kept = self.stores[store]
        marks: dict[bytes, bytes] = {}
        for record in records:
            if record.key is None:
                continue
            if record.headers and is_mark(record.headers):
                marks[record.key] = record.value or b""
            else:
                changes[record.key] = kept.row_of(record)
        kept.checkpoint.read_to(position)
        kept.marks.update(marks)
        self.disk.write(
            Write(changes={store: changes}, marks={store: marks}, checkpoints={store: kept.checkpoint.offset})
        )
        return len(changes)

    def take_over(
        self, store: str, rows: Mapping[bytes, bytes], mark: Mapping[bytes, bytes], offsets: Sequence[int]
    ) -> bool:
        """Store keys that moved to this task from another one on this instance: the next records of its changelog.
        Returns False if other records may precede or separate them: then they have to be read.
        """
        kept = self.stores[store]
        if not kept.checkpoint.gap:
            kept.checkpoint.wrote(offsets, transactional=True)
        if kept.checkpoint.gap:
            return False
        kept.marks.update(mark)
        self.disk.write(
            Write(changes={store: rows}, marks={store: kept.marks}, checkpoints={store: kept.checkpoint.offset})
        )
        return True

    def aim(self, targets: Mapping[str, int]) -> None:
        """Restore up to these offsets, the changelog ends. A store at its end is complete and not doubted."""
        self.targets = dict(targets)
        for name, store in self.stores.items():
            if store.checkpoint.offset >= targets[name]:
                store.checkpoint.read_to(store.checkpoint.offset)

    def trust(self) -> None:
        """Take the stores for complete up to their checkpoints."""
        for store in self.stores.values():
            store.checkpoint.read_to(store.checkpoint.offset)

    def doubt(self, store: str) -> None:
        """Compare a store with the bounds of its changelog before the task runs."""
        self.stores[store].doubted = self.unchecked = True
        self.targets = None

    def has_state(self, store: str) -> bool:
        """Whether a store has anything on disk."""
        return bool(self.disk.entries(store) or self.stores[store].marks)

    def start_over(self, store: str, offset: int) -> None:
        """Reset a store on disk, and restore it from this offset of its changelog."""
        self.disk.clear(store)
        self.disk.write(Write(checkpoints={store: offset}))
        kept = self.stores[store]
        kept.checkpoint, kept.marks, kept.topic_id = Checkpoint(offset), {}, b""

    def assume_arrived(self, store: str, source: int, generation: int) -> None:
        """Stop waiting for the keys that left a partition at a generation: the changelog lost their mark."""
        self.stores[store].marks.update([arrived_mark(source, generation)])

    def check(self, topic_ids: Mapping[str, bytes]) -> None:
        """Note that each store belongs to its changelog, with these topic ids."""
        changed = {name: topic_id for name, topic_id in topic_ids.items() if self.stores[name].topic_id != topic_id}
        if changed:
            self.disk.write(Write(topic_ids=changed))
        for name, topic_id in topic_ids.items():
            self.stores[name].topic_id, self.stores[name].doubted = topic_id, False
        self.unchecked = False

    @property
    def restored(self) -> bool:
        """Whether the stores have reached the targets."""
        targets = self.targets
        return targets is not None and all(
            not store.checkpoint.gap and store.checkpoint.offset >= targets[name] for name, store in self.stores.items()
        )

    def marks(self) -> list[Marks]:
        """The marks of each store: which keys have arrived and which have left."""
        return [Marks.read(store.marks) for store in self.stores.values()]
