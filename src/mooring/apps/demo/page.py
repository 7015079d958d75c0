"""From a story to one self-contained HTML page."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from mooring.apps.demo.story import Story

_COLOURS = qualitative.T10
_INK, _QUIET, _ALARM = "#1f2933", "#7b8794", "#b03a2e"


def render(story: Story) -> str:
    """Return the page as HTML; it needs nothing from the network."""
    figures = [_before_and_after(story), _methods(story), _noise(story)]
    plots = [
        figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False}) for figure in figures
    ]
    return _PAGE.format(
        plotly=get_plotlyjs(),
        participants=story.n_participants,
        rows=story.rows_each,
        components=story.n_components,
        anchor_rows=story.n_anchor_rows,
        test_rows=story.n_test_rows,
        transition=f"{story.transition_scale:.3f}",
        local=f"{story.local_only:.1%}",
        pooled=f"{story.pooled_raw:.1%}",
        seed=story.seed,
        maps=plots[0],
        methods=plots[1],
        noise=plots[2],
        table=_table(story),
    )


def _before_and_after(story: Story) -> go.Figure:
    figure = make_subplots(cols=2, subplot_titles=("as uploaded", "after alignment"), horizontal_spacing=0.06)
    for column, points in enumerate((story.uploaded, story.aligned), start=1):
        for digit in range(10):
            chosen = [point for point, label in zip(points, story.labels, strict=True) if label == digit]
            figure.add_scatter(
                x=[x for x, _ in chosen],
                y=[y for _, y in chosen],
                mode="markers",
                name=str(digit),
                legendgroup=str(digit),
                showlegend=column == 2,
                marker={"size": 5, "color": _COLOURS[digit], "opacity": 0.75},
                row=1,
                col=column,
            )
    figure.update_xaxes(showticklabels=False, zeroline=False).update_yaxes(showticklabels=False, zeroline=False)
    return _styled(figure, height=420).update_layout(legend_title_text="digit")


def _methods(story: Story) -> go.Figure:
    shown = list(reversed(story.methods))
    figure = go.Figure(
        go.Bar(
            x=[method.accuracy for method in shown],
            y=[method.title for method in shown],
            orientation="h",
            marker_color="#4878a8",
            text=[f"{method.accuracy:.1%}" for method in shown],
            textposition="inside",
            insidetextanchor="end",
        )
    )
    _truth_lines(figure, story, vertical=True)
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02], title="accuracy on test rows, scored locally without noise")
    return _styled(figure, height=380)


def _noise(story: Story) -> go.Figure:
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    shares = [outcome.share_of_transition for outcome in story.noise]
    figure.add_scatter(
        x=shares,
        y=[outcome.accuracy for outcome in story.noise],
        name="accuracy",
        mode="lines+markers",
        line_color="#4878a8",
    )
    figure.add_scatter(
        x=shares,
        y=[outcome.disagreement for outcome in story.noise],
        name="disagreement of the maps",
        mode="lines+markers",
        marker={"symbol": ["circle" if outcome.certified else "circle-open" for outcome in story.noise], "size": 9},
        line={"color": "#d1885c", "dash": "dot"},
        secondary_y=True,
    )
    _truth_lines(figure, story, vertical=False)
    figure.update_xaxes(title="anchor noise, as a share of the transition scale v_PT")
    figure.update_yaxes(title="accuracy", tickformat=".0%", range=[0, 1.02], secondary_y=False)
    figure.update_yaxes(
        title="disagreement (0 = perfect)", rangemode="tozero", showgrid=False, tickformat=".1f", secondary_y=True
    )
    return _styled(figure, height=400).update_layout(legend={"orientation": "h", "y": 1.12})


def _truth_lines(figure: go.Figure, story: Story, *, vertical: bool) -> None:
    for value, words, colour, place in (
        (story.local_only, f"local only {story.local_only:.1%}", _ALARM, "bottom right"),
        (story.pooled_raw, f"pooled raw {story.pooled_raw:.1%}", _QUIET, "top right"),
    ):
        line = {"line_dash": "dash", "line_color": colour, "annotation_text": words, "annotation_font_color": colour}
        if vertical:
            figure.add_vline(value, **line, annotation={"yref": "paper", "y": 1.1, "xanchor": "center"})
        else:
            figure.add_hline(value, **line, annotation_position=place)


def _styled(figure: go.Figure, *, height: int) -> go.Figure:
    return figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 40, "r": 40, "t": 50, "b": 50},
        font={"family": "system-ui, sans-serif", "size": 13, "color": _INK},
    )


def _table(story: Story) -> str:
    rows = "".join(
        f"<tr><td>{escape(method.title)}</td><td class=n>{method.data_noise_scale:.3f}</td>"
        f"<td class=n>{method.anchor_noise_scale:.3f}</td><td class=n>{method.accuracy:.1%}</td>"
        f"<td>{escape(method.alignment)}</td></tr>"
        for method in story.methods
    )
    truth = "".join(
        f"<tr class=truth><td>{words}</td><td></td><td></td><td class=n>{value:.1%}</td><td></td></tr>"
        for words, value in (
            ("Local only (each participant alone, mean)", story.local_only),
            ("Pooled raw (no protection at all)", story.pooled_raw),
        )
    )
    head = "<tr><th>method</th><th>data noise σ</th><th>anchor noise v</th><th>accuracy</th><th>alignment</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}{truth}</tbody></table>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>mooring: one alignment, end to end</title>
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; color: #1f2933; max-width: 60rem; margin: 2.5rem auto; padding: 0 1.2rem; }}
h1 {{ font-size: 1.7rem; margin-bottom: .3rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }}
p.lead {{ color: #52606d; margin-top: 0; }}
.warn {{ border-left: 4px solid #b03a2e; background: #fdf3f1; padding: .7rem 1rem; }}
table {{ border-collapse: collapse; width: 100%; font-size: .92rem; }}
th, td {{ text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #e4e7eb; vertical-align: top; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }} tr.truth td {{ background: #f5f7fa; }}
footer {{ color: #7b8794; font-size: .85rem; margin-top: 2.5rem; }}
</style><script>{plotly}</script></head><body>
<h1>One alignment, end to end</h1>
<p class="lead">{participants} participants, {rows} handwritten digits each. Every participant moved its rows by a secret
rigid map of its own and uploaded once; the analyst saw neither rows nor anchor.</p>
<p class="warn"><b>What this page does not show is safety.</b> Anchor noise is no privacy guarantee: the uploaded rows
carry none of it. An analyst who colludes with one participant can match class means and covariances and rebuild rows
well at <em>every</em> anchor noise scale. Read the accuracies below as what joining can buy, not as what it costs.</p>
<h2>Before and after</h2>
<p>All {participants} uploads on their two main axes. As uploaded, each participant's rows lie in a coordinate system of
its own; after alignment they share one, and the digits come apart.</p>{maps}
<h2>What each method gives the analyst's model</h2>
<p>A support vector machine on the collaboration matrix. Each participant scores new rows itself, with its own map and
without noise ({test_rows} test rows in all). <b>Local only</b>, {local}, is what a participant reaches alone; <b>pooled
raw</b>, {pooled}, is what no protection at all would give.</p>{methods}{table}
<h2>How much anchor noise alignment bears</h2>
<p>Noise in units of the transition scale v<sub>PT</sub> = {transition} for {participants} participants, {components}
components and {anchor_rows} anchor rows. Filled dots: the alignment is certified as the global optimum. Open dots: not
shown. Where accuracy falls below the red line, a participant is better off alone.</p>{noise}
<footer>Seed {seed}; digits from scikit-learn. Numbers in story.json beside this page.</footer>
</body></html>
"""
