"""A demonstration as it is seen while it runs."""

from __future__ import annotations

import io

from rich.console import Console

from anabranch.demo.progress import Story
from anabranch.demo.view import View, audited
from anabranch.report.timeline import Moment


def test_without_a_terminal_a_line_says_how_far_it_is() -> None:
    written = io.StringIO()
    view = View(Console(file=written, width=200))
    view.tick(0.0)
    assert not written.getvalue(), "there is no story yet"
    story = Story("job", total=1000, began_ms=0, ended_ms=0)
    story.acked = 400
    story.gates = {"reader-1": ["a", "b"], "reader-2": ["c"]}
    view.follow(story)
    view.tick(1.5)
    assert "job: 400 of 1,000 acknowledged" in written.getvalue()
    assert "3 gates closed, audit: warming up" in written.getvalue()


def test_a_terminal_shows_who_reads_what() -> None:
    written = io.StringIO()
    view = View(Console(file=written, width=120, force_terminal=True))
    story = Story("job", total=1000, began_ms=0, ended_ms=0)
    story.assigned = {"reader-1": [0, 2]}
    story.audited = {"delivered": 5, "out_of_order": 1}
    view.follow(story)
    with view:
        view.tick(1.0)
    assert "reader-1" in written.getvalue() and "0 2" in written.getvalue()
    assert audited(story) == "5 seen, 1 out of order"


def test_what_happens_is_told_with_its_time() -> None:
    written = io.StringIO()
    View(Console(file=written)).tell(Moment(1500, "kill", "broker 2 is killed"), 1.5)
    assert "1.50 s" in written.getvalue() and "broker 2 is killed" in written.getvalue()


def test_a_wait_is_shown_with_its_seconds_before_and_beside_a_story() -> None:
    written = io.StringIO()
    view = View(Console(file=written, width=200))
    with view.waiting_for("audit to say 'ready'", lambda: 2.0):
        view.tick(14.0)
        assert "waiting for audit to say 'ready', 12 s" in written.getvalue()
        view.follow(Story("job", total=1000))
        view.tick(25.0)
    assert "audit: warming up; waiting for audit to say 'ready', 23 s" in written.getvalue()
    view.tick(40.0)
    assert written.getvalue().count("waiting for") == 2
