"""What a timeline shows is drawn where it can be read."""

from __future__ import annotations

from anabranch.report import plots
from anabranch.report.timeline import Moment, Offence, Span, Timeline


def test_every_part_that_has_something_to_show_is_drawn_and_no_other() -> None:
    bare = Timeline(0, 1000, rates={"partition 0": [(500, 3.0)]})
    full = Timeline(
        0,
        1000,
        rates={"partition 0": [(500, 3.0)]},
        waiting=[(500, 7)],
        moments=[Moment(400, "resize", "it grew", "6 partitions"), Moment(450, "phase", "not drawn")],
        spans=[Span("1@1", 1, 400, 480)],
        offences=[Offence(600, "lost", "one was lost")],
    )
    titles = [[one.text for one in plots.timeline(shown).layout.annotations] for shown in (bare, full)]
    assert titles[0] == ["records per second, by partition"]
    assert titles[1] == [
        "what was done",
        "violations",
        "records per second, by partition",
        "records waiting for delivery",
        "hand-offs",
    ]
    texts = [text for trace in plots.timeline(full).data for text in (trace.text or ())]
    assert " 6 partitions" in texts and "  80 ms" in texts
    assert not any("not drawn" in str(trace) for trace in plots.timeline(full).data)


def test_labels_stand_where_there_is_room_or_nowhere() -> None:
    times = (100, 30_000, 31_000, 99_500)
    moments = [Moment(t_ms, "kill", "killed", f"broker {place}") for place, t_ms in enumerate(times)]
    (lane,) = (one for one in plots.timeline(Timeline(0, 100_000, moments=moments)).data if one.text)
    assert list(lane.text) == [" broker 0", "broker 1 ", " broker 2", "broker 3 "]
    assert list(lane.textposition) == ["middle right", "middle left", "middle right", "middle left"]
    crowd = [Moment(t_ms, "kill", "killed", "broker") for t_ms in (0, 10, 20)]
    (lane,) = (one for one in plots.timeline(Timeline(0, 100_000, moments=crowd)).data if one.text)
    assert list(lane.text) == ["", "", " broker"]


def test_at_the_end_of_the_plot_a_span_is_told_on_its_left() -> None:
    spans = [Span("early", 0, 1_000, 1_080), Span("late", 1, 99_000, 99_900)]
    drawn = [one for one in plots.timeline(Timeline(0, 100_000, spans=spans)).data if one.text]
    assert [list(one.text) for one in drawn] == [["", "  80 ms"], ["900 ms  ", ""]]


def test_every_kind_of_violation_has_a_line_of_its_own() -> None:
    offences = [Offence(600, kind, "wrong") for kind in ("two owners", "lost", "repeated", "before gate")]
    figure = plots.timeline(Timeline(0, 1000, rates={"partition 0": [(500, 3.0)]}, offences=offences))
    lines = figure.layout.yaxis
    assert lines.title.text is None and list(lines.categoryarray) == ["two owners", "repeated", "lost", "before gate"]
    assert (lines.dtick, list(lines.range)) == (1, [-0.6, 3.6])


def test_a_distribution_marks_its_median() -> None:
    (line,) = plots.distribution([10, 20, 90], what="hand-off").layout.annotations
    assert line.text == "median 20 ms"
