"""The plots of a report as SVG in the page itself, which needs no other file, no script and no network.

A plot says more under the pointer: each mark and each column of a plot has a tooltip.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.report.page import escape_html
from anabranch.report.svg import element, points, text, ticks, tooltip
from anabranch.report.timeline import Moment, Span, Timeline, median

COLOURS: Final = (
    *("#4269d0", "#6cc5b0", "#efb118", "#a463f2", "#97bbf5", "#3ca951", "#9c6b4e", "#ff8ab7", "#5b6b8c", "#c9a227"),
    *("#1f3d8a", "#2b8a76", "#a3700a", "#6425b5", "#4f86d9", "#1e6b30", "#5f3c28", "#c44d84", "#2f3a52", "#7d6312"),
)
"""The colours of partitions, darker from the eleventh on; red is reserved for violations."""
RED: Final = "#c0392b"
INK: Final = "#1d2430"
SOFT: Final = "#5d6878"
GRID: Final = "#eef0f4"
MOMENT_MARKS: Final = {
    "resize": ("#12794a", "◆"),
    "kill": (RED, "✖"),
    "restart": (SOFT, "○"),
    "controller": ("#8e44ad", "★"),
    "network": ("#d35400", "▲"),
    "freeze": ("#2471a3", "■"),
    "disk": ("#9c6b4e", "⬢"),
}
OTHER_MARK: Final = (SOFT, "●")
LABEL_SHARE: Final = 0.006
"""The width of a letter, as a share of the plot's: a label that would cover the next mark shows only on hover."""
SPAN_TEXTS_MAX: Final = 16
COLUMNS_MAX: Final = 260
"""The maximum number of samples that a plot draws; more are averaged, which bounds the size of the page."""
WIDTH: Final = 1040
LEFT: Final = 74
RIGHT: Final = 16
TITLE: Final = 30
"""The height of a plot's title, with the gap above it."""
EDGE: Final = 8
"""Pixels before the first mark."""
AXIS: Final = 42
BAR_BINS: Final = 40


class Sample(NamedTuple):
    """One column of a plot: its time, and a value for each line."""

    t_ms: float
    values: tuple[float, ...]


class Frame(NamedTuple):
    """The place of one plot within the picture, and the times that it shows."""

    top: float
    height: float
    shown: Timeline

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + self.height

    def x(self, t_ms: float) -> float:
        """The place of a time, within the plot."""
        length_ms = max(self.shown.ended_ms - self.shown.began_ms, 1)
        share = min(max((t_ms - self.shown.began_ms) / length_ms, 0), 1)
        return LEFT + EDGE + share * (WIDTH - RIGHT - LEFT - EDGE)


def timeline(shown: Timeline) -> str:
    """Draw actions, record rates, waiting records and key moves over one time axis."""
    lanes = _lanes([one for one in shown.moments if one.label])
    plots = [
        (draw, height, title)
        for draw, height, title, included in (
            (_moments, 8 + 24 * len(lanes), "what was done", bool(lanes)),
            (_offences, 8 + 24 * len(_kinds(shown)), "violations", bool(shown.offences)),
            (_rates, 230, shown.rates_title, True),
            (_waiting, 110, "records waiting for delivery", bool(shown.waiting)),
            (_spans, 14 + 17 * len({one.partition for one in shown.spans}), shown.spans_title, bool(shown.spans)),
        )
        if included
    ]
    parts, top = [], 0.0
    for draw, height, title in plots:
        frame = Frame(top + TITLE, height, shown)
        parts += [text(title, LEFT, top + TITLE - 9, fill=SOFT, font_size=13), *draw(frame)]
        top = frame.bottom
    parts += _resize_lines(Frame(TITLE, top - TITLE, shown))
    parts += _time_axis(Frame(TITLE, top - TITLE, shown))
    return _picture(parts, top + AXIS) + _legend(list(shown.rates))


def distribution(values_ms: Sequence[int], *, what: str) -> str:
    """Draw a histogram of durations, with the median marked. Negative ones are in the first bar."""
    marks = ticks(max(*values_ms, 1), count=BAR_BINS)
    width_ms, high_ms = marks[1], marks[-1]
    counts = [0] * (len(marks) - 1)
    for value in values_ms:
        counts[min(max(int(value / width_ms), 0), len(counts) - 1)] += 1
    top, bottom, left = TITLE, 200.0, LEFT + EDGE

    def x(ms: float) -> float:
        return left + ms / high_ms * (WIDTH - RIGHT - left)

    levels = ticks(max(counts))
    parts = _levels(levels, top, bottom)
    for number, count in enumerate(counts):
        if count:
            high = (bottom - top) * count / levels[-1]
            begin = "up" if number == 0 and min(values_ms) < 0 else f"{marks[number]:,g}"
            note = tooltip(f"{begin} to {marks[number + 1]:,g} ms: {count:,}")
            width = x(width_ms) - left - 1
            place = {"x": x(marks[number]), "y": bottom - high, "width": width, "height": high}
            parts.append(element("rect", note, fill=COLOURS[0], **place))
    middle = x(max(median(values_ms), 0))
    parts.append(element("line", x1=middle, y1=top, x2=middle, y2=bottom, stroke=RED, stroke_dasharray="2 3"))
    anchor = "middle" if LEFT + 60 < middle < WIDTH - 60 else "start" if middle < WIDTH / 2 else "end"
    parts.append(text(f"median {median(values_ms):,} ms", middle, top - 8, fill=RED, text_anchor=anchor))
    for ms in ticks(high_ms, count=10):
        if ms <= high_ms:
            parts.append(text(f"{ms:,g}", x(ms), bottom + 16, text_anchor="middle"))
    parts.append(text(f"{what}, ms", (LEFT + WIDTH) / 2, bottom + 34, text_anchor="middle"))
    return _picture(parts, bottom + AXIS)


def _picture(parts: Sequence[str], height: float) -> str:
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img", **{"class": "plot"})


def _legend(names: Sequence[str]) -> str:
    marks = (
        f"<span><i style='background:{COLOURS[place % len(COLOURS)]}'></i>{escape_html(name)}</span>"
        for place, name in enumerate(names)
    )
    return f"<p class=legend>{''.join(marks)}</p>"


def _levels(levels: Sequence[float], top: float, bottom: float) -> list[str]:
    """Draw horizontal lines at these levels, each with its number."""
    parts = []
    for level in levels:
        y = bottom - (bottom - top) * level / levels[-1]
        parts.append(element("line", x1=LEFT, y1=y, x2=WIDTH - RIGHT, y2=y, stroke=GRID))
        parts.append(text(f"{level:,g}", LEFT - 8, y, text_anchor="end", dominant_baseline="central"))
    return parts


def _time_axis(frame: Frame) -> list[str]:
    """Draw the seconds below the last plot."""
    shown, y = frame.shown, frame.bottom
    parts = [element("line", x1=LEFT, y1=y, x2=WIDTH - RIGHT, y2=y, stroke=INK)]
    ended_s = shown.seconds(shown.ended_ms)
    for second in ticks(ended_s, count=10):
        if second <= ended_s:
            x = frame.x(shown.began_ms + 1000 * second)
            parts.append(element("line", x1=x, y1=y, x2=x, y2=y + 4, stroke=INK))
            parts.append(text(f"{second:,g}", x, y + 17, text_anchor="middle"))
    parts.append(text("seconds since the first record", (LEFT + WIDTH) / 2, y + 35, text_anchor="middle"))
    return parts


def _lanes(moments: Sequence[Moment]) -> dict[str, list[Moment]]:
    """Moments by kind, in a fixed order."""
    lanes: dict[str, list[Moment]] = defaultdict(list)
    for kind in (*MOMENT_MARKS, *sorted({one.kind for one in moments} - set(MOMENT_MARKS))):
        for moment in moments:
            if moment.kind == kind:
                lanes[kind].append(moment)
    return dict(lanes)


def _lane_places(names: Sequence[str], frame: Frame) -> tuple[dict[str, float], list[str]]:
    """The height of each lane by its name, and the lanes' names as text."""
    step = frame.height / max(len(names), 1)
    places = {name: frame.top + step * (number + 0.5) for number, name in enumerate(names)}
    labels = [text(name, LEFT - 8, y, text_anchor="end", dominant_baseline="central") for name, y in places.items()]
    return places, labels


def _moments(frame: Frame) -> list[str]:
    lanes = _lanes([one for one in frame.shown.moments if one.label])
    places, parts = _lane_places(list(lanes), frame)
    for kind, moments in lanes.items():
        colour, glyph = MOMENT_MARKS.get(kind, OTHER_MARK)
        for one, (label, side) in zip(moments, _labels(moments, frame.shown), strict=True):
            x, centre = frame.x(one.t_ms), {"dominant_baseline": "central", "fill": colour}
            note = tooltip(f"{frame.shown.seconds(one.t_ms):.1f} s: {one.text}")
            mark = text(glyph, x, places[kind], text_anchor="middle", font_size=13, **centre)
            if label:
                beside, anchor = (x + 9, "start") if side == "right" else (x - 9, "end")
                mark += text(label, beside, places[kind], text_anchor=anchor, font_size=11, **centre)
            parts.append(element("g", note, mark))
    return parts


def _labels(moments: Sequence[Moment], shown: Timeline) -> list[tuple[str, str]]:
    """The labels of one lane, with the side of the mark that has room; empty without room."""
    letter_ms = LABEL_SHARE * (shown.ended_ms - shown.began_ms)
    ends = [*(one.t_ms for one in moments[1:]), shown.ended_ms]
    labels, free_ms = [], float(shown.began_ms)
    for one, end_ms in zip(moments, ends, strict=True):
        needed_ms = letter_ms * (len(one.label) + 2)
        if one.t_ms + needed_ms < end_ms:
            labels.append((one.label, "right"))
        elif one.t_ms - needed_ms > free_ms:
            labels.append((one.label, "left"))
        else:
            labels.append(("", "right"))
        free_ms = one.t_ms + (needed_ms if labels[-1] == (one.label, "right") else letter_ms)
    return labels


def _kinds(shown: Timeline) -> list[str]:
    return sorted({one.kind for one in shown.offences})


def _offences(frame: Frame) -> list[str]:
    places, parts = _lane_places(_kinds(frame.shown), frame)
    for one in frame.shown.offences:
        note = tooltip(f"{frame.shown.seconds(one.t_ms):.1f} s: {one.text}")
        at = {"x": frame.x(one.t_ms), "y": places[one.kind]}
        mark = element("text", note, "✕", **at, fill=RED, text_anchor="middle", dominant_baseline="central")
        parts.append(mark)
    return parts


def samples(series: Mapping[str, Sequence[tuple[int, float]]]) -> list[Sample]:
    """Align series by time, with 0 where one has no value, and average them down to `COLUMNS_MAX` columns."""
    by_time: dict[float, list[float]] = defaultdict(lambda: [0.0] * len(series))
    for place, pairs in enumerate(series.values()):
        for t_ms, value in pairs:
            by_time[t_ms][place] = value
    found = [Sample(t_ms, tuple(values)) for t_ms, values in sorted(by_time.items())]
    size = -(-len(found) // COLUMNS_MAX) or 1
    return [_mean(found[start : start + size]) for start in range(0, len(found), size)]


def _mean(chunk: Sequence[Sample]) -> Sample:
    if len(chunk) == 1:
        return chunk[0]
    values = zip(*(one.values for one in chunk), strict=True)
    return Sample(sum(one.t_ms for one in chunk) / len(chunk), tuple(sum(each) / len(chunk) for each in values))


def _rates(frame: Frame) -> list[str]:
    """Draw the rates on top of each other."""
    columns = samples(frame.shown.rates)
    stacks = [list(itertools.accumulate(one.values, initial=0.0)) for one in columns]
    levels = ticks(max((stack[-1] for stack in stacks), default=1))
    parts = _levels(levels, frame.top, frame.bottom)

    def y(value: float) -> float:
        return frame.bottom - frame.height * value / levels[-1]

    xs = [frame.x(one.t_ms) for one in columns]
    for place in range(len(frame.shown.rates)):
        upper = [(x, y(stack[place + 1])) for x, stack in zip(xs, stacks, strict=True)]
        lower = [(x, y(stack[place])) for x, stack in zip(xs, stacks, strict=True)]
        colour = COLOURS[place % len(COLOURS)]
        area = points([*upper, *reversed(lower)])
        parts.append(element("polygon", points=area, fill=colour, fill_opacity=0.55, stroke=colour, stroke_width=0.6))

    def note(one: Sample) -> str:
        each = [f"{name}: {rate:,.0f}/s" for name, rate in zip(frame.shown.rates, one.values, strict=True) if rate]
        return "\n".join([f"{frame.shown.seconds(one.t_ms):.1f} s: {sum(one.values):,.0f}/s", *each])

    return parts + _tooltips(frame, columns, note)


def _waiting(frame: Frame) -> list[str]:
    columns = samples({"": frame.shown.waiting})
    levels = ticks(max(one.values[0] for one in columns), count=2)
    line = [(frame.x(one.t_ms), frame.bottom - frame.height * one.values[0] / levels[-1]) for one in columns]
    area = [(line[0][0], frame.bottom), *line, (line[-1][0], frame.bottom)]
    return [
        *_levels(levels, frame.top, frame.bottom),
        element("polygon", points=points(area), fill=SOFT, fill_opacity=0.14),
        element("polyline", points=points(line), fill="none", stroke=SOFT, stroke_width=1.2),
        *_tooltips(
            frame,
            columns,
            lambda one: f"{frame.shown.seconds(one.t_ms):.1f} s: {one.values[0]:,.0f} waiting",
        ),
    ]


def _tooltips(frame: Frame, columns: Sequence[Sample], note: Callable[[Sample], str]) -> list[str]:
    """Cover a plot with invisible columns that have the numbers as tooltips."""
    if not columns:
        return []
    xs = [frame.x(one.t_ms) for one in columns]
    edges = [LEFT, *((left + right) / 2 for left, right in itertools.pairwise(xs)), WIDTH - RIGHT]
    return [
        element("rect", tooltip(note(one)), x=left, y=frame.top, width=right - left, height=frame.height, opacity=0)
        for one, (left, right) in zip(columns, itertools.pairwise(edges), strict=True)
    ]


def _has_room_right(span: Span, shown: Timeline, label: str) -> bool:
    """Whether a label fits between the end of a span and the end of the plot."""
    room_ms = LABEL_SHARE * (shown.ended_ms - shown.began_ms) * (len(label) + 4)
    return span.ended_ms + room_ms < shown.ended_ms


def _spans(frame: Frame) -> list[str]:
    shown = frame.shown
    partitions = sorted({span.partition for span in shown.spans})
    places, parts = _lane_places([str(one) for one in partitions], frame)
    for span in shown.spans:
        left, right, y = frame.x(span.began_ms), frame.x(span.ended_ms), places[str(span.partition)]
        colour, took = COLOURS[span.partition % len(COLOURS)], f"{span.took_ms:,} ms"
        note = tooltip(f"{span.name}: {took}")
        line = {"x1": left, "y1": y, "x2": max(right, left + 0.1), "y2": y}
        mark = element("line", **line, stroke=colour, stroke_width=6, stroke_linecap="round")
        if len(shown.spans) <= SPAN_TEXTS_MAX:
            beside, anchor = (right + 8, "start") if _has_room_right(span, shown, took) else (left - 8, "end")
            mark += text(took, beside, y, text_anchor=anchor, dominant_baseline="central", font_size=11)
        parts.append(element("g", note, mark))
    middle = (frame.top + frame.bottom) / 2
    if frame.height > 60:
        turn = f"rotate(-90 14 {middle:.0f})"
        parts.append(text("partition", 14, middle, transform=turn, text_anchor="middle"))
    return parts


def _resize_lines(frame: Frame) -> list[str]:
    """Draw a thin line through all plots at each resize and each kill of a process."""
    found = []
    for one in frame.shown.moments:
        if one.label and one.kind in ("resize", "kill"):
            ends = {"x1": frame.x(one.t_ms), "y1": frame.top, "x2": frame.x(one.t_ms), "y2": frame.bottom}
            found.append(element("line", **ends, stroke=MOMENT_MARKS[one.kind][0], stroke_dasharray="1 3"))
    return found
