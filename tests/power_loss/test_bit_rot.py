"""A flipped bit is refused, repaired or without effect; no reader gets other records than were written."""

from __future__ import annotations

import pytest

from anabranch.broker.storage import segment
from tests.power_loss.bit_rot import NOT_CHECKED, play


def served(seed: int, flips: int) -> list[tuple[str, str, str]]:
    """What readers got that was never written, unless no checksum covers it."""
    found = play(seed, flips)
    assert sum(found.values()) == flips
    return [row for row in found if row[2].startswith("SERVED") and row[1] not in NOT_CHECKED]


def test_flipped_bit_is_never_served() -> None:
    assert served(1, 60) == []


@pytest.mark.costly
def test_broker_that_does_not_verify_what_it_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "valid_prefix", lambda data, *_: (len(data), ""))
    assert served(1, 200)
