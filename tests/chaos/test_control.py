"""Commands to a proxy in another process."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.chaos.control import Control
from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.link_proxy import Proxy


@pytest.fixture
def control() -> Control:
    proxy = Proxy()
    proxy.sources |= dict.fromkeys(("1", "2"))
    proxy.targets |= dict.fromkeys(("1", "2", "zk"))
    return Control(proxy)


def test_fault_begins_and_ends_by_its_number(control: Control) -> None:
    begun = control.carry_out({"do": "begin", "kind": "cut", "source": "1", "target": "2"})
    assert begun == {"fault": 1, "what": "cut 1 -> 2"}
    assert control.carry_out({"do": "begin", "kind": "cut", "source": "2", "target": "zk"})["fault"] == 2
    assert control.carry_out({"do": "links"})["faults"] == ["cut 1 -> 2, met 0 times", "cut 2 -> zk, met 0 times"]
    assert control.carry_out({"do": "end", "fault": 1}) == {"what": "cut 1 -> 2", "hits": 0}
    with pytest.raises(KeyError):
        control.carry_out({"do": "end", "fault": 1})
    assert control.carry_out({"do": "heal"}) == {"count": 1}
    assert control.carry_out({"do": "links"})["faults"] == []


@pytest.mark.parametrize(
    ("order", "error", "says"),
    [
        ({"do": "begin", "kind": "melt", "source": "1", "target": "2"}, ValueError, "kind is one of"),
        ({"do": "begin", "kind": "cut", "source": "9", "target": "2"}, OrderRefused, "no link has an end '9'"),
        ({"do": "reset", "target": "3"}, OrderRefused, "no link has an end '3'"),
        ({"do": "dance"}, ValueError, "cannot dance"),
    ],
)
def test_impossible_fault_is_refused(
    control: Control, order: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        control.carry_out(order)
