"""Write docs/leakage.md and docs/frontier.svg from the results; no measured number in them is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.leakage import RESULTS
from benchmarks.machine import describe_machine
from mooring.audit.results.statements import warn_of_linkage
from mooring.theory import transition_scale

CHANCE = 0.1
"""The chance level of linkage: one of ten look-alikes is the true row."""
DOCS = Path(__file__).parent.parent / "docs"
SHOWN = {
    "exposed_tenth": "error of the most exposed tenth",
    "membership_at_1_percent": "TPR @ 1 % FPR",
    "outlying_membership_at_1_percent": "outlying tenth, TPR @ 1 % FPR",
    "linkage": "linked among ten",
}
"""Measures in the order of the tables, and what they are called there."""
ERRORS = ("exposed_tenth", "centred_error")
_OF_POINTS = (
    "centred_error",
    "exposed_tenth",
    "linkage",
    "membership_at_1_percent",
    "outlying_membership_at_0.1_percent",
    "register_class",
    "holder",
)
_CLOSER = 0.1
"""A difference of errors from which on a line of the table of denoisers is shown."""
_NOISE_ON_ROWS = (0, 4, 8, 12, 16, 20, 30, 50)
_OLD, _EVERY = ("denoised",), ("denoised", "kernel", "grid")
_SHOWN_OF_TABLES = (("error", _OLD), ("error", _EVERY), ("match", _EVERY))
_ONE_NOISE = ("aa-i-gdp-data-noise", "aa-i-gdp-anchor-noise")


def main() -> None:
    """Write page and picture."""
    (DOCS / "leakage.md").write_text(render(), encoding="utf-8")
    _draw({name: entry["plan"] for name, entry in _read("plans.json").items() if "MNIST" in name})


def render() -> str:
    """Return the page, from the kept results."""
    plans, leakage, points = _read("plans.json"), _read("leakage.json"), _read("points.json")
    tables = [_plan_table(name, entry) for name, entry in plans.items()]
    mnist, celeba = (transition_scale(10, h, 4 * h) for h in (100, 400))
    seeds = sorted({one["seed"] for entry in plans.values() for one in entry["fresh"]})
    answers = "\n".join(_answer(name, entry["plan"]) for name, entry in plans.items())
    machines = "; ".join(dict.fromkeys(_machine(entry) for entry in plans.values()))
    head = _HEAD.format(answers=answers, seeds=", ".join(map(str, seeds)), machine=machines)
    anchor = _ANCHOR.format(mnist=mnist, celeba=celeba)
    denoisers = _DENOISERS.format(**_compare_denoisers(), **_compare_on_tables())
    return "\n".join([head, *tables, _points_section(points), anchor, _attack_table(leakage), denoisers])


def _answer(name: str, plan: dict[str, Any]) -> str:
    """A line of the table of recommendations."""
    point = _noise(plan["reported"])
    said = {
        "pays": f"{point} is recommended",
        "cannot tell": f"{point} keeps to the limit; whether joining pays cannot be decided",
    }
    answer = said.get(plan["answer"], f"nothing: {point} keeps to the limit, and joining does not pay")
    return f"| {name} | {answer} |"


def _points_section(points: dict[str, Any]) -> str:
    """What is found today at points that earlier audits recommended: means over seeds."""
    lines, spreads = [], []
    for name, entry in points.items():
        by_view = {
            view: [one["figures"] for one in entry["audits"] if one["public rows"] == view]
            for view in ("without", "with")
        }
        strongest = by_view["with"] or by_view["without"]
        errors = [one["centred_error"]["value"] for one in strongest]
        spreads.append(max(errors) - min(errors))
        lines.append("| " + " | ".join([name, *(_mean_figure(strongest, measure) for measure in _OF_POINTS)]) + " |")
    entries, last = list(points.values()), list(points.values())[-1]
    seeds = sorted({one["seed"] for entry in entries for one in entry["audits"]})
    return _POINTS.format(
        lines="\n".join(lines),
        seeds=f"{seeds[0]} to {seeds[-1]}",
        spread=max(spreads),
        machine=_machine(last),
    )


def _mean_figure(audits: list[dict[str, Any]], measure: str) -> str:
    """The mean over audits, and in brackets that of the control."""
    found = [one[measure] for one in audits if measure in one]
    if not found:
        return "–"
    values = [float(np.mean([one[side] for one in found])) for side in ("value", "control")]
    if measure in ERRORS or measure.endswith("auc"):
        return "{:.3f} ({:.2f})".format(*values)
    return "{} ({})".format(*(_number(measure, value) for value in values)).replace(" %)", ")")


def _compare_denoisers() -> dict[str, Any]:
    """What share of MNIST's rows the best attack links with each denoiser, by ranges of noise on rows."""
    table = pq.read_table(DOCS.parent / "results" / "mnist" / "results.parquet")
    table = table.filter(pc.field("method") == "aa-i-gdp-data-noise")
    linked = [
        np.fmax.reduce([table[name].to_numpy() for name in table.column_names if name.endswith(f"+{kind}+learned")])
        for kind in ("denoised", "kernel")
    ]
    noise, known = table["data_noise_scale"].to_numpy(), np.isfinite(linked).all(axis=0)
    shares = {}
    for low, high in pairwise(_NOISE_ON_ROWS):
        here = known & (low < noise) & (noise <= high)
        shares[low, high] = [float(share[here].mean()) for share in linked]
    (low, high), (gaussians, kernels) = max(shares.items(), key=lambda entry: entry[1][1] - entry[1][0])
    words = f"{kernels:.0%} instead of {gaussians:.0%} at σ from {low} to {high}"
    return {"n": int(known.sum()), "most": words}


def _compare_on_tables() -> dict[str, Any]:
    """The strongest attack on tables with noise, by Gaussians alone and by every denoiser."""
    lines = []
    for path in sorted((DOCS.parent / "results").glob("*/results.parquet")):
        table, study = pq.read_table(path), path.parent.name
        kinds = {name.rpartition("+")[2] for name in table.column_names if name.startswith("error:")}
        facts = json.loads((path.parent / "facts.json").read_text(encoding="utf-8"))
        units = {(one["deployment"], one["rows_each"]): one["rms"] for one in facts.get("parts", ())}
        points: dict[tuple[int, bool, float], list[dict[str, Any]]] = {}
        for row in table.filter(pc.is_in(table["method"], pa.array(_ONE_NOISE))).to_pylist() if "grid" in kinds else ():
            level = row["data_noise_scale"] / units[row["deployment"], row["rows_each"]]
            noise = (False, level) if level else (True, row["anchor_noise_scale"])
            points.setdefault((row["rows_each"], noise[0], round(noise[1], 6)), []).append(row)
        for (size, is_anchor, level), own in sorted(points.items()):
            means = [float(np.mean([_strongest(row, *shown) for row in own])) for shown in _SHOWN_OF_TABLES]
            if means[0] - means[1] < _CLOSER:
                continue
            cells = [study, f"{size:,}", f"v = {level:g}" if is_anchor else f"σ = {level:g} s"]
            cells += [*(f"{value:.2f}" for value in means[:2]), f"{means[2]:.0%}"]
            lines.append("| " + " | ".join(cells) + " |")
    return {"tables": "\n".join(lines), "least": _CLOSER}


def _strongest(row: dict[str, Any], kind: str, denoisers: Sequence[str]) -> float:
    """The figure of the strongest attack in a row of results, through no denoiser or one of these."""
    found = [
        value
        for name, value in row.items()
        if name.startswith(f"{kind}:") and value is not None and name != "error:guessing"
        if "+" not in name or name.rpartition("+")[2] in denoisers
    ]
    return min(found) if kind == "error" else max(found)


def _read(name: str) -> dict[str, Any]:
    path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _machine(entry: dict[str, Any]) -> str:
    return f"{entry['date']}, {describe_machine(entry['machine'])}"


def _attack_table(leakage: dict[str, Any]) -> str:
    lines = [
        "| data | v | Procrustes: error | linked | `moments`: error | linked |",
        "|---|---|---|---|---|---|",
    ]
    notes, apart = [], []
    for key, entry in leakage.items():
        rows, guess = entry["rows"], entry["guessing"]
        notes.append(
            f"{key}: {_seeds(rows)} draws; guessing the mean of the class has an error of {guess['class mean']:.2f}. "
            f"{_machine(entry)}.\n"
        )
        for v in dict.fromkeys(row["v"] for row in rows):
            own = [row for row in rows if row["v"] == v]
            cells = [entry["name"].split(",")[0], "none (I-GDP)" if v is None else f"{v:g}"]
            for attack in ("procrustes", "moments"):
                cells += [_spread(own, attack, "error"), _mean(own, attack, "linkage")]
            lines.append("| " + " | ".join(cells) + " |")
            if jointly := _of(own, "joint-moments", "error"):
                apart.append(abs(np.mean(jointly) - np.mean(_of(own, "moments", "error"))))
    joint = f"The mean error of `joint-moments` is within {max(apart):.3f} of that of `moments`.\n"
    return "\n".join([*lines, "", joint, *notes])


def _seeds(rows: list[dict[str, Any]]) -> str:
    counts = {len({row["seed"] for row in rows if row["v"] == v}) for v in {row["v"] for row in rows}}
    return str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _of(rows: list[dict[str, Any]], attack: str, what: str) -> list[float]:
    return [row[what] for row in rows if row["attack"] == attack]


def _spread(rows: list[dict[str, Any]], attack: str, what: str) -> str:
    values = _of(rows, attack, what)
    return f"{np.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})" if values else "–"


def _mean(rows: list[dict[str, Any]], attack: str, what: str) -> str:
    values = _of(rows, attack, what)
    return f"{np.mean(values):.0%}" if values else "–"


def _plan_table(name: str, entry: dict[str, Any]) -> str:
    plan, fresh = entry["plan"], entry["fresh"]
    reported = plan["reported"]
    lines = [
        f"## {name}\n",
        *([f"**{said}**\n"] if plan["recommended"] and (said := _warning(reported)) else []),
        f"| | chance; control | {_noise(reported)}: the plan's other half | and other seeds |",
        "|---|---|---|---|",
    ]
    for measure, words in SHOWN.items():
        one = reported["figures"][measure]
        cells = [
            words,
            f"{_number(measure, one['chance'])}; {_number(measure, one['control'])}",
        ]
        cells += [_bounded(measure, one["value"], one["interval"]), _range(measure, fresh)]
        lines.append("| " + " | ".join(cells) + " |")
    written = [", ".join(f"{100 * one['gain']['value']:+.1f}" for one in part) for part in ([reported], fresh)]
    written[0] += f" [{100 * reported['gain']['low']:+.1f}, {100 * reported['gain']['high']:+.1f}]"
    lines.append(f"| points over training alone | | {' | '.join(written)} |")
    lines.append("")
    return "\n".join(lines)


def _warning(reported: dict[str, Any]) -> str | None:
    """What linkage says of the recommended point, where it is not what the limit on the error suggests."""
    linked = reported["figures"]["linkage"]
    return warn_of_linkage(linked["value"], linked["chance"])


def _noise(one: dict[str, Any]) -> str:
    point = one["point"]
    v = point["anchor_noise_scale"]
    return f"σ = {point['data_noise_level']:.3g} s" + (f", v = {v:g}" if v else "")


def _number(measure: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if measure in ERRORS else f"{100 * value:.2g} %" if value < 0.0995 else f"{100 * value:.0f} %"


def _bounded(measure: str, value: float, ends: list[float]) -> str:
    return f"{_number(measure, value)} [{', '.join(_number(measure, end).removesuffix(' %') for end in ends)}]"


def _range(measure: str, audits: list[dict[str, Any]]) -> str:
    return ", ".join(_number(measure, one["figures"][measure]["value"]) for one in audits)


def _draw(plans: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "mooring"  # the same picture from the same numbers

    kinds = {"private-data noise": "#4878a8", "anchor noise": "#e49444", "both": "#d1615d"}
    figure, axes = plt.subplots(1, len(plans), figsize=(5.2 * len(plans), 4), squeeze=False)
    for axis, (name, entry) in zip(axes[0], plans.items(), strict=True):
        for kind, colour in kinds.items():
            own = [one for one in entry["tried"] if _kind(one["point"]) == kind]
            errors = [one["figures"]["exposed_tenth"]["value"] for one in own]
            axis.scatter(errors, [one["deployed"]["value"] for one in own], s=26, c=colour, label=kind)
        for reference, colour in (("local_only", "#b03a2e"), ("pooled_raw", "#7b8794")):
            value = entry["searched_references"][reference]["value"]
            axis.axhline(value, color=colour, ls=":", lw=1.5)
            axis.annotate(
                reference.replace("_", " "), (0.02, value), xytext=(0, 3), textcoords="offset points", color=colour
            )
        axis.set(title=name, xlabel="error of the most exposed tenth (0 is exact)", xlim=(0, 1.05))
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes[0][0].set_ylabel("balanced accuracy, as deployed")
    axes[0][-1].legend(frameon=False, loc="lower left")
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(DOCS / "frontier.svg", metadata={"Date": None})


def _kind(point: dict[str, Any]) -> str:
    if point["anchor_noise_scale"] > 0:
        return "both" if point["data_noise_level"] > 0 else "anchor noise"
    return "private-data noise"


_HEAD = """# What the attacks recover

**Every figure is a lower bound:** it is what the strongest attack that we ran recovers. The
[audit](audit.md#what-an-audit-measures) defines the measures.

- [Anchor noise](#anchor-noise) does not protect rows.
- Private-data noise protects rows at a price: the table shows what `mooring plan` answers to its default
  [limit](audit.md#what-a-plan-does), an error of at least 0.5 on the most exposed tenth of rows (1 is guessing a row).
- An error at the limit hides neither membership nor whose row is whose. [Secure sums](privacy.md) bound membership.

| data | what the plan answers |
|---|---|
{answers}

![Score against the strongest attack's error on the most exposed tenth](frontier.svg)

Each of the next tables sets that point (interval: 95 % over rows) beside other seeds ({seeds}; each with its own split,
maps and noise). s is the root mean square of projected rows. One colluder; support vector machine; MNIST through a public
SVD, h = 30; {machine}.
"""

_POINTS = """## Smaller noise

What attackers find, with the public rows where there are any (in brackets the control; *register*: a rebuilt row's
record is first among all of its class; *holder*: which participant has a given record):

| rows, noise | mean error | most exposed tenth | linked | TPR @ 1 % FPR | outlying, at 0.1 % | register | holder |
|---|---|---|---|---|---|---|---|
{lines}

Means over seeds {seeds}, each with its own split, maps and noise; errors of one point differ by {spread:.2f} at most.
All measures are in `benchmarks/results/points.json`. {machine}.
"""

_ANCHOR = """## Anchor noise

Class means and covariances (`moments`) rebuild MNIST and link every row at every scale tried, up to about five times
the transition scale v_PT ({mnist:.3f} for MNIST here, {celeba:.3f} for CelebA). Procrustes is the paper's strongest
attack. One colluder, labels visible, no denoiser; CelebA's attackers have the public images, too. Error: ‖X̂ − X‖/‖X‖,
mean and range.
"""

_DENOISERS = """## Denoisers in the studies

With the [denoiser](attacks.md#denoisers) `kernel`, more of MNIST's rows are linked than with a Gaussian a class, at most
{most} ({n} draws of AA-I-GDP with noise on rows, learned decoder, chance 10 %).

With `grid`, rows of tables are rebuilt more closely (AA-I-GDP, strongest attack, mean over deployments and draws; errors
as above, where they differ by {least:g} or more):

| study | rows each | noise | error: by Gaussians | by all | linked |
|---|---|---|---|---|---|
{tables}
"""


if __name__ == "__main__":
    main()
