"""Write docs/leakage.md and docs/frontier.svg from the results; no measured number in them is typed by hand."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.leakage import RESULTS
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
_OF_POINTS = ("exposed_tenth", "linkage", "membership_at_1_percent", "register_class", "holder")
_LEVEL = 0.5
"""The noise on rows, in units of their root mean square, at which denoisers are compared on tables."""
_OLD, _EVERY = ("denoised",), ("denoised", "kernel", "grid")


def main() -> None:
    """Write page and picture."""
    (DOCS / "leakage.md").write_text(render(), encoding="utf-8")
    _draw({name: entry["plan"] for name, entry in _read("plans.json").items() if "MNIST" in name})


def render() -> str:
    """Return the page, from the kept results."""
    plans, leakage, points = _read("plans.json"), _read("leakage.json"), _read("points.json")
    mnist, celeba = (transition_scale(10, h, 4 * h) for h in (100, 400))
    seeds = sorted({one["seed"] for entry in plans.values() for one in entry["fresh"]})
    head = _HEAD.format(plans=_plans_table(plans), warning=_warning(plans), seeds=", ".join(map(str, seeds)))
    anchor = _ANCHOR.format(mnist=mnist, celeba=celeba)
    denoisers = f"{_fill(_DENOISERS.format(**_compare_on_tables()))}\n"
    return "\n".join([head, _points_section(points), denoisers, anchor, _attack_table(leakage)])


def _points_section(points: dict[str, Any]) -> str:
    """What is found today at points that earlier audits recommended: the least and the most of the means over seeds."""
    means: dict[str, list[float]] = {}
    controls: dict[str, list[float]] = {}
    for entry in points.values():
        by_view = {
            view: [one["figures"] for one in entry["audits"] if one["public rows"] == view]
            for view in ("without", "with")
        }
        strongest = by_view["with"] or by_view["without"]
        for measure in _OF_POINTS:
            known = [one[measure] for one in strongest if measure in one]
            means.setdefault(measure, []).append(float(np.mean([one["value"] for one in known])))
            controls.setdefault(measure, []).append(float(np.mean([one["control"] for one in known])))
    found = {measure: _from_to(measure, values) for measure, values in means.items()}
    beside = {f"{measure}_control": f"{100 * max(values):.0f}" for measure, values in controls.items()}
    seeds = sorted({one["seed"] for entry in points.values() for one in entry["audits"]})
    heading, text = _POINTS.split("\n\n")
    text = text.format(n=len(points), seeds=f"{seeds[0]} to {seeds[-1]}", **found, **beside)
    return f"{heading}\n\n{_fill(text)}\n"


def _from_to(measure: str, values: list[float]) -> str:
    ends = [f"{end:.2f}" if measure in ERRORS else f"{100 * end:.0f}" for end in (min(values), max(values))]
    return " to ".join(ends) + ("" if measure in ERRORS else " %")


def _compare_on_tables() -> dict[str, Any]:
    """The strongest attack on tables with noise, by Gaussians alone and by every denoiser, at one noise."""
    found: dict[str, list[tuple[float, float]]] = {}
    for path in sorted((DOCS.parent / "results").glob("*/results.parquet")):
        table, study = pq.read_table(path), path.parent.name
        kinds = {name.rpartition("+")[2] for name in table.column_names if name.startswith("error:")}
        facts = json.loads((path.parent / "facts.json").read_text(encoding="utf-8"))
        units = {(one["deployment"], one["rows_each"]): one["rms"] for one in facts.get("parts", ())}
        points: dict[int, list[dict[str, Any]]] = {}
        for row in table.filter(pc.field("method") == "aa-i-gdp-data-noise").to_pylist() if "grid" in kinds else ():
            level = row["data_noise_scale"] / units[row["deployment"], row["rows_each"]]
            if round(level, 6) == _LEVEL:
                points.setdefault(row["rows_each"], []).append(row)
        for own in points.values():
            old, new = (float(np.mean([_strongest(row, denoisers) for row in own])) for denoisers in (_OLD, _EVERY))
            found.setdefault(study, []).append((old, new))
    pairs = np.array([pair for of_study in found.values() for pair in of_study])
    (old, new), (most_old, most_new) = pairs.min(axis=0), pairs.max(axis=0)
    return {
        "studies": " and ".join(found),
        "old": _range_of(old, most_old),
        "new": _range_of(new, most_new),
        "level": _LEVEL,
    }


def _range_of(least: float, most: float) -> str:
    return " to ".join(dict.fromkeys((f"{least:.2f}", f"{most:.2f}")))


def _strongest(row: dict[str, Any], denoisers: Sequence[str]) -> float:
    """The error of the strongest attack in a row of results, through no denoiser or one of these."""
    return min(
        float(value)
        for name, value in row.items()
        if name.startswith("error:") and value is not None and name != "error:guessing"
        if "+" not in name or name.rpartition("+")[2] in denoisers
    )


def _read(name: str) -> dict[str, Any]:
    path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _attack_table(leakage: dict[str, Any]) -> str:
    lines = [
        "| data | v | Procrustes: error | linked | `moments`: error | linked |",
        "|---|---|---|---|---|---|",
    ]
    notes, apart = [], []
    for key, entry in leakage.items():
        rows, guess = entry["rows"], entry["guessing"]
        notes.append(
            f"{key.rpartition(' on ')[0]} ({_seeds(rows)} draws; guessing the mean of the class: {guess['class mean']:.2f})"
        )
        for v in dict.fromkeys(row["v"] for row in rows):
            own = [row for row in rows if row["v"] == v]
            cells = [entry["name"].split(",")[0], "none (I-GDP)" if v is None else f"{v:g}"]
            for attack in ("procrustes", "moments"):
                cells += [_spread(own, attack, "error"), _mean(own, attack, "linkage")]
            lines.append("| " + " | ".join(cells) + " |")
            if jointly := _of(own, "joint-moments", "error"):
                apart.append(abs(np.mean(jointly) - np.mean(_of(own, "moments", "error"))))
    joint = f"The error of `joint-moments` is within {max(apart):.3f} of that of `moments`."
    return "\n".join([*lines, "", _fill(f"{joint} {'; '.join(notes)}."), ""])


def _fill(paragraph: str) -> str:
    return textwrap.fill(paragraph, 120, break_on_hyphens=False, break_long_words=False)


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


def _plans_table(plans: dict[str, Any]) -> str:
    """What a plan answers, and what attackers find at its point: one column for each data set."""
    lines = ["| | " + " | ".join(plans) + " |", "|---" * (len(plans) + 1) + "|"]
    reported = [entry["plan"]["reported"] for entry in plans.values()]
    rows = {
        "the plan answers": [_answer(entry["plan"]) for entry in plans.values()],
        "noise that keeps to the limit": [_noise(one) for one in reported],
    }
    others: dict[str, list[str]] = {}
    for measure, words in SHOWN.items():
        rows[words] = [_stated(measure, one["figures"][measure]) for one in reported]
        others[words] = [_range(measure, entry["fresh"]) for entry in plans.values()]
    rows[gain := "points over training alone"] = [_gained(one["gain"]) for one in reported]
    for entry in plans.values():
        gains = [100 * one["gain"]["value"] for one in entry["fresh"]]
        others.setdefault(gain, []).append(f"{min(gains):+.1f} to {max(gains):+.1f}")
    for words, cells in rows.items():
        lines.append("| " + " | ".join([words, *cells]) + " |")
        if words in others:
            lines.append("| " + " | ".join(["– other seeds", *others[words]]) + " |")
    return "\n".join(lines)


def _answer(plan: dict[str, Any]) -> str:
    """What a plan answers, in a few words."""
    said = {"pays": "joining pays", "cannot tell": "cannot tell whether joining pays"}
    return said.get(plan["answer"], "joining does not pay")


def _stated(measure: str, figure: dict[str, Any]) -> str:
    """A figure with its interval, and in brackets chance and control."""
    beside = "; ".join(_number(measure, figure[side]) for side in ("chance", "control"))
    return f"{_bounded(measure, figure['value'], figure['interval'])} ({beside})"


def _gained(gain: dict[str, float]) -> str:
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * gain[end] for end in ("value", "low", "high")))


def _warning(plans: dict[str, Any]) -> str:
    """How many rows are linked at the points of the plans, where that is far above chance at each."""
    linked = [entry["plan"]["reported"]["figures"]["linkage"] for entry in plans.values()]
    if not all(warn_of_linkage(one["value"], one["chance"]) for one in linked):
        return "An error at the limit says neither who took part nor whose row is whose."
    shares = [100 * one["value"] for one in linked]
    return (
        f"**No such point hides whose row is whose**: {min(shares):.0f} to {max(shares):.0f} % of the rows are linked,\n"
        f"  by chance {100 * CHANCE:.0f} %."
    )


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
    values = sorted(one["figures"][measure]["value"] for one in audits)
    least, most = (_number(measure, value) for value in (values[0], values[-1]))
    return most if least == most else f"{least.removesuffix(' %')}–{most}"


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

**Every leakage figure is a lower bound**, by the strongest attack that we ran unless one is named, of [measures of an
audit](audit.md#what-an-audit-measures).

- Private-data noise protects rows at a price: the table has the answers of `mooring plan` to its default
  [limit](audit.md#what-a-plan-does), an error of at least 0.5 on the most exposed tenth of rows (1 is guessing a row).
- {warning} [Secure sums](privacy.md) with ε bound membership.

{plans}

Square brackets: 95 % interval over rows; round ones: chance; control. Other seeds ({seeds}) have another split, maps
and noise; s is the root mean square of projected rows. One colluder; support vector machine; MNIST through a public
SVD, h = 30. `benchmarks/results` has machines, dates and all measures.

![Score against the strongest attack's error on the most exposed tenth](frontier.svg)
"""

_POINTS = """## Smaller noise

At {n} points of less noise on rows, of digits, MNIST, heart disease, the census and diabetes
(`benchmarks/results/points.json`, means over seeds {seeds}), the error of the most exposed tenth is {exposed_tenth}. In
brackets the control, at most: attacks link {linkage} of the rows ({linkage_control} %), recognise
{membership_at_1_percent} of the members at 1 % false positives ({membership_at_1_percent_control} %), place the true
record of {register_class} of the rebuilt rows first among all of its class ({register_class_control} %), and find the
holder of {holder} of given records ({holder_control} %).
"""

_ANCHOR = """## Anchor noise

Class means and covariances (`moments`) rebuild MNIST and link all rows asked at every scale tried, up to about five
times the transition scale v_PT ({mnist:.3f} for MNIST here, {celeba:.3f} for CelebA). Procrustes is the paper's strongest
attack. One colluder, labels visible, no denoiser; for CelebA also the public images. Error: ‖X̂ − X‖/‖X‖, mean and
range.
"""

_DENOISERS = """With σ = {level:g} s on the tables of {studies}, the [denoisers](attacks.md#denoisers) `kernel` and `grid`
lower the error of the strongest attack to {new}, from {old} by `gaussian` alone."""


if __name__ == "__main__":
    main()
