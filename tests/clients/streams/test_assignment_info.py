"""The assignment's encoding compared with Kafka Streams 3.9, and malformed bytes."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.clients.streams.assignment_info import (
    Host,
    decode_assignment_info,
    encode_assignment_info,
)
from anabranch.protocol.errors import DecodeError
from tests.clients.streams.test_subscription_info import assignment, recorded


@pytest.mark.parametrize("golden", recorded("assignment"))
def test_assignments_equal_kafka_bytes(golden: Any) -> None:
    wire, info = bytes.fromhex(golden["wire"]), assignment(golden["values"])
    assert decode_assignment_info(wire) == info
    assert encode_assignment_info(info) == wire


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("0000000b", "ends too early"),
        ("00000001" "7fffffff" + "00" * 20, "2147483647 elements cannot fit"),
        ("0000000a" "0000000b" "00000001" + "00" * 8 + "7fffffff" + "00" * 30, "elements cannot fit"),
        ("0000000a" "0000000b" "00000001" + "00" * 8 + "00000001" "d800" + "00" * 28, "not UTF-16"),
        ("00000005" "0000000b" + "00" * 12 + "00000001" "000161" "00000001" "00000001" "00000007" + "00" * 8,
         "unknown topic index 7"),
    ],
)  # fmt: skip
def test_malformed_assignment_is_refused_in_one_line(wire: str, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_assignment_info(bytes.fromhex(wire))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "host"), [("", None), ("a:1", Host("a", 1)), ("[::1]:80", Host("::1", 80))])
def test_end_point_is_parsed(text: str, host: Host | None) -> None:
    assert Host.parse(text) == host


@pytest.mark.parametrize("text", ["a", ":1", "a:", "a:b"])
def test_malformed_end_point_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        Host.parse(text)
