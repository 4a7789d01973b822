"""The controller's state as text, and its tables as diagrams."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.controller import describe, replicas
from tests.controller.world import started


def test_every_broker_topic_and_partition_has_a_line() -> None:
    world, term = started(partitions=4)
    del world.brokers[3]
    term.brokers_changed()
    term.state.shutting_down.add(2)
    lines = describe.state(term.state).splitlines()
    assert lines[0] == "controller 9 at epoch 1: 1 topics"
    assert lines[1].endswith("epoch 101") and lines[2].endswith(", stopping")
    assert len(lines) == 1 + 2 + 1 + 4


def test_description_names_brokers_that_a_resize_waits_for() -> None:
    world, term = started(partitions=4)
    world.silent.add(world.state("t", 0).leader)
    term.resize("t", 3)
    text = describe.state(term.state)
    assert "topic t: 4 partitions at generation 0, resizing to 3 as generation 1" in text
    assert "3: online, leader 1@1, isr [1, 2], generation 1, sealed, waiting for its leader" in text


def test_state_diagrams_in_page_match_tables() -> None:
    page = (Path(__file__).parents[2] / "docs/controller.md").read_text()
    assert describe.replace_diagrams(page) == page, "run `make docs`"


def test_diagram_shows_every_transition_and_no_other() -> None:
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)$", describe.diagram(replicas.LEGAL), re.MULTILINE))
    assert drawn == {(before.name, after.name) for before, targets in replicas.LEGAL.items() for after in targets}


def test_file_without_markers_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("nothing to draw")
    with pytest.raises(ValueError, match="no place for the diagrams"):
        describe.main([str(tmp_path / "x.md")])
    assert (tmp_path / "x.md").read_text() == "nothing to draw"


def test_reassignments_are_described() -> None:
    _, term = started(brokers=3, partitions=1, replication=1)
    term.reassign({0: [3]})
    assert "moving 0 to [3]" in describe.state(term.state)
