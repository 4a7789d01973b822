"""Where a key's state is, while resizes move it: by all histories of up to three resizes."""

from __future__ import annotations

from itertools import product

import pytest

from anabranch.clients.streams.changelog import NOTHING, Marks
from anabranch.clients.streams.key_location import KeyLocations, last_move
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import base_of

KEYS = [b"key-%d" % number for number in range(60)]
NO_MARKS = Marks({}, NOTHING)


def lineage(*counts: int) -> Lineage:
    return Lineage(base_of(counts[0]), list(enumerate(counts)))


def arrived_marks(history: Lineage, until: int) -> dict[int, dict[int, int]]:
    """The marks of each partition's store when the state of all resizes up to this generation has arrived."""
    marks: dict[int, dict[int, int]] = {}
    for partition in range(max(count for _, count in history.history)):
        for opened in history.key_epochs(partition):
            if opened.generation <= until:
                for source in history.predecessors(opened):
                    marks.setdefault(partition, {})[source.partition] = opened.generation
    return marks


def test_key_is_awaited_until_the_resize_that_moved_it_last_is_done() -> None:
    moved = 0
    for counts in product((1, 2, 3, 4, 6), repeat=4):
        history = lineage(*(one for place, one in enumerate(counts) if place == 0 or one != counts[place - 1]))
        locations = KeyLocations([history], 0)
        for key in KEYS[:12]:
            places = [history.until(generation).address(murmur2(key)) for generation, _ in history.history]
            assert locations.partition_of(key) == places[-1]
            last = next((one for one in range(len(places) - 1, 0, -1) if places[one] != places[one - 1]), 0)
            moved += last > 0
            for done in range(len(places)):
                marks = Marks(arrived_marks(history, done).get(places[-1], {}), NOTHING)
                assert (not locations.awaited(key, marks)) == (done >= last), (counts, key, done)
    assert moved > 1000


def test_partition_awaits_the_keys_of_its_newest_resize() -> None:
    history = lineage(2, 4, 2)
    locations = KeyLocations([history], 0)
    assert "moves state here from partition 2," in locations.awaited_by(0, Marks({2: 1}, NOTHING))
    assert locations.awaited_by(0, Marks({2: 2}, NOTHING)) == ""
    assert "from partition 0, " in KeyLocations([lineage(2, 4)], 0).awaited_by(2, NO_MARKS)
    assert KeyLocations([lineage(2, 4)], 0).awaited_by(0, NO_MARKS) == "", "it only gives keys away"
    merged = KeyLocations([lineage(4, 1)], 0).awaited_by(0, Marks({2: 1}, NOTHING))
    assert "a resize to 1 partitions moves state here from partition 1 and 3," in merged


def test_store_that_is_ahead_of_the_metadata_has_no_complete_key() -> None:
    locations = KeyLocations([lineage(2, 4)], 0)
    key = next(one for one in KEYS if locations.partition_of(one) == 0)
    assert locations.has_all(key, 0, Marks({}, 1))
    assert not locations.has_all(key, 0, Marks({}, 2))
    assert "does not know to how many partitions" in locations.awaited(key, Marks({}, 2))
    assert "does not know to how many partitions" in locations.awaited_by(0, Marks({}, 2))


def test_misplaced_keys_are_where_they_are_until_the_first_resize() -> None:
    key = KEYS[0]
    fresh, resized = KeyLocations([lineage(4)], 0), KeyLocations([lineage(2, 4)], 0)
    elsewhere = (fresh.partition_of(key) + 1) % 4
    assert fresh.has_all(key, elsewhere, NO_MARKS)
    assert not resized.has_all(key, elsewhere, Marks({0: 1, 1: 1}, NOTHING))


@pytest.mark.parametrize("ahead", [[0, 1], [1, 0]])
def test_joined_topics_are_where_the_slowest_one_is(ahead: list[int]) -> None:
    lineages = [lineage(2), lineage(2, 4)]
    locations = KeyLocations([lineages[one] for one in ahead], 0)
    assert (locations.partitions, locations.resized) == (2, False)


def test_keys_of_plain_topics_are_placed_by_the_number_of_partitions() -> None:
    for lineages in ([None], [None, lineage(2)]):
        locations = KeyLocations(lineages, 3)
        assert [locations.partition_of(key) for key in KEYS] == [murmur2(key) % 3 for key in KEYS]
        assert locations.awaited(KEYS[0], NO_MARKS) == locations.awaited_by(0, NO_MARKS) == ""


def test_last_move_of_keys_that_stay() -> None:
    assert last_move(lineage(4), 0) is None
    assert last_move(lineage(4, 8, 4), 3) is None
    assert last_move(lineage(4, 8, 4), 7) == (7, 2)
