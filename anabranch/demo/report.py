"""The HTML report of a demonstration: one file, everything inside it, drawn from the stories with Plotly."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anabranch.demo.story import Story

COLOURS: Final = ("#3366cc", "#dc3912", "#ff9900", "#109618", "#990099", "#0099c6", "#dd4477", "#66aa00")
MOMENT_COLOURS: Final = {"resize": "#109618", "kill": "#dc3912", "restart": "#888888", "controller": "#990099"}
RATE_WINDOW_MS: Final = 900
STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.6em; } h2 { font-size: 1.2em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .25em .9em .25em 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: #107010; font-weight: 600; } .bad { color: #b00000; font-weight: 600; } .dim { color: #777; }
"""


def write(path: Path, stories: Sequence[Story]) -> None:
    """Write the report: the first story is the job itself, the others are controls."""
    parts = [f"<h1>{html.escape(stories[0].topic)}: resized under fire, audited by delivery</h1>"]
    for place, story in enumerate(stories):
        parts.append(_section(story, control=place > 0, with_library=place == 0))
    title = f"Anabranch: {stories[0].topic}"
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
    page += f"<style>{STYLE}</style><body>{''.join(parts)}</body></html>"
    path.write_text(page, encoding="utf-8")


def _section(story: Story, *, control: bool, with_library: bool) -> str:
    heading = "Control: the same resize as Kafka does it today (hash modulo count, no gates)" if control else "The job"
    figure = _timeline(story)
    plot = figure.to_html(full_html=False, include_plotlyjs="inline" if with_library else False)
    return "".join([f"<h2>{heading}</h2>", _verdict(story), plot, _moments(story), _hand_offs(story)])


def _verdict(story: Story) -> str:
    rows = [
        ("flights acknowledged", story.acked, story.acked == story.total),
        ("delivered, each counted once", story.verdict.get("delivered", 0), None),
        ("out of order", story.verdict.get("out_of_order", 0), story.verdict.get("out_of_order", 0) == 0),
        ("lost", story.verdict.get("lost", 0), story.verdict.get("lost", 0) == 0),
        ("repeated", story.verdict.get("repeated", 0), story.verdict.get("repeated", 0) == 0),
        ("redelivered after a failure (allowed)", story.verdict.get("redelivered", 0), None),
    ]
    cells = "".join(
        f"<tr><td>{label}</td><td class='n {_class(good)}'>{value:,}</td></tr>" for label, value, good in rows
    )
    return f"<table>{cells}</table>"


def _class(good: bool | None) -> str:
    return "" if good is None else "good" if good else "bad"


def _timeline(story: Story) -> Any:
    figure = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        row_heights=[0.5, 0.25, 0.25],
        vertical_spacing=0.06,
        subplot_titles=(
            "records per second, by partition (acknowledged)",
            "records waiting for delivery",
            "closed gates",
        ),
    )
    for index in sorted({index for _, counts in story.acked_series for index in counts}):
        times, rates = _rates([(t_ms, counts.get(index, 0)) for t_ms, counts in story.acked_series], story.began_ms)
        figure.add_trace(
            go.Scatter(
                x=times,
                y=rates,
                name=f"partition {index}",
                stackgroup="rate",
                mode="lines",
                line={"width": 0.5, "color": COLOURS[index % len(COLOURS)]},
            ),
            row=1,
            col=1,
        )
    times, backlog = _backlog(story)
    figure.add_trace(
        go.Scatter(x=times, y=backlog, name="waiting", mode="lines", line={"color": "#555"}, showlegend=False),
        row=2,
        col=1,
    )
    for opening in story.openings:
        begin, end = (_seconds(opening[key], story.began_ms) for key in ("closed_ms", "opened_ms"))
        colour = COLOURS[int(opening["partition"]) % len(COLOURS)]
        figure.add_trace(
            go.Scatter(
                x=[begin, end],
                y=[opening["segment"]] * 2,
                mode="lines+markers+text",
                text=["", f" {1000 * (end - begin):.0f} ms"],
                textposition="middle right",
                line={"width": 6, "color": colour},
                marker={"size": 7, "color": colour},
                showlegend=False,
            ),
            row=3,
            col=1,
        )
    for place, moment in enumerate(one for one in story.moments if one.label):
        figure.add_vline(
            x=_seconds(moment.t_ms, story.began_ms),
            line={"width": 1, "dash": "dot", "color": MOMENT_COLOURS.get(moment.kind, "#bbb")},
            annotation={"text": moment.label, "font": {"size": 11}, "yshift": -13 * (place % 3)},
            row=1,
            col=1,
        )
    ended = _seconds(story.ended_ms, story.began_ms)
    figure.update_xaxes(range=[0, ended])
    figure.update_xaxes(title_text="seconds since the first record", row=3, col=1)
    figure.update_layout(height=760, margin={"l": 60, "r": 20, "t": 40, "b": 40}, template="simple_white")
    return figure


def _rates(series: Sequence[tuple[int, int]], began_ms: int) -> tuple[list[float], list[float]]:
    """Rates between reports at least `RATE_WINDOW_MS` apart."""
    times: list[float] = []
    rates: list[float] = []
    before_ms, before = series[0]
    for t_ms, count in series[1:]:
        if t_ms - before_ms >= RATE_WINDOW_MS:
            times.append(_seconds(t_ms, began_ms))
            rates.append(1000 * (count - before) / (t_ms - before_ms))
            before_ms, before = t_ms, count
    return times, rates


def _backlog(story: Story) -> tuple[list[float], list[int]]:
    """Acknowledged but not yet delivered, at each report of the readers."""
    acked = [(t_ms, sum(counts.values())) for t_ms, counts in story.acked_series]
    times: list[float] = []
    backlog: list[int] = []
    place = 0
    for t_ms, delivered in story.delivered_series:
        while place + 1 < len(acked) and acked[place + 1][0] <= t_ms:
            place += 1
        if acked and t_ms >= story.began_ms:
            times.append(_seconds(t_ms, story.began_ms))
            backlog.append(max(0, acked[place][1] - delivered))
    return times, backlog


def _moments(story: Story) -> str:
    rows = "".join(
        f"<tr><td class=n>{_seconds(one.t_ms, story.began_ms):.2f} s</td><td>{html.escape(one.kind)}</td>"
        f"<td>{html.escape(one.text)}</td></tr>"
        for one in story.moments
    )
    return f"<h3>What happened</h3><table>{rows}</table>"


def _hand_offs(story: Story) -> str:
    hand_offs = sorted(ms for _, ms in story.hand_offs_ms())
    if not hand_offs:
        return "<p class=dim>No gate was closed.</p>"
    middle, highest = hand_offs[len(hand_offs) // 2], hand_offs[-1]
    return (
        f"<p>{len(hand_offs)} gates closed and opened. From the last boundary crossed to the opening of the gate: "
        f"median {middle} ms, longest {highest} ms.</p>"
    )


def _seconds(t_ms: int, began_ms: int) -> float:
    return (t_ms - began_ms) / 1000
