"""A page that applies all deltas has the same rows as the server."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.dashboard.state_delta import StateDelta, StateSheet

KEYS = [f"{kind}/{name}" for kind in ("node", "topic") for name in "abc"]
PUTS = st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 2))
DROPS = st.tuples(st.just("drop"), st.sampled_from(KEYS), st.just(0))
KEEPS = st.tuples(st.just("keep"), st.sampled_from(KEYS), st.just(0))
TAKES = st.tuples(st.just("take"), st.just(""), st.just(0))


@given(st.lists(st.one_of(PUTS, DROPS, KEEPS, TAKES), max_size=40))
def test_deltas_reproduce_the_state(steps: list[tuple[str, str, int]]) -> None:
    sheet, page, summed = StateSheet(), dict[str, Any](), StateDelta()
    for what, key, value in [*steps, ("take", "", 0)]:
        if what == "put":
            sheet.put(key, value)
        elif what == "drop":
            sheet.drop(key)
        elif what == "keep":
            sheet.keep("node", {key})
        else:
            delta = sheet.take()
            StateDelta.from_body(json.loads(json.dumps(delta.body()))).apply(page)
            summed.add(delta)
    assert page == sheet.rows
    late: dict[str, Any] = {}
    summed.apply(late)
    assert late == sheet.rows


def test_unchanged_rows_are_omitted() -> None:
    sheet = StateSheet()
    sheet.put("node/1", {"state": "alive"})
    assert sheet.take().put == {"node/1": {"state": "alive"}}
    sheet.put("node/1", {"state": "alive"})
    sheet.drop("node/2")
    assert not sheet.take()
