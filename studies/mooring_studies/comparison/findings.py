"""The figures of the page of findings: what holds of the paper's claims, what does not, where joining helps.

Every figure is computed from the results, as plain values; the words are in findings.md.jinja. A study that has not been run
is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mooring_studies.comparison.numbers import Comparison
from mooring_studies.comparison.paper import paper_number
from mooring_studies.comparison.reading import (
    ANCHOR,
    DATA,
    RESOLVED_GAIN,
    Deployments,
    Study,
    largest_of,
    mean_of,
    percent,
    share_at,
)
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.comparison.sums_table import (
    describe_sums,
    score_alone,
    tabulate_pictures,
    tabulate_sums,
)
from mooring_studies.markdown import render_markdown, write_line

_SCORE = "auc_own_clean"
_PAPERS = {"mnist": "digits", "celeba": "faces", "participants": "the number of participants"}
Figures = dict[str, Any]


def render_findings(studies: Mapping[str, Results], comparisons: Sequence[Comparison] = ()) -> str:
    """The page, in Markdown, from the results of the studies that are there and the paper's numbers beside them."""
    words = {"percent": percent, "write_line": write_line}
    return render_markdown("findings.md.jinja", find(studies, comparisons) | words)


def render_paper(studies: Mapping[str, Results]) -> str:
    """The paper on the software, in Markdown, with figures from the results."""
    return render_markdown("paper.md.jinja", find(studies) | {"percent": percent, "write_line": write_line})


def find(studies: Mapping[str, Results], comparisons: Sequence[Comparison] = ()) -> Figures:
    """Every figure of the page, study by study; None for a study that was not run."""
    figures: Figures = {
        "by_chance": {_PAPERS[name]: _by_chance(comparisons, name) for name in ("mnist", "celeba")},
    }
    readers: dict[str, tuple[str, Callable[[Results], Figures]]] = {
        "digits": ("mnist", lambda rows: _on_digits(Deployments(rows))),
        "faces": ("celeba", lambda rows: _on_faces(Deployments(rows))),
        "participants": ("participants", lambda rows: _on_participants(rows.where(deployment=0))),
        "landscape": ("landscape", _on_landscape),
    }
    for name, (study, read) in readers.items():
        figures[name] = read(studies[study]) if study in studies else None
    figures["sums"] = tabulate_sums(studies["sums"]) if "sums" in studies else None
    figures["rival"] = _compare_with_rival(figures["sums"] or [])
    losses = [line["general_loss"] for line in figures["sums"] or [] if np.isfinite(line["general_loss"]).all()]
    figures["general_loss"] = [max(at_epsilon) for at_epsilon in zip(*losses, strict=True)]
    figures["picture_sums"] = tabulate_pictures(studies["sums"]) if "sums" in studies else []
    for name, study in (("digits", "mnist"), ("faces", "celeba")):
        if figures[name]:
            figures[name]["sums"] = describe_sums(studies[study])
    tables = [(name, part) for name in ("hospitals", "census") for part in _by_rows(studies.get(name))]
    return figures | {"tables": [_on_table(name, part) for name, part in tables]}


def _compare_with_rival(lines: Sequence[Figures]) -> Figures:
    """In how many comparisons DP-EBM is ahead of secure sums on the same splits."""
    leads = [np.array(line["rival_lead"]) for line in lines]
    return {
        "of": sum(int(np.isfinite(lead).sum()) for lead in leads),
        "ahead": sum(int((lead > 0).sum()) for lead in leads),
        "n_splits": max((line["n_rival"] for line in lines), default=0),
    }


def _by_chance(comparisons: Sequence[Comparison], study: str) -> float | None:
    """The share that the strongest attack on anchor noise would link by chance alone on average, if that is known."""
    values = [comparison.ours for comparison in comparisons if comparison.number.id == f"{study}.beside.chance.linkage"]
    return values[0] / 100 if values and values[0] is not None else None


def _leakage_at_alone(method: str, kind: Kind) -> Callable[[Study], float]:
    return lambda study: study.leakage_at_alone(method, kind)


def _of_both(deployments: Deployments) -> Figures:
    """Figures that digits and faces both have."""
    noises = {
        name: {
            "falls": deployments.falls_below_alone(method),
            "linked": deployments.share(_leakage_at_alone(method, "linkage")),
            "matched": deployments.share(_leakage_at_alone(method, "match")),
        }
        for name, method in (("anchor", ANCHOR), ("data", DATA))
    }
    return noises | {
        "alone": deployments.share(lambda study: study.mean("local-only")),
        "pooled": deployments.share(lambda study: study.mean("pooled-raw")),
        "aa_i_gdp": deployments.share(lambda study: study.mean("aa-i-gdp")),
        "matched_at_worst": deployments.share(lambda study: study.matched_at_worst(ANCHOR)),
        "i_gdp": {
            "accuracy": deployments.share(lambda study: study.mean("i-gdp")),
            "matched": deployments.share(lambda study: study.matched_at_worst("i-gdp")),
        },
    }


def _on_digits(deployments: Deployments) -> Figures:
    """MNIST, in its first deployment, and how others differ."""
    study = deployments.first
    v = paper_number("mnist.linkage.anchor.0.20.procrustes").args["at"]
    return _of_both(deployments) | {
        "words": "digits",
        "v": v,
        "procrustes": float(study.curve(ANCHOR, "linkage:procrustes").at(v)),
        "exact_rows": study.mean("c-gdp", "linkage:known-secret"),
        "exact_rows_decoded": study.mean("c-gdp", "linkage:known-secret+learned"),
        "strongest": deployments.share(lambda study: share_at(study.curve(ANCHOR, "envelope:linkage"), v)),
    }


def _on_faces(deployments: Deployments) -> Figures:
    """CelebA with ten participants."""
    study = deployments.first
    procrustes, strongest = study.curve(ANCHOR, "linkage:procrustes"), study.curve(ANCHOR, "envelope:linkage")
    v_chance = paper_number("celeba.linkage.anchor.crossing.procrustes").value or 0.0
    return _of_both(deployments) | {
        "words": "faces",
        "v_most": strongest.high,
        "v_chance": v_chance,
        "procrustes_at_chance": float(procrustes.at(v_chance)),
        "strongest_at_most": share_at(strongest, strongest.high),
        "strongest_at_chance": deployments.share(
            lambda study: share_at(study.curve(ANCHOR, "envelope:linkage"), v_chance)
        ),
    }


def _on_participants(rows: Results) -> Figures:
    """CelebA from two participants to fifty: the least and the most that the strongest attack links at one noise."""
    half = (paper_number("participants.setting.anchor-noise").value or 0.0) / 2
    parts = [
        Study(rows.where(n_participants=p, identities_each=each))
        for each in rows.values("identities_each")
        for p in rows.where(identities_each=each).values("n_participants")
    ]
    linked = [share_at(study.curve(ANCHOR, "envelope:linkage"), half) for study in parts]
    return {"half": half, "least": min(linked), "most": max(linked)}


def _on_landscape(rows: Results) -> Figures:
    """Where joining pays, over rows, participants and noise."""

    def gains(chosen: Results, *, on_features: bool = False) -> list[Figures]:
        cells = []
        for p in rows.values("n_participants"):
            for each in rows.where(n_participants=p).values("rows_each"):
                here, near = (part.where(n_participants=p, rows_each=each) for part in (rows, chosen))
                if len(near):
                    alone = score_alone(here, "balanced_accuracy_clean", own_rows=False)
                    level = max(alone.values()) if on_features else alone["columns"]
                    gain = 100 * mean_of(near["balanced_accuracy_clean"]) - level
                    cells.append({"participants": int(p), "rows_each": int(each), "gain": gain})
        return cells

    def _score(here: Results, method: str) -> float:
        return mean_of(here.where(method=method)["balanced_accuracy_clean"])

    def pay(cells: Sequence[Figures]) -> list[Figures]:
        return [cell for cell in cells if cell["gain"] > RESOLVED_GAIN]

    noisy, summed = rows.where(method=ANCHOR), rows.where(method="secure-sum")
    little, much = (gains(noisy.only(np.isclose(noisy["anchor_noise_scale"], level))) for level in (0.05, 0.2))
    by_sums = {
        words: pay(gains(summed.where(epsilon=epsilon), on_features=True))
        for words, epsilon in (("none", None), ("one", 1.0))
        if len(summed)
    }
    best = max(little, key=lambda cell: cell["gain"])
    paying = pay(much)
    here = rows.where(n_participants=best["participants"], rows_each=best["rows_each"])
    pooled = 100 * (_score(here, "pooled-raw") - _score(here, "local-only"))
    return {
        "fewest_rows": min(cell["rows_each"] for cell in little),
        "most_rows": max(cell["rows_each"] for cell in little),
        "most_participants": max(cell["participants"] for cell in little),
        "best": best,
        "pooled_gain": pooled if np.isfinite(pooled) else None,
        "resolved_gain": RESOLVED_GAIN,
        "n_paying": len(paying),
        "n_cells": len(much),
        "most_rows_paying": max((cell["rows_each"] for cell in paying), default=0),
        "sums": by_sums,
    }


def _by_rows(rows: Results | None) -> list[Results]:
    """A study's rows, apart by how many each participant holds where that was varied."""
    if rows is None:
        return []
    sizes = rows.where(method="aa-i-gdp").values("rows_each")
    return [rows.where(rows_each=each) for each in sizes] if len(sizes) > 1 else [rows]


def _on_table(name: str, rows: Results) -> Figures:
    """Hospitals or census: a line of the table, and the figures of I-GDP."""

    def score(part: Results, column: str = _SCORE) -> float:
        return mean_of(part[column]) if column in part else float("nan")

    shares = [score(rows.where(method=method)) for method in ("local-own", "pooled-raw", "aa-i-gdp", "i-gdp")]
    independent = rows.where(method="i-gdp")
    matched = independent.strongest("match")
    shares.append(mean_of(matched))
    for method, noise in (("aa-i-gdp-data-noise", "data_noise_scale"), (ANCHOR, "anchor_noise_scale")):
        noisy = rows.where(method=method)
        most = noisy.only(np.isclose(noisy[noise], largest_of(noisy[noise]), rtol=0.2))
        shares += [score(most), mean_of(most.strongest("match"))]
    known = matched[np.isfinite(matched)]
    ends = (float(known.min()), float(known.max())) if len({*known.tolist()}) > 1 else (None, None)
    each = rows.where(method="aa-i-gdp").values("rows_each")
    return {
        "study": name,
        "rows_each": int(max(each)) if each else None,
        "shares": shares,
        "by_all_denoisers": any(attack.endswith("+kernel") for attack in rows.attacks("match")),
        "i_gdp": {
            "rows_each": max(independent.values("rows_each"), default=0),
            "matched": {"mean": mean_of(matched), "low": ends[0], "high": ends[1]},
        },
    }
