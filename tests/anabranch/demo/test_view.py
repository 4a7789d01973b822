"""The view of a running demo."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable

from rich.console import Console

from anabranch.demo.progress import Story
from anabranch.demo.scenario import TICK_S
from anabranch.demo.view import View, audit_phrase
from anabranch.report.timeline import Moment


def test_without_terminal_a_line_shows_progress() -> None:
    written = io.StringIO()
    view = View(Console(file=written, width=200))
    story = Story("job", total=1000, began_ms=0, ended_ms=0)
    story.acked = 400
    story.gates = {"reader-1": ["a", "b"], "reader-2": ["c"]}
    view.follow(story)
    view.tick(1.5)
    assert "job: 400 of 1,000 acknowledged" in written.getvalue()
    assert "3 gates closed, audit: warming up" in written.getvalue()


def test_terminal_shows_partitions_of_each_reader() -> None:
    written = io.StringIO()
    view = View(Console(file=written, width=120, force_terminal=True))
    story = Story("job", total=1000, began_ms=0, ended_ms=0)
    story.assigned = {"reader-1": [0, 2]}
    story.audited = {"delivered": 5, "out_of_order": 1}
    view.follow(story)
    with view:
        view.tick(1.0)
    assert "reader-1" in written.getvalue() and "0 2" in written.getvalue()
    assert audit_phrase(story) == "5 seen, 1 out of order"


def test_events_are_shown_with_their_time() -> None:
    written = io.StringIO()
    View(Console(file=written)).tell(Moment(1500, "kill", "broker 2 is killed"), 1.5)
    assert "1.50 s" in written.getvalue() and "broker 2 is killed" in written.getvalue()


def test_wait_is_shown_with_its_seconds() -> None:
    written = io.StringIO()
    view = View(Console(file=written, width=200))
    with view.waiting_for("Spark to start", lambda: 2.0):
        view.tick(14.0)
        assert "waiting for Spark to start, 12 s" in written.getvalue()
        view.follow(Story("job", total=1000))
        view.tick(25.0)
    assert "audit: warming up; waiting for Spark to start, 23 s" in written.getvalue()
    view.tick(40.0)
    assert written.getvalue().count("waiting for") == 2


class TimedLines(io.StringIO):
    """Text that knows when each line was written, in seconds that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.lines: list[tuple[float, str]] = []

    def write(self, text: str, /) -> int:
        self.lines += [(self.now_s, line) for line in text.splitlines()]
        return len(text)


def longest_silence_s(lines: Iterable[tuple[float, str]], ended_s: float) -> float:
    """The longest time without a line, from 0 on."""
    times = [0.0, *(at_s for at_s, _ in lines), ended_s]
    return max(later - sooner for sooner, later in itertools.pairwise(times))


def test_output_never_pauses_for_three_seconds() -> None:
    """Before its story, while it waits, between two waits, and beside events that come at any time."""
    written = TimedLines()
    view = View(Console(file=written, width=200))

    def pass_time(until_s: float) -> None:
        while written.now_s < until_s:
            written.now_s += TICK_S
            view.tick(written.now_s)

    pass_time(10.1)
    view.tell(Moment(0, "phase", "starting ZooKeeper"), written.now_s)
    with view.waiting_for("the cluster", lambda: written.now_s):
        pass_time(22)
    view.tell(Moment(0, "phase", "cluster is up"), written.now_s)
    pass_time(40)
    view.follow(Story("job", total=1000))
    for second in range(41, 60):
        view.tell(Moment(0, "resize", "it grew"), written.now_s)
        pass_time(second + 0.3 * (second % 3))
    pass_time(90)
    assert longest_silence_s(written.lines, 90) <= 3
    shown = [line.split(" s  ")[1] for _, line in written.lines]
    assert shown[:2] == ["starting, 0 s ago", "starting, 3 s ago"]
    assert "cluster is up, 5 s ago" in shown


def test_event_replaces_a_status_line() -> None:
    written = TimedLines()
    view = View(Console(file=written, width=200))
    for number in range(20):
        view.tell(Moment(0, "resize", "it grew"), float(number))
        view.tick(number + TICK_S)
    assert {line.split(" s  ")[1] for _, line in written.lines} == {"it grew"}
