"""A terminal gets a live screen; other output gets a line every few seconds."""

from __future__ import annotations

import io

from rich.console import Console

from anabranch.report.screen import PLAIN_EVERY_S, Screen


def never() -> str:
    raise AssertionError("this is not what such a place is shown")


def test_without_terminal_a_line_is_printed_periodically() -> None:
    written = io.StringIO()
    with Screen(Console(file=written)) as screen:
        for now_s in (0.0, 1.0, PLAIN_EVERY_S - 0.1, PLAIN_EVERY_S, PLAIN_EVERY_S + 1):
            screen.update(now_s, whole=never, line=lambda now_s=now_s: f"at {now_s:g}")
    assert written.getvalue().splitlines() == ["at 0", f"at {PLAIN_EVERY_S:g}"]


def test_terminal_shows_the_whole_screen() -> None:
    written = io.StringIO()
    with Screen(Console(file=written, force_terminal=True, width=40)) as screen:
        screen.update(0.0, whole=lambda: "the whole", line=never)
    assert "the whole" in written.getvalue()
