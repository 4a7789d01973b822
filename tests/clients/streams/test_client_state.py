"""What makes one client a better place for a task than another."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.client_state import improves


@pytest.mark.parametrize(
    ("source", "target", "better"),
    [
        ((3, 1), (1, 1), True),
        ((2, 1), (1, 1), False),
        ((2, 1), (0, 1), True),
        ((1, 1), (0, 1), False),
        ((4, 2), (1, 1), False),
        ((3, 2), (1, 1), False),
        ((4, 1), (3, 2), True),
    ],
    ids=["even", "turned around", "one each", "only turned around", "equal loads", "half a task", "more threads"],
)
def test_a_move_is_made_if_it_is_more_even_afterwards(
    source: tuple[int, int], target: tuple[int, int], better: bool
) -> None:
    assert improves(source, target) is better
    if better:
        moved, taken = (source[0] - 1, source[1]), (target[0] + 1, target[1])
        assert not improves(taken, moved), "nothing goes to and fro"
