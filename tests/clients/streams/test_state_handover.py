"""Through any resizes, each key's state is complete, and only where the key is processed.

Method: a model of an application. Partitions are logs cut by resizes; tasks process them in any order that the rules
allow, hand over when they feel like it, and keep what they know in stores made of changelogs.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict

import pytest

from anabranch.clients.streams import state_handover
from anabranch.clients.streams.changelog import Marks, arrived_mark, departed_mark
from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage

KEYS = range(60)


class Application:
    """Stores by partition, and how far each task is: the index of the key epoch that it processes."""

    def __init__(self, lineage: Lineage, rng: random.Random) -> None:
        self.lineage, self.rng = lineage, rng
        self.partitions = range(max(count for _, count in lineage.history))
        self.stores: dict[int, dict[int, list[int]]] = defaultdict(dict)
        self.rows: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        self.at = dict.fromkeys(self.partitions, 0)
        self.moved: Counter[int] = Counter()
        self.expected: dict[int, list[int]] = defaultdict(list)
        self.logs: dict[KeyEpoch, list[tuple[int, int]]] = defaultdict(list)
        number = 0
        for generation, count in lineage.history:
            for _ in range(80):
                key, number = rng.choice(KEYS), number + 1
                partition = linear_hashing.address(key, lineage.base, count)
                self.logs[KeyEpoch(partition, lineage.class_generation(partition, generation))].append((key, number))
                self.expected[key].append(number)

    def key_epoch(self, partition: int) -> KeyEpoch:
        return self.lineage.key_epochs(partition)[self.at[partition]]

    def marks(self, partition: int) -> Marks:
        return Marks.read(self.rows[partition])

    def process(self, partition: int) -> bool:
        """Go through the key epoch that is due, if what it needs has arrived."""
        key_epoch = self.key_epoch(partition)
        if state_handover.missing(self.lineage, key_epoch, self.marks(partition)):
            return False
        if key_epoch not in self.logs and self.at[partition] + 1 >= len(self.lineage.key_epochs(partition)):
            return False
        for key, number in self.logs.pop(key_epoch, []):
            self.stores[partition].setdefault(key, []).append(number)
        if self.at[partition] + 1 < len(self.lineage.key_epochs(partition)):
            self.at[partition] += 1
        return True

    def hand_over(self, partition: int) -> bool:
        """Everything that is due and may be passed on."""
        lineage, done = self.lineage, False
        for generation in state_handover.due(lineage, self.key_epoch(partition), self.marks(partition).departed):
            opened = KeyEpoch(partition, generation)
            before = lineage.previous(opened)
            assert before is not None
            if state_handover.missing(lineage, before, self.marks(partition)):
                break
            store = self.stores[partition]
            room = self.rng.choice((1, 3, 1000))
            """A hand-over may take several transactions; others work in between."""
            ways, kept = state_handover.leaving(lineage, opened, store.items(), lambda key: key, room)
            for target, rows in ways.items():
                assert not self.stores[target].keys() & rows.keys(), "two tasks have one key"
                self.stores[target].update(rows)
                self.moved[generation] += len(rows)
                for key in rows:
                    del store[key]
            if kept is None:
                return True
            for target in state_handover.receivers(lineage, opened):
                self.rows[target].update([arrived_mark(partition, generation)])
            self.rows[partition].update([departed_mark(generation)])
            done = True
        return done

    def run(self) -> None:
        """Run in any order until no step is possible."""
        steps = [(step, partition) for step in (self.process, self.hand_over) for partition in self.partitions]
        while any(step(partition) for step, partition in self.rng.sample(steps, len(steps))):
            pass


def history(rng: random.Random) -> Lineage:
    """Resizes to any count, below the base of the topic, too."""
    first = rng.choice((3, 4, 5, 6, 8))
    lineage = Lineage(linear_hashing.base_of(first), [(0, first)])
    for generation in range(1, rng.randint(2, 6)):
        lineage = lineage.resize(generation, rng.choice([n for n in range(1, 13) if n != lineage.count]))
    return lineage


def check(seed: int) -> None:
    rng = random.Random(seed)
    application = Application(history(rng), rng)
    application.run()
    lineage = application.lineage
    assert not application.logs, "something waits for ever"
    found = {key: (partition, rows) for partition, store in application.stores.items() for key, rows in store.items()}
    assert sum(map(len, application.stores.values())) == len(found)
    assert {key: rows for key, (_, rows) in found.items()} == application.expected
    assert all(partition == lineage.address(key) for key, (partition, _) in found.items())


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_state_is_complete_after_every_move_of_its_key(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


@pytest.mark.parametrize(("base", "counts"), [(1, (4, 8, 3)), (3, (3, 2, 5)), (5, (10, 2, 7))], ids=str)
def test_resize_moves_minimum_of_keys(base: int, counts: tuple[int, ...]) -> None:
    """4 -> 8 -> 3: half of the keys move, then those of five partitions. 3 -> 2 -> 5: a third, then the new ones'."""
    rng = random.Random(1)
    lineage = Lineage(base, list(enumerate(counts)))
    application = Application(lineage, rng)
    for key_epoch in [one for one in application.logs if one.generation]:
        for key, _ in application.logs.pop(key_epoch):
            application.expected.pop(key, None)
    keys = {key for rows in application.logs.values() for key, _ in rows}
    application.run()
    for generation, (before, after) in enumerate(itertools.pairwise(counts), 1):
        assert application.moved[generation] == sum(
            linear_hashing.address(key, base, before) != linear_hashing.address(key, base, after) for key in keys
        )


def test_partition_waits_for_partitions_whose_keys_it_receives() -> None:
    lineage = Lineage(1, [(0, 1), (1, 2), (2, 1)])
    nothing = Marks({}, -1)
    assert state_handover.missing(lineage, KeyEpoch(0, 0), nothing) == []
    assert state_handover.missing(lineage, KeyEpoch(1, 1), nothing) == [KeyEpoch(0, 0)]
    assert state_handover.missing(lineage, KeyEpoch(1, 1), Marks({0: 1}, -1)) == []
    assert state_handover.missing(lineage, KeyEpoch(0, 2), nothing) == [KeyEpoch(1, 1)]
    assert state_handover.due(lineage, KeyEpoch(0, 0), -1) == []
    assert state_handover.due(lineage, KeyEpoch(0, 1), -1) == [1]
    assert state_handover.due(lineage, KeyEpoch(0, 2), -1) == [1]
    assert state_handover.due(lineage, KeyEpoch(0, 2), 1) == []
