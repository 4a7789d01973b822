"""Plots draw a timeline readably."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from anabranch.report import plots
from anabranch.report.timeline import Moment, Offence, Span, Timeline


def picture(drawn: str) -> ET.Element:
    """The picture, parsed: it must be well-formed."""
    return ET.fromstring(drawn.partition("</svg>")[0] + "</svg>")


def texts(drawn: str, size: str = "") -> list[str]:
    """The texts of a picture, or those of one size."""
    return [str(one.text) for one in picture(drawn).iter("text") if not size or one.get("font-size") == size]


def titles(drawn: str) -> list[str]:
    return [
        str(one.text) for one in picture(drawn).iter("text") if one.get("fill") == plots.SOFT and one.get("x") == "74"
    ]


def tooltips(drawn: str) -> list[str]:
    return [str(one.text) for one in picture(drawn).iter("title")]


def test_only_parts_with_data_are_drawn() -> None:
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
    assert titles(plots.timeline(bare)) == ["records per second, by partition"]
    assert titles(plots.timeline(full)) == [
        "what was done",
        "violations",
        "records per second, by partition",
        "records waiting for delivery",
        "hand-offs",
    ]
    assert {"6 partitions", "80 ms"} <= set(texts(plots.timeline(full), "11"))
    assert "not drawn" not in plots.timeline(full)
    expected = [
        "0.4 s: it grew",
        "0.6 s: one was lost",
        "0.5 s: 3/s\npartition 0: 3/s",
        "0.5 s: 7 waiting",
        "1@1: 80 ms",
    ]
    assert tooltips(plots.timeline(full)) == expected


def test_labels_are_drawn_only_where_they_fit() -> None:
    times = (100, 30_000, 31_000, 99_500)
    moments = [Moment(t_ms, "kill", "killed", f"broker {place}") for place, t_ms in enumerate(times)]
    drawn = picture(plots.timeline(Timeline(0, 100_000, moments=moments)))
    labels = [(one.text, one.get("text-anchor")) for one in drawn.iter("text") if one.get("font-size") == "11"]
    assert labels == [("broker 0", "start"), ("broker 1", "end"), ("broker 2", "start"), ("broker 3", "end")]
    crowd = [Moment(t_ms, "kill", "killed", "broker") for t_ms in (0, 10, 20)]
    drawn_crowd = plots.timeline(Timeline(0, 100_000, moments=crowd))
    assert texts(drawn_crowd, "11") == ["broker"] and len(tooltips(drawn_crowd)) == 3


def test_span_at_end_of_plot_has_its_label_on_the_left() -> None:
    spans = [Span("early", 0, 1_000, 1_080), Span("late", 1, 99_000, 99_900)]
    drawn = picture(plots.timeline(Timeline(0, 100_000, spans=spans)))
    labels = [(one.text, one.get("text-anchor")) for one in drawn.iter("text") if one.get("font-size") == "11"]
    assert labels == [("80 ms", "start"), ("900 ms", "end")]


def test_every_kind_of_violation_has_its_own_line() -> None:
    kinds = ["before gate", "lost", "repeated", "two owners"]
    offences = [Offence(600, kind, "wrong") for kind in reversed(kinds)]
    drawn = picture(plots.timeline(Timeline(0, 1000, rates={"partition 0": [(500, 3.0)]}, offences=offences)))
    heights = {one.text: one.get("y") for one in drawn.iter("text") if one.text in kinds}
    assert list(heights) == kinds and len(set(heights.values())) == 4


def test_run_without_length_or_records_is_drawn() -> None:
    assert texts(plots.timeline(Timeline(5, 5)))
    assert texts(plots.timeline(Timeline(5, 5, rates={"partition 0": [(5, 0.0)]}, waiting=[(5, 0)])))


def test_series_are_aligned_and_long_ones_averaged() -> None:
    assert plots.samples({"a": [(1, 2.0), (2, 4.0)], "b": [(2, 1.0)]}) == [(1, (2.0, 0.0)), (2, (4.0, 1.0))]
    long = plots.samples({"a": [(t_ms, float(t_ms % 2)) for t_ms in range(4 * plots.COLUMNS_MAX)]})
    assert len(long) == plots.COLUMNS_MAX and {one.values for one in long} == {(0.5,)}


def test_long_audit_of_many_partitions_is_a_small_picture() -> None:
    rates = {f"partition {index}": [(500 * n, 123.4 + n) for n in range(1200)] for index in range(20)}
    assert len(plots.timeline(Timeline(0, 600_000, rates=rates))) < 300_000


def test_distribution_marks_its_median_and_counts_every_value() -> None:
    drawn = plots.distribution([10, 20, 90], what="hand-off")
    assert "median 20 ms" in texts(drawn) and "hand-off, ms" in texts(drawn)
    assert [note.rpartition(": ")[2] for note in tooltips(drawn)] == ["1", "1", "1"]
    assert texts(plots.distribution([0, 0], what="hand-off"))


def test_distribution_counts_negative_durations_in_its_first_bar() -> None:
    """A hand-off is negative if a record of the old partition was delivered, perhaps again, after it."""
    drawn = plots.distribution([-100_000, -1, 20, 90], what="hand-off")
    assert [note.rpartition(": ")[2] for note in tooltips(drawn)] == ["2", "1", "1"]
    assert tooltips(drawn)[0] == "up to 5 ms: 2"
    only = plots.distribution([-7, -5, -3], what="hand-off")
    assert "median -5 ms" in texts(only) and len(tooltips(only)) == 1
