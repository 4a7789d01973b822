"""Packed states are exact, and what is remembered of a function depends on what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest

from tests.model.packing import Memo, Packing, View, replaced


class State(NamedTuple):
    name: str
    counts: tuple[int, ...]
    pair: tuple[int, int] = (0, 0)


FIRST = State("a", (0, 0, 0))


@pytest.fixture
def packing() -> Packing:
    return Packing(FIRST, ("counts",))


def viewed(packing: Packing, state: State) -> State:
    """A view, used like a state."""
    return cast("State", View(packing, packing.pack(state), set()))


def difference(view: State) -> int:
    return cast("View", view).difference()


def test_a_state_comes_out_as_it_was_packed(packing: Packing) -> None:
    states = [State(name, (x, y, 0), (x, y)) for name in "ab" for x in range(3) for y in range(3)]
    packed = [packing.pack(state) for state in states]
    assert len(set(packed)) == len(states)
    assert [packing.unpack(one) for one in packed] == states


def test_the_difference_of_a_view_leads_to_the_state_after_the_step(packing: Packing) -> None:
    def step(state: State) -> State:
        moved = state._replace(counts=replaced(state.counts, 1, state.counts[0] + 5), name="b")
        return moved._replace(counts=replaced(moved.counts, 2, moved.counts[1]), pair=(state.counts[2], 7))

    before = State("a", (1, 2, 3))
    packed = packing.pack(before)
    assert packing.unpack(packed + difference(step(viewed(packing, before)))) == step(before)


def test_a_row_that_is_given_as_a_tuple_changes_each_element(packing: Packing) -> None:
    view = viewed(packing, FIRST)
    after = view._replace(counts=tuple(one + 1 for one in view.counts))
    assert packing.unpack(packing.pack(FIRST) + difference(after)).counts == (1, 1, 1)


def test_rows_are_compared_and_sliced_like_tuples(packing: Packing) -> None:
    row = viewed(packing, State("a", (4, 5, 6))).counts
    assert row == (4, 5, 6)
    assert (row[1:], row[-1], len(row), hash(row)) == ((5, 6), 6, 3, hash((4, 5, 6)))


@pytest.mark.parametrize(
    ("function", "runs"),
    [
        (lambda state: state.name, 2),
        (lambda state: state.counts[0], 2),
        (lambda state: sum(state.counts), 6),
        (lambda state: state.counts[0] if state.name == "b" else None, 4),
        (lambda state: len(state.counts), 1),
        (lambda state: state._replace(pair=(9, 9)).pair, 1),
        (lambda state: difference(state._replace(name="z")), 2),
    ],
)
def test_a_function_runs_again_only_when_what_it_has_read_is_different(
    function: Callable[[Any], object], runs: int, packing: Packing
) -> None:
    ran = 0

    def counted(view: View) -> object:
        nonlocal ran
        ran += 1
        return function(view)

    memo = Memo(packing, counted)
    states = [State(name, (x, y, 0)) for name in "ab" for x in range(2) for y in range(2)]
    for _ in range(2):
        for state in states:
            packed = packing.pack(state)
            known = memo.known.get(packed & memo.mask, memo)
            found = memo(packed) if known is memo else known
            assert found == function(viewed(packing, state))
    assert ran <= 2 * runs + 2


def test_a_slot_with_too_many_values_says_so(packing: Packing) -> None:
    with pytest.raises(OverflowError, match="more than 256 values"):
        for count in range(257):
            packing.pack(State("a", (count, 0, 0)))


def test_a_field_that_a_state_does_not_have_is_refused(packing: Packing) -> None:
    with pytest.raises(ValueError, match="no field"):
        Packing(FIRST, ("count",))
    with pytest.raises(AttributeError, match="no field"):
        _ = viewed(packing, FIRST).nothing  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no field"):
        viewed(packing, FIRST)._replace(count=1)  # type: ignore[call-arg]
