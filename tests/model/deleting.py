"""A group whose records are deleted while gates are closed: every gate opens in the end, from every state  (I12).

Each partition has a reader. It fetches its whole log at once, hands out what the product's gate (`TopicGate`) lets it,
and commits. It fetches again only when it has handed out what it fetched, as consumers do. An administrator deletes the
head of a log at any moment. When the leader changes after that, it has forgotten the epochs of the deleted records and
answers with its log start as the end of their segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.clients.consumer.gate import PartitionView, TopicGate
from anabranch.protocol.lineage import Lineage, Segment
from tests.model.explorer import replaced

UNKNOWN = -1


class State(NamedTuple):
    """What a schedule has come to; one number for each partition."""

    positions: tuple[int, ...]
    fetched: tuple[bool, ...]
    committed: tuple[int, ...]
    starts: tuple[int, ...]
    forgotten: tuple[int, ...]
    """The log start when the leader last changed: it knows no end below it."""
    deletions: int
    leader_changes: int


class Deleting:
    """One topic that was resized through `counts`, with `records` in each segment."""

    def __init__(self, counts: Sequence[int], records: int, *, deletions: int = 1, leader_changes: int = 1) -> None:
        self.lineage = Lineage(1, list(enumerate(counts)))
        self.partitions = range(max(counts))
        self._faults = deletions, leader_changes
        self.logs: list[list[Segment]] = [
            [one for one in self.lineage.segments(p) if counts[one.generation] > p for _ in range(records)]
            for p in self.partitions
        ]
        self.ends = {
            one: sum(row.generation <= one.generation for row in self.logs[p])
            for p in self.partitions
            for one in self.lineage.segments(p)
        }
        newest = self.lineage.generation
        self._views = {
            p: PartitionView(newest, tuple((one, one) for one in self.lineage.class_generations(p)))
            for p in self.partitions
        }

    def initial(self) -> State:
        """Nothing was read."""
        none = (0,) * len(self.partitions)
        return State(none, (False,) * len(none), none, none, none, *self._faults)

    def violation(self, state: State) -> str | None:
        """Order is the subject of `delivery`."""
        return None

    def finished(self, state: State) -> bool:
        """Whether all that is left was handed out and committed."""
        return all(state.committed[p] == len(self.logs[p]) for p in self.partitions)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """All that may happen next."""
        gate = self._gate(state)
        for p in self.partitions:
            at, log, start = state.positions[p], self.logs[p], state.starts[p]
            if not state.fetched[p] and at < len(log):
                begun = max(at, start)
                positions = replaced(state.positions, p, begun)
                yield f"{p} is fetched", state._replace(positions=positions, fetched=replaced(state.fetched, p, True))
            if state.fetched[p] and at < len(log) and gate.is_open(log[at]):
                yield f"{p}: {at} is handed out", state._replace(positions=replaced(state.positions, p, at + 1))
            if state.committed[p] != at:
                yield f"{p}: {at} is committed", state._replace(committed=replaced(state.committed, p, at))
            if state.deletions:
                for before in range(start + 1, len(log) + 1):
                    starts = replaced(state.starts, p, before)
                    yield f"{p}: deleted before {before}", state._replace(starts=starts, deletions=state.deletions - 1)
            if state.leader_changes:
                forgotten = replaced(state.forgotten, p, start)
                left = state.leader_changes - 1
                yield f"{p} has another leader", state._replace(forgotten=forgotten, leader_changes=left)

    def _gate(self, state: State) -> TopicGate:
        gate, epoch = TopicGate(self.lineage, self._views), self.lineage.generation
        for segment, end in self.ends.items():
            gate.note_end(segment, max(end, state.forgotten[segment.partition]), leader_epoch=epoch)
        for p in self.partitions:
            gate.note_committed(p, state.committed[p])
            gate.note_start(p, state.starts[p], leader_epoch=epoch)
        return gate
