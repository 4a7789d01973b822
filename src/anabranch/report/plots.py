"""The plots of a report, drawn with Plotly into the page itself: it needs no other file and no network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anabranch.report.timeline import Moment, Span, Timeline, median

COLOURS: Final = (
    *("#4269d0", "#6cc5b0", "#efb118", "#a463f2", "#97bbf5", "#3ca951", "#9c6b4e", "#ff8ab7", "#5b6b8c", "#c9a227"),
    *("#1f3d8a", "#2b8a76", "#a3700a", "#6425b5", "#4f86d9", "#1e6b30", "#5f3c28", "#c44d84", "#2f3a52", "#7d6312"),
)
"""The colours of partitions, darker from the eleventh on; red is reserved for violations."""
RED: Final = "#c0392b"
MOMENT_MARKS: Final = {
    "resize": ("#12794a", "diamond"),
    "kill": (RED, "x"),
    "restart": ("#5d6878", "circle-open"),
    "controller": ("#8e44ad", "star"),
    "network": ("#d35400", "triangle-up"),
    "freeze": ("#2471a3", "square"),
    "disk": ("#9c6b4e", "hexagon"),
}
OTHER_MARK: Final = ("#5d6878", "circle")
LABEL_SHARE: Final = 0.006
"""The width of a letter, as a share of the plot's: a label that would cover the next mark shows only on hover."""
SPAN_TEXTS_MAX: Final = 16
LEGEND_BELOW: Final = 54
"""Pixels between the plot and the legend, below the axis title."""
EDGE: Final = 0.008
"""The margin before the first mark, as a share of the plot's width."""
FONT: Final = {"family": 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif', "size": 12, "color": "#1d2430"}


def embedded(figure: Any, *, with_library: bool) -> str:
    """A figure as HTML; the first one of a page includes the library."""
    found: str = figure.to_html(
        full_html=False,
        include_plotlyjs="inline" if with_library else False,
        config={"displayModeBar": False, "responsive": True},
    )
    return found


def timeline(shown: Timeline) -> Any:
    """Actions, record rates, waiting records and key moves over one time axis."""
    lanes = _lanes([one for one in shown.moments if one.label])
    rows = [
        (row, height, title)
        for row, height, title, wanted in (
            (_draw_moments, 26 + 24 * len(lanes), "what was done", bool(lanes)),
            (_draw_offences, 26 + 24 * len(_kinds(shown)), "violations", bool(shown.offences)),
            (_draw_rates, 230, shown.rates_title, True),
            (_draw_waiting, 110, "records waiting for delivery", bool(shown.waiting)),
            (_draw_spans, 60 + 17 * len({one.partition for one in shown.spans}), shown.spans_title, bool(shown.spans)),
        )
        if wanted
    ]
    total = sum(height for _, height, _ in rows)
    figure = make_subplots(
        rows=len(rows),
        cols=1,
        shared_xaxes=True,
        row_heights=[height / total for _, height, _ in rows],
        vertical_spacing=38 / (total + 38 * len(rows)),
        subplot_titles=[title for _, _, title in rows],
    )
    for number, (draw, _, _) in enumerate(rows, 1):
        draw(figure, number, shown)
    ended_s = shown.seconds(shown.ended_ms)
    figure.update_xaxes(range=[-EDGE * ended_s, ended_s], showgrid=False, zeroline=False)
    figure.update_xaxes(title_text="seconds since the first record", row=len(rows), col=1)
    figure.update_yaxes(gridcolor="#eef0f4", zeroline=False)
    figure.update_annotations(font={"size": 13, "color": "#5d6878"}, x=0, xanchor="left")
    _mark_resizes(figure, shown)
    figure.update_layout(
        height=total + 38 * len(rows) + 90,
        margin={"l": 70, "r": 16, "t": 34, "b": 66},
        template="simple_white",
        font=FONT,
        hovermode="closest",
        legend={
            "orientation": "h",
            "y": -LEGEND_BELOW / (total + 38 * len(rows) - 10),
            "yanchor": "top",
            "font": {"size": 11},
            "traceorder": "normal",
        },
    )
    return figure


def distribution(values_ms: Sequence[int], *, what: str) -> Any:
    """A histogram of durations, with the median marked."""
    figure = go.Figure()
    figure.add_trace(
        go.Histogram(x=list(values_ms), nbinsx=40, marker={"color": COLOURS[0], "line": {"width": 1, "color": "#fff"}})
    )
    figure.add_vline(
        x=median(values_ms),
        line={"width": 1.5, "color": RED, "dash": "dot"},
        annotation={
            "text": f"median {median(values_ms):,} ms",
            "font": {"color": RED, "size": 12},
            "yref": "paper",
            "y": 1.0,
            "yanchor": "bottom",
            "xanchor": "center",
        },
    )
    figure.update_xaxes(title_text=f"{what}, ms", rangemode="tozero", tickformat=",d")
    figure.update_yaxes(title_text="how often", gridcolor="#eef0f4", rangemode="tozero")
    figure.update_layout(
        height=260, margin={"l": 70, "r": 16, "t": 30, "b": 46}, template="simple_white", font=FONT, bargap=0.02
    )
    return figure


def _lanes(moments: Sequence[Moment]) -> dict[str, list[Moment]]:
    """Moments by kind, in a fixed order."""
    lanes: dict[str, list[Moment]] = defaultdict(list)
    for kind in (*MOMENT_MARKS, *sorted({one.kind for one in moments} - set(MOMENT_MARKS))):
        for moment in moments:
            if moment.kind == kind:
                lanes[kind].append(moment)
    return dict(lanes)


def _draw_moments(figure: Any, row: int, shown: Timeline) -> None:
    lanes = _lanes([one for one in shown.moments if one.label])
    for kind, moments in lanes.items():
        colour, symbol = MOMENT_MARKS.get(kind, OTHER_MARK)
        labels = _labels(moments, shown)
        figure.add_trace(
            go.Scatter(
                x=[shown.seconds(one.t_ms) for one in moments],
                y=[kind] * len(moments),
                mode="markers+text",
                text=[text for text, _ in labels],
                textposition=[f"middle {side}" for _, side in labels],
                textfont={"size": 11, "color": colour},
                hovertext=[f"{shown.seconds(one.t_ms):.1f} s: {one.text}" for one in moments],
                hoverinfo="text",
                marker={"size": 9, "color": colour, "symbol": symbol},
                cliponaxis=False,
                showlegend=False,
            ),
            row=row,
            col=1,
        )
    figure.update_yaxes(type="category", categoryarray=list(reversed(lanes)), categoryorder="array", row=row, col=1)
    figure.update_yaxes(range=[-0.6, len(lanes) - 0.4], dtick=1, ticks="", row=row, col=1)


def _labels(moments: Sequence[Moment], shown: Timeline) -> list[tuple[str, str]]:
    """The labels of one lane, with the side of the mark that has room; empty without room."""
    letter_ms = LABEL_SHARE * (shown.ended_ms - shown.began_ms)
    ends = [*(one.t_ms for one in moments[1:]), shown.ended_ms]
    labels, free_ms = [], float(shown.began_ms)
    for one, end_ms in zip(moments, ends, strict=True):
        needed_ms = letter_ms * (len(one.label) + 2)
        if one.t_ms + needed_ms < end_ms:
            labels.append((f" {one.label}", "right"))
        elif one.t_ms - needed_ms > free_ms:
            labels.append((f"{one.label} ", "left"))
        else:
            labels.append(("", "right"))
        free_ms = one.t_ms + (needed_ms if labels[-1][0] and labels[-1][1] == "right" else letter_ms)
    return labels


def _kinds(shown: Timeline) -> list[str]:
    return sorted({one.kind for one in shown.offences}, reverse=True)


def _draw_offences(figure: Any, row: int, shown: Timeline) -> None:
    kinds = _kinds(shown)
    figure.add_trace(
        go.Scatter(
            x=[shown.seconds(one.t_ms) for one in shown.offences],
            y=[one.kind for one in shown.offences],
            mode="markers",
            hovertext=[f"{shown.seconds(one.t_ms):.1f} s: {one.text}" for one in shown.offences],
            hoverinfo="text",
            marker={"size": 11, "color": RED, "symbol": "x-thin", "line": {"width": 2, "color": RED}},
            showlegend=False,
        ),
        row=row,
        col=1,
    )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=kinds, row=row, col=1)
    figure.update_yaxes(range=[-0.6, len(kinds) - 0.4], dtick=1, ticks="", row=row, col=1)


def _draw_rates(figure: Any, row: int, shown: Timeline) -> None:
    for place, (name, series) in enumerate(shown.rates.items()):
        colour = COLOURS[place % len(COLOURS)]
        figure.add_trace(
            go.Scatter(
                x=[shown.seconds(t_ms) for t_ms, _ in series],
                y=[rate for _, rate in series],
                name=name,
                stackgroup="rate",
                mode="lines",
                line={"width": 0.6, "color": colour},
                hovertemplate="%{y:,.0f}/s",
            ),
            row=row,
            col=1,
        )
    figure.update_yaxes(rangemode="tozero", row=row, col=1)


def _draw_waiting(figure: Any, row: int, shown: Timeline) -> None:
    figure.add_trace(
        go.Scatter(
            x=[shown.seconds(t_ms) for t_ms, _ in shown.waiting],
            y=[count for _, count in shown.waiting],
            mode="lines",
            line={"width": 1.2, "color": "#5d6878"},
            fill="tozeroy",
            fillcolor="rgba(93,104,120,.14)",
            hovertemplate="%{y:,} waiting<extra></extra>",
            showlegend=False,
        ),
        row=row,
        col=1,
    )
    figure.update_yaxes(rangemode="tozero", row=row, col=1)


def _took(span: Span, shown: Timeline) -> list[str]:
    """The labels at both ends of a span: its duration, on the right, or on the left at the end of the plot."""
    told = f"{span.took_ms:,} ms"
    room_ms = LABEL_SHARE * (shown.ended_ms - shown.began_ms) * (len(told) + 2)
    return ["", f"  {told}"] if span.ended_ms + room_ms < shown.ended_ms else [f"{told}  ", ""]


def _draw_spans(figure: Any, row: int, shown: Timeline) -> None:
    few = len(shown.spans) <= SPAN_TEXTS_MAX
    for span in shown.spans:
        colour = COLOURS[span.partition % len(COLOURS)]
        figure.add_trace(
            go.Scatter(
                x=[shown.seconds(span.began_ms), shown.seconds(span.ended_ms)],
                y=[str(span.partition)] * 2,
                mode="lines+markers+text" if few else "lines+markers",
                text=_took(span, shown),
                textposition=["middle left", "middle right"],
                textfont={"size": 11},
                hovertext=f"{span.name}: {span.took_ms:,} ms",
                hoverinfo="text",
                line={"width": 5, "color": colour},
                marker={"size": 6, "color": colour},
                cliponaxis=False,
                showlegend=False,
            ),
            row=row,
            col=1,
        )
    partitions = [str(one) for one in sorted({span.partition for span in shown.spans}, reverse=True)]
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=partitions, row=row, col=1)
    figure.update_yaxes(title_text="partition", range=[-0.6, len(partitions) - 0.4], dtick=1, ticks="", row=row, col=1)


def _mark_resizes(figure: Any, shown: Timeline) -> None:
    """Draw a thin line through all plots at each resize and each kill of a process."""
    for moment in shown.moments:
        if moment.label and moment.kind in ("resize", "kill"):
            colour, _ = MOMENT_MARKS[moment.kind]
            figure.add_vline(x=shown.seconds(moment.t_ms), line={"width": 0.8, "dash": "dot", "color": colour})
