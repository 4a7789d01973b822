"""A group whose records are deleted behind closed gates: every gate opens in the end, from every state (I12).

Each partition has a reader. It fetches its whole log at once, hands out what the product's gate (`TopicGate`) lets it,
and commits. It fetches again only when it has handed out what it fetched, as consumers do. An administrator deletes the
head of a log at any moment. When the leader changes after that, it has forgotten the epochs of the deleted records and
answers with its log start as the end of their key epochs.

Two rules are tried that end the circle of waits. `SKIP` is the product's: a reader drops fetched
records behind a closed gate that are deleted, and commits the log start. `OPEN` would open gates by the log start
alone: it breaks the order, because another reader may still hand out what it fetched before the deletion.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.clients.consumer.gate import PartitionView, TopicGate
from anabranch.protocol.lineage import KeyEpoch, Lineage
from tests.model.explorer import Process, Steps
from tests.model.packing import replaced

SKIP, OPEN, NEITHER = "skip", "open", "neither"


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
    handed_out: frozenset[KeyEpoch] = frozenset()
    """The key epochs with delivered records."""
    wrong: str = ""


class Deleting:
    """One topic that was resized through `counts`, with `records` in each key epoch."""

    row_fields = "positions", "fetched", "committed", "starts", "forgotten"
    fault_fields = "deletions", "leader_changes"

    def __init__(
        self, counts: Sequence[int], records: int, *, deletions: int = 1, leader_changes: int = 1, rule: str = SKIP
    ) -> None:
        self._rule = rule
        self.lineage = Lineage(1, list(enumerate(counts)))
        self.partitions = range(max(counts))
        self._faults = deletions, leader_changes
        self.logs: list[list[KeyEpoch]] = [
            [one for one in self.lineage.key_epochs(p) if counts[one.generation] > p for _ in range(records)]
            for p in self.partitions
        ]
        self.ends = {
            one: sum(row.generation <= one.generation for row in self.logs[p])
            for p in self.partitions
            for one in self.lineage.key_epochs(p)
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
        """Whether a record was handed out after one of a key epoch that took its keys."""
        return state.wrong or None

    def finished(self, state: State) -> bool:
        """Whether all that is left was handed out and committed."""
        return all(state.committed[p] == len(self.logs[p]) for p in self.partitions)

    def processes(self) -> list[Process[State]]:
        """All who do something."""
        each = self._read, self._commit, self._fail
        return [functools.partial(act, p) for p in self.partitions for act in each]

    def _read(self, p: int, state: State) -> Steps[State]:
        at, log, start = state.positions[p], self.logs[p], state.starts[p]
        if at == len(log):
            return
        if not state.fetched[p]:
            begun = max(at, start)
            positions = replaced(state.positions, p, begun)
            yield f"{p} is fetched", state._replace(positions=positions, fetched=replaced(state.fetched, p, True))
        elif self._gate(state).is_open(log[at]):
            yield f"{p}: {at} is handed out", self._hand_out(state, p)
        elif at < start and self._rule == SKIP:
            yield f"{p} skips to {start}", state._replace(positions=replaced(state.positions, p, start))

    def _commit(self, p: int, state: State) -> Steps[State]:
        at = state.positions[p]
        if state.committed[p] != at:
            yield f"{p}: {at} is committed", state._replace(committed=replaced(state.committed, p, at))

    def _fail(self, p: int, state: State) -> Steps[State]:
        start = state.starts[p]
        if state.deletions:
            for before in range(start + 1, len(self.logs[p]) + 1):
                starts = replaced(state.starts, p, before)
                yield f"{p}: deleted before {before}", state._replace(starts=starts, deletions=state.deletions - 1)
        if state.leader_changes:
            forgotten = replaced(state.forgotten, p, start)
            left = state.leader_changes - 1
            yield f"{p} has another leader", state._replace(forgotten=forgotten, leader_changes=left)

    def _hand_out(self, state: State, p: int) -> State:
        at = state.positions[p]
        key_epoch = self.logs[p][at]
        late = [one for one in state.handed_out if key_epoch in self.lineage.sources(one)]
        return state._replace(
            positions=replaced(state.positions, p, at + 1),
            handed_out=state.handed_out | {key_epoch},
            wrong=f"order: {p}: {at} of {key_epoch} after {late[0]}" if late else "",
        )

    def _gate(self, state: State) -> TopicGate:
        gate, epoch = TopicGate(self.lineage, self._views), self.lineage.generation
        for key_epoch, end in self.ends.items():
            gate.note_end(key_epoch, max(end, state.forgotten[key_epoch.partition]), leader_epoch=epoch)
        for p in self.partitions:
            committed = state.committed[p]
            gate.note_committed(p, max(committed, state.starts[p]) if self._rule == OPEN else committed)
        return gate
