"""Joined topics may be resized one after the other; each key's state stays complete and in one place.

Method: the model of `test_state_handover.py` with two topics, which hear of the same resizes at different times. Tasks
read them in any order that the rules allow.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from anabranch.clients.streams import joined, state_handover
from anabranch.clients.streams.changelog import Marks, arrived_mark, departed_mark
from anabranch.clients.streams.joined import Reading
from anabranch.protocol.lineage import KeyEpoch, Lineage
from tests.clients.streams.test_state_handover import KEYS, history

ORDERS, PRICES = TOPICS = ("orders", "prices")


class Application:
    """Two topics that are resized one at a time; each partition has a task with one store for both."""

    def __init__(self, lineage: Lineage, rng: random.Random) -> None:
        self.whole, self.rng = lineage, rng
        self.lineages = {topic: lineage.until(0) for topic in TOPICS}
        self.partitions = range(max(count for _, count in lineage.history))
        self.logs: dict[str, dict[KeyEpoch, list[tuple[int, int]]]] = {topic: defaultdict(list) for topic in TOPICS}
        self.at = {(topic, partition): 0 for topic in TOPICS for partition in self.partitions}
        self.stores: dict[int, dict[int, list[tuple[str, int]]]] = defaultdict(dict)
        self.rows: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        self.sent: Counter[tuple[str, int]] = Counter()
        self.ahead = 0
        for topic in TOPICS:
            self.write(topic)

    def write(self, topic: str) -> None:
        lineage = self.lineages[topic]
        for _ in range(60):
            key = self.rng.choice(KEYS)
            self.sent[topic, key] += 1
            partition = lineage.address(key)
            key_epoch = KeyEpoch(partition, lineage.class_generation(partition))
            self.logs[topic][key_epoch].append((key, self.sent[topic, key]))

    def resize(self, topic: str) -> bool:
        known = len(self.lineages[topic].history)
        if known == len(self.whole.history):
            return False
        self.lineages[topic] = self.whole.until(self.whole.history[known][0])
        self.ahead += len(self.lineages[ORDERS].history) != len(self.lineages[PRICES].history)
        self.write(topic)
        return True

    def reading(self, topic: str, partition: int) -> Reading | None:
        key_epochs = self.lineages[topic].key_epochs(partition)
        return (self.lineages[topic], key_epochs[self.at[topic, partition]]) if key_epochs else None

    def slowest(self, partition: int) -> Reading | None:
        return joined.slowest(self.reading(topic, partition) for topic in TOPICS)

    def marks(self, partition: int) -> Marks:
        return Marks.read(self.rows[partition])

    def process(self, topic: str, partition: int) -> bool:
        """A part of the key epoch that is due, if nothing holds it back; the next one when it is cut there."""
        own, all_of_them = self.reading(topic, partition), self.slowest(partition)
        if own is None:
            return False
        lineage, key_epoch = own
        left = self.logs[topic].get(key_epoch, [])
        if not left:
            further = self.at[topic, partition] + 1 < len(lineage.key_epochs(partition))
            self.at[topic, partition] += further
            return further
        if all_of_them is None or all_of_them[1].generation < key_epoch.generation:
            return False
        if state_handover.missing(lineage, key_epoch, self.marks(partition)):
            return False
        for _ in range(self.rng.choice((1, 5, len(left)))):
            if left:
                key, number = left.pop(0)
                self.stores[partition].setdefault(key, []).append((topic, number))
        return True

    def hand_over(self, partition: int) -> bool:
        read_to, done = self.slowest(partition), False
        if read_to is None:
            return False
        lineage, key_epoch = read_to
        for generation in state_handover.due(lineage, key_epoch, self.marks(partition).departed):
            opened = KeyEpoch(partition, generation)
            before = lineage.previous(opened)
            assert before is not None
            if state_handover.missing(lineage, before, self.marks(partition)):
                break
            store = self.stores[partition]
            ways, _ = state_handover.leaving(lineage, opened, store.items(), lambda key: key, 1000)
            for target, rows in ways.items():
                assert not self.stores[target].keys() & rows.keys(), "two tasks have one key"
                self.stores[target].update(rows)
                for key in rows:
                    del store[key]
                self.rows[target].update([arrived_mark(partition, generation)])
            self.rows[partition].update([departed_mark(generation)])
            done = True
        return done

    def run(self) -> None:
        """Run in any order until no step is possible."""
        steps = [(self.hand_over, (partition,)) for partition in self.partitions]
        reads = [(self.process, (topic, partition)) for partition in self.partitions for topic in TOPICS]
        resizes = [(self.resize, (topic,)) for topic in TOPICS]
        busy = True
        while busy:
            every = [*steps, *reads, *(resizes if self.rng.random() < 0.3 else ())]
            moved = [step(*what) for step, what in self.rng.sample(every, len(every))]
            busy = any(moved) or any(self.lineages[topic] != self.whole for topic in TOPICS)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_single_state_of_a_key_is_complete_after_every_move(first: int) -> None:
    ahead = 0
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        application = Application(history(rng), rng)
        application.run()
        lineage = application.whole
        assert not any(rows for logs in application.logs.values() for rows in logs.values()), "something waits for ever"
        found = {key: (at, rows) for at, store in application.stores.items() for key, rows in store.items()}
        assert sum(map(len, application.stores.values())) == len(found)
        for key, (partition, rows) in found.items():
            assert partition == lineage.address(key)
            for topic in TOPICS:
                numbers = [number for one, number in rows if one == topic]
                assert numbers == list(range(1, application.sent[topic, key] + 1))
        assert len(found) == len({key for _, key in application.sent})
        ahead += application.ahead
    assert ahead > 50


FOUR = Lineage(1, [(0, 4)])
GROWN = FOUR.resize(1, 8)
SHRUNK = GROWN.resize(2, 3)


def test_one_topic_may_be_resized_ahead_of_another() -> None:
    assert joined.mismatch({"in": FOUR, "prices": FOUR}) is None
    assert joined.mismatch({"in": FOUR, "prices": SHRUNK, "rates": GROWN}) is None
    assert joined.mismatch({"in": None, "prices": FOUR}) is None, "Kafka's rules are enough"


@pytest.mark.parametrize(
    "other",
    [
        FOUR.resize(1, 6),
        Lineage(1, [(0, 8)]),
        Lineage(1, [(0, 2), (1, 4), (2, 8)]),
        Lineage(3, [(0, 3)]),
        GROWN.resize(2, 4),
        None,
    ],
    ids=str,
)
def test_topics_with_different_histories_are_named_with_remedy(other: Lineage | None) -> None:
    reason = joined.mismatch({"in": SHRUNK, "prices": other})
    assert reason is not None
    assert "in (4, then 8, then 3) and prices (" in reason
    assert "repartition both" in reason


def test_own_repartition_topic_must_have_same_partition_count() -> None:
    assert joined.mismatch({"in": GROWN, "again": GROWN}, own={"again"}) is None
    assert joined.mismatch({"in": GROWN, "again": FOUR}, own={"again"}) is not None
    assert joined.mismatch({"in": GROWN, "again": Lineage(1, [(0, 8)])}, own={"again"}) is not None


def test_slowest_input_determines_progress_of_task() -> None:
    behind, ahead = (FOUR, KeyEpoch(0, 0)), (SHRUNK, KeyEpoch(0, 2))
    assert joined.slowest([ahead, behind]) == joined.slowest([behind, ahead]) == behind
    assert joined.slowest([ahead]) == ahead
    assert joined.slowest([ahead, None]) is None, "one is not there yet"


def test_removed_partition_is_read_to_its_end() -> None:
    assert joined.removed_reading(SHRUNK, 5, range(3)) == (SHRUNK, KeyEpoch(5, 2))
    assert joined.removed_reading(SHRUNK, 5, range(6)) is None, "it is still there"
    assert joined.removed_reading(SHRUNK, 2, ()) is None, "it is not known yet"
    assert joined.removed_reading(FOUR, 5, range(4)) is None, "it is still to come"
