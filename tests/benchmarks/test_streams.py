"""The printed downtime is the longest gap of each key, with outputs at known times."""

from __future__ import annotations

import pytest

from anabranch import ConsumerRecord
from benchmarks.report import console
from benchmarks.streams import MODES, Downtime, Gaps, figures_of, show_downtimes


def test_longest_gap_of_each_key_counts_from_given_time() -> None:
    gaps = Gaps(since_ms=1000)
    for key, times in ((b"a", (0, 900, 1050, 1100, 1400)), (b"b", (990, 1010, 1020))):
        for at in times:
            gaps.note(ConsumerRecord("out", 0, 0, at, key, b"1", (), 0))
    assert gaps.longest_ms == {b"a": 300, b"b": 20}


def test_output_compares_warm_up_with_eager_rebalancing(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        Downtime(mode, {b"a": longest, b"b": 100}, 1.0, 7)
        for mode, longest in zip(MODES, (9000, 8000, 300), strict=True)
    ]
    (figure,) = figures_of(found)
    assert (figure.met, figure.reached) == (True, "300 ms, 30x")
    with console.capture() as captured:
        show_downtimes(found, 1000)
    assert "9,000 ms" in captured.get()
    assert "1 of 2" in captured.get()
    assert "█" in captured.get()
