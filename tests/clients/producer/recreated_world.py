"""The world of `world`, in which the topic is deleted and made again with other partitions, once, at any time.

What the deleted topic had is gone, and no violation. The next topic is held against the same invariants: a record that
both have is in each of them once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import base_of
from tests.clients.producer.world import NODES, TOPIC, Leader, Rules, World


class RecreatedWorld(World):
    """One run. `again` are the counts of the next topic."""

    def __init__(
        self, counts: Sequence[int], again: Sequence[int], rng: random.Random, *, rules: Rules | None = None
    ) -> None:
        self.again = again
        self.deleted = False
        self.made_again = False
        self.gone: set[int] = set()
        """The numbers of the records that the deleted topic had."""
        super().__init__(counts, rng, rules=rules)

    def delete(self) -> None:
        self.gone = {stored.number for leader in self.leaders.values() for stored in leader.log}
        self.leaders = {}
        self.deleted = True

    def make_again(self) -> None:
        self.made_again = True
        self.topic_id = b"another id"
        self.counts = self.again
        self.base = base_of(self.counts[0])
        self.lineages = [
            Lineage(self.base, list(enumerate(self.counts[: generation + 1]))) for generation in range(len(self.counts))
        ]
        self.planned = self.published = 0
        self.leaders = {p: Leader(0) for p in range(self.counts[0])}
        for p in range(max(self.counts)):
            self.where.setdefault(p, self.rng.randrange(NODES))
            self.believed.setdefault(p, self.where[p])

    @property
    def is_known(self) -> bool:
        """Whether the producer knows the topic that is there now."""
        return self.accumulator.topic(TOPIC).topic_id == self.topic_id

    def learn(self, generation: int) -> None:
        super().learn(generation)
        self.accumulator.note_gone(TOPIC, range(max(self.counts[: generation + 1])))

    def options(self) -> list[tuple[str, Any]]:
        options = super().options()
        if not self.deleted:
            return [*options, ("delete", self.delete)]
        if not self.made_again:
            without = [one for one in options if one[0] not in ("plan", "publish", "move leader")]
            return [*without, ("make again", self.make_again)]
        if self.is_known:
            return options
        learned = [(f"learn {g}", lambda g=g: self.learn(g)) for g in range(self.published + 1)]
        return [*(one for one in options if not one[0].startswith("learn")), *learned]

    def finish(self) -> None:
        if not self.deleted:
            self.delete()
        if not self.made_again:
            self.make_again()
        if not self.is_known:
            self.learn(self.published)
        super().finish()

    def check(self) -> None:
        present = {stored.number for leader in self.leaders.values() for stored in leader.log}
        self.sent = [one for one in self.sent if one[1] in present or one[1] not in self.gone]
        super().check()
