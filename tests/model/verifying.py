"""A producer without generations with `reshard.legacy.producers=verify`, in place of the one of `production`.

No batch has a generation. A leader lets a record in if its key belongs there by a generation that is published, or was
when the leader last heard of it, and asks for another try while it serves one that it has not heard of as published.
The next record of a key is sent when the one before is settled, and what was refused is placed anew by the count that
is known then. What comes out has to keep the same invariants as with generations.
"""

from __future__ import annotations

from tests.model.explorer import Steps
from tests.model.packing import replaced
from tests.model.production import ABSENT, Batch, Entry, Load, Production, State, Verdict


class Verifying(Production):
    """The model of `production`, with this producer and these leaders; each argument set is a defect."""

    def __init__(self, counts: tuple[int, ...], load: Load, *, one_by_one: bool = True, waits: bool = True) -> None:
        super().__init__(counts, load)
        self.one_by_one = one_by_one
        """The next record of a key is sent when the one before is settled."""
        self.waits = waits
        """A leader that is ahead of what is published says nothing of where a key belongs."""

    def _may_transmit(self, state: State, batch: Batch) -> bool:
        older = [one for one in state.batches if one.record < batch.record and one.status != "settled"]
        hashes = self.load.hashes
        return not (self.one_by_one and any(hashes[one.record] == hashes[batch.record] for one in older))

    def _leaders(self, state: State) -> Steps[State]:
        for p in self.partitions:
            if not state.network[p] or state.adopted[p] == ABSENT:
                continue
            record, _ = state.network[p][0]
            for heard in range(state.published + 1):
                verdict, log = self._verified(state, p, record, heard)
                after = state._replace(
                    network=replaced(state.network, p, state.network[p][1:]),
                    logs=replaced(state.logs, p, log),
                    replicated=replaced(state.replicated, p, len(log)),
                    answers=(*state.answers, (record, verdict, p)),
                )
                yield f"p{p} at g{state.adopted[p]}, which heard of g{heard}, answers {verdict} for #{record}", after

    def _verified(self, state: State, p: int, record: int, heard: int) -> tuple[Verdict, tuple[Entry, ...]]:
        log = state.logs[p]
        if any(entry.record == record for entry in log):
            return "stored", log
        if p >= self.counts[state.adopted[p]]:
            return "refused", log  # merged away
        if heard < state.adopted[p] and self.waits:
            return "unknown", log
        if self._address(record, heard) != p:
            return "refused", log
        return "stored", (*log, Entry(state.adopted[p], record))
