"""Draw and print the survival curves of the pooled rows beside those that were read off the total.

compare.py FOLDER ANSWER.json PAGE.html
"""

import json
import sys
from pathlib import Path

import pandas as pd
from lifelines import KaplanMeierFitter

WIDTH, HEIGHT, MARGIN = 720, 420, 48
COLOURS = ("#0b6e99", "#b3541e", "#4c7a34", "#7a3b8f")


def main() -> None:
    """Print a line per group and time, and the largest deviation; write the page."""
    rows = pd.concat(pd.read_csv(path) for path in sorted(Path(sys.argv[1]).glob("*/rows.csv")))
    points = json.loads(Path(sys.argv[2]).read_text())["points"]
    largest, last, shapes = 0.0, max(point["end"] for point in points), []
    print("group  months  pooled rows  from the total  95 % interval")
    for colour, (group, part) in zip(COLOURS, rows.groupby("hormone"), strict=False):
        curve = KaplanMeierFitter().fit(part["months"], part["event"] == "yes")
        of_group = [point for point in points if point["group"] == group]
        for point in of_group:
            pooled = float(curve.predict(point["end"]))
            largest = max(largest, abs(pooled - point["survival"]))
            interval = f"{point['low']:.2f} to {point['high']:.2f}"
            print(f"{group:5}  {point['end']:6g}  {pooled:11.2f}  {point['survival']:14.2f}  {interval}")
        pooled_steps = [(t, s) for t, s in curve.survival_function_.iloc[:, 0].items() if t <= last]
        shapes += draw_group(group, of_group, pooled_steps, colour, last, len(shapes))
    print(f"Largest deviation: {largest:.3f}")
    Path(sys.argv[3]).write_text(make_page(shapes, last, largest), encoding="utf-8")


def draw_group(group, points, pooled, colour, last, n_before):
    """Return a group's band and curves as SVG: the total's as a line with its intervals, the pooled rows' dashed."""

    def place(time, share):
        return f"{MARGIN + time / last * (WIDTH - 2 * MARGIN):.1f},{MARGIN + (1 - share) * (HEIGHT - 2 * MARGIN):.1f}"

    ends = [0.0, *(point["end"] for point in points)]
    low, high = ([1.0, *(point[side] for point in points)] for side in ("low", "high"))
    band = [place(t, s) for t, s in zip(ends, high, strict=True)] + [
        place(t, s) for t, s in zip(ends, low, strict=True)
    ][::-1]
    line = " ".join(place(t, s) for t, s in zip(ends, [1.0, *(point["survival"] for point in points)], strict=True))
    steps, before = [], 1.0
    for time, share in pooled:
        steps += [place(time, before), place(time, share)]
        before = share
    y = MARGIN + 10 * n_before
    return [
        f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.15"/>',
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
        f'<polyline points="{" ".join(steps)}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="5 4"/>',
        f'<text x="{WIDTH - MARGIN}" y="{y}" text-anchor="end" fill="{colour}">hormone: {group}</text>',
    ]


def make_page(shapes, last, largest):
    """Return the page."""
    bottom, right = HEIGHT - MARGIN, WIDTH - MARGIN
    axes = [f'<path d="M{MARGIN},{MARGIN} V{bottom} H{right}" fill="none" stroke="currentColor"/>']
    axes += [
        f'<text x="{MARGIN - 8}" y="{MARGIN + (1 - share) * (bottom - MARGIN) + 4:.0f}" text-anchor="end">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    axes += [
        f'<text x="{MARGIN + k / 4 * (right - MARGIN):.0f}" y="{bottom + 20}" text-anchor="middle">{k / 4 * last:g}</text>'
        for k in range(5)
    ]
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" fill="currentColor">{"".join(axes + shapes)}</svg>'
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>Survival by treatment</title>"
        "<style>body{font:16px/1.5 system-ui;max-width:52rem;margin:2rem auto;padding:0 1rem}"
        "svg text{font-size:13px;stroke:none}</style><h1>Survival by treatment, in months</h1>"
        "<p>Lines and bands: read off the total of four hospitals' sealed sums, with 95 % intervals. Dashed: Kaplan–Meier "
        "curves of the pooled rows, which nobody has in a real study. Largest deviation at an interval's end: "
        f"{largest:.3f}.</p>"
        f"{picture}</html>"
    )


if __name__ == "__main__":
    main()
