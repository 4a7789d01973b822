"""Number columns in a state store."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.spark_jobs import columns
from anabranch.spark_jobs.columns import ForeignState, Ragged


def test_keyed_rows_can_be_replaced_and_emptied() -> None:
    ragged = Ragged(np.array([3, 3, 9], np.uint64), np.array([[1], [2], [3]], np.int64))
    assert (ragged.get(3), ragged.get(4), ragged.get(9)) == ([(1,), (2,)], [], [(3,)])
    ragged.put(3, [])
    ragged.put(4, [(8,), (7,)])
    assert ragged.items() == [(4, (8,)), (4, (7,)), (9, (3,))]
    assert ragged.has(np.array([3, 4, 9], np.uint64)).tolist() == [False, True, True]


def test_state_of_another_version_is_refused() -> None:
    with pytest.raises(ForeignState, match="another version"):
        columns.unpack(b"\x80\x05pickle")
