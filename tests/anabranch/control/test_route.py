"""Parameters of routes are parsed in one way."""

from __future__ import annotations

import pytest

from anabranch.control.actions import UnknownNode
from anabranch.control.route import ControlRequest, count_of, timeout_s


def test_node_in_path_must_be_a_number() -> None:
    assert ControlRequest({"node": "3"}, {}, {}).node == 3
    with pytest.raises(UnknownNode, match="there is no node 'x'"):
        _ = ControlRequest({"node": "x"}, {}, {}).node


def test_invalid_timeout_is_refused() -> None:
    assert timeout_s("") == 30 and timeout_s("0.5") == 0.5
    for text in ("x", "-1", "601"):
        with pytest.raises(ValueError, match="timeout is"):
            timeout_s(text)


@pytest.mark.parametrize("value", [1e30, 10**30, -(10**30), "3", True, None, float("inf")])
def test_count_out_of_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="partitions is"):
        count_of({"partitions": value}, "partitions")


def test_count_or_its_default_is_returned() -> None:
    assert count_of({"partitions": 3}, "partitions") == 3
    assert count_of({}, "partitions", -1) == -1
