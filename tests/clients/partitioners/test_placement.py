"""The placement of keys from two properties of a resized topic, and when it is read again."""

from __future__ import annotations

import random

import pytest

from anabranch.clients.partitioners.placement import KEYLESS_RUN, Placement, Placements, placement_of
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage

KEYS = [b"key-%d" % number for number in range(200)]


@pytest.mark.parametrize(
    "counts", [(4,), (4, 6), (4, 6, 3), (3, 2), (5, 1, 7), (12, 4, 20)], ids=lambda counts: "-".join(map(str, counts))
)
def test_keys_are_placed_as_by_our_producer(counts: tuple[int, ...]) -> None:
    lineage = Lineage(counts[0] // (counts[0] & -counts[0]), list(enumerate(counts)))
    shown = {"reshard.base": str(lineage.base), "reshard.history": ",".join(f"{g}:{n}" for g, n in lineage.history)}
    placement = placement_of(shown if len(counts) > 1 else {}, max(counts))
    assert [placement.partition(key) for key in KEYS] == [lineage.address(murmur2(key)) for key in KEYS]


def test_topic_never_resized_has_kafka_placement() -> None:
    placement = placement_of({"retention.ms": "5"}, 6)
    assert [placement.partition(key) for key in KEYS] == [murmur2(key) % 6 for key in KEYS]


@pytest.mark.parametrize("history", ["7", "1:x", ":"])
def test_invalid_placement_is_refused(history: str) -> None:
    with pytest.raises(ValueError, match=f"reshard.base=3 with reshard.history={history} is not a valid placement"):
        placement_of({"reshard.base": "3", "reshard.history": history}, 4)


def test_first_refusal_rereads_lineage_and_concurrent_ones_do_not() -> None:
    placements, old, new = Placements(random.Random(1)), Placement(1, 4), Placement(1, 6)
    assert placements.cached("t") is None
    placements.read("t", old)
    placements.on_refusal("t", old)
    assert placements.cached("t") is None
    placements.read("t", new)
    placements.on_refusal("t", old)  # it was sent before that
    assert placements.cached("t") is new
    placements.on_refusal("another", old)


def test_keyless_records_stick_to_live_partitions() -> None:
    placements, large, small = Placements(random.Random(1)), Placement(1, 8), Placement(1, 2)
    places = [placements.partition("t", large, None) for _ in range(KEYLESS_RUN * 3)]
    runs = [set(places[first : first + KEYLESS_RUN]) for first in range(0, len(places), KEYLESS_RUN)]
    assert [len(run) for run in runs] == [1, 1, 1]
    assert runs[0] != runs[1]
    assert {placements.partition("t", small, None) for _ in range(KEYLESS_RUN * 20)} == {0, 1}
