"""`anabranch dump` describes frames, and names what is wrong with invalid ones."""

from __future__ import annotations

import pytest

from tests.anabranch.cli.conftest import Command

HEARTBEAT = "000c 0004 00000001 ffff 00 02 67 00000001 02 6d 00 00"


def test_request_is_decoded(anabranch: Command) -> None:
    shown = anabranch("dump", *HEARTBEAT.split())
    assert shown.exit_code == 0
    assert "Heartbeat" in shown.output


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("000c",), 1, "cannot decode: "),
        (("xyz",), 2, "hex"),
        (("--response", "NoSuch", "1", "00000001"), 2, "NoSuch"),
    ],
)
def test_undecodable_input_is_an_error_of_one_line(
    anabranch: Command, words: tuple[str, ...], status: int, says: str
) -> None:
    refused = anabranch("dump", *words)
    assert refused.exit_code == status
    assert says in refused.output
