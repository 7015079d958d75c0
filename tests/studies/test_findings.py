"""The figures on the page of findings are those of the tables; what was not run is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mooring_studies.comparison import findings
from mooring_studies.comparison.curves import fit
from mooring_studies.comparison.findings import find, render_findings
from mooring_studies.comparison.numbers import paper_number
from mooring_studies.comparison.reading import ANCHOR, Deployments, Study, share_at
from mooring_studies.comparison.results import Results

ALONE, POOLED = 0.80, 0.95


def digits(*, worst_anchor: float = 0.60, i_gdp: float = 0.55) -> Results:
    """Curves that are straight lines: every crossing is known; of a second deployment, I-GDP alone."""
    other = {"n_participants": 10, "method": "i-gdp", "draw": 0, "deployment": 1, "balanced_accuracy": 0.66}
    return Results.from_rows([*digit_rows(worst_anchor=worst_anchor, i_gdp=i_gdp), other])


def digit_rows(
    *, worst_anchor: float = 0.60, i_gdp: float = 0.55, deployment: int = 0, alone: float = ALONE
) -> list[dict[str, Any]]:
    base: dict[str, Any] = {"deployment": deployment, "n_participants": 10, "strongest_attacks": True}
    rows = [
        {**base, "method": "c-gdp", "draw": 0, "balanced_accuracy": 0.91}
        | {"linkage:known-secret": 0.37, "linkage:known-secret+learned": 0.98},
        {**base, "method": "aa-i-gdp", "draw": 0, "balanced_accuracy": 0.91, "linkage:known-anchor": 0.37},
        {**base, "method": "i-gdp", "draw": 0, "balanced_accuracy": i_gdp, "match:moments": 0.987},
        {**base, "method": "pooled-raw", "draw": 0, "balanced_accuracy": POOLED},
        *({**base, "method": "local-only", "draw": k, "balanced_accuracy": alone + 0.01 * (k - 1)} for k in range(3)),
    ]
    for k, t in enumerate(np.linspace(0, 1, 60)):
        anchor = {"anchor_noise_scale": 0.5 * t, "balanced_accuracy": 1.0 - (1.0 - worst_anchor) * t}
        anchor["converged"] = t < 0.16
        rows.append(
            {
                **base,
                **anchor,
                "method": "aa-i-gdp-anchor-noise",
                "draw": k,
                "linkage:procrustes": 0.37 - 0.27 * t,
                "linkage:moments": 0.36 - 0.01 * (k == 59),
                "match:moments": 0.99,
            }
        )
        noisy = {
            "data_noise_scale": 50 * t,
            "balanced_accuracy": 0.9 - 0.8 * t,
            "balanced_accuracy_clean": 0.9 - 0.4 * t,
        }
        match = {"linkage:known-secret": 0.37 - 0.2 * t, "match:known-secret": 1.0 - 0.5 * t}
        rows.append({**base, **noisy, **match, "method": "c-gdp-data-noise", "draw": k})
        rows.append({**base, **noisy, **match, "method": "aa-i-gdp-data-noise", "draw": k, "discrepancy": 2e-14})
    return rows


def faces(*, last: float) -> Results:
    """Linkage falls in straight lines, by 50 points to the last v: the paper's attack from 60 %, the strongest from 80 %."""
    base = {"deployment": 0, "n_participants": 10, "strongest_attacks": True}
    rows = [{**base, "method": name, "draw": 0, "balanced_accuracy": 0.7} for name in ("local-only", "i-gdp", "c-gdp")]
    for k, t in enumerate(np.linspace(0, 1, 60)):
        links = {"linkage:procrustes": 0.6 - 0.5 * t, "linkage:moments": 0.8 - 0.5 * t, "match:moments": 0.99}
        rows.append({**base, **links, "method": "aa-i-gdp-anchor-noise", "draw": k, "anchor_noise_scale": last * t})
        links = {"linkage:known-secret": 0.6 - 0.3 * t}
        rows.append({**base, **links, "method": "c-gdp-data-noise", "draw": k, "data_noise_scale": 4 * t})
    for row in rows[3:]:
        row |= {"balanced_accuracy": 0.8, "balanced_accuracy_clean": 0.8}
    return Results.from_rows(rows)


def near(value: float) -> Any:
    return pytest.approx(value, abs=1e-3)


def test_the_numbers_are_those_of_the_tables() -> None:
    found = find({"mnist": digits()})["digits"]
    assert (found["alone"]["value"], found["pooled"]["value"]) == (near(0.8), near(0.95))
    assert found["anchor"]["falls"] == {"value": near(0.25), "range": None}  # 1 − 0.4 t = 0.8 at t = ½
    assert found["data"]["falls"]["value"] == near(12.5)  # t = ¼
    assert (found["anchor"]["linked"]["value"], found["data"]["linked"]["value"]) == (near(0.36), near(0.32))
    assert (found["anchor"]["matched"]["value"], found["data"]["matched"]["value"]) == (near(0.99), near(0.875))
    assert (found["v"], found["procrustes"]) == (0.2, near(0.262))
    assert (found["by_moments"], found["exact_rows"], found["exact_rows_decoded"]) == (
        near(0.35),
        near(0.37),
        near(0.98),
    )
    assert found["strongest"]["value"] == near(0.36)
    assert found["matched_at_worst"]["value"] == near(0.99)
    assert found["i_gdp"]["matched"]["value"] == near(0.987)


def test_faces_are_read_where_the_paper_reaches_chance_and_where_our_draws_end() -> None:
    v = paper_number("celeba.linkage.anchor.crossing.procrustes").value or 0.0
    found = find({"celeba": faces(last=0.24)})["faces"]
    assert found["v_chance"] == v
    assert found["procrustes_at_chance"] == near(0.6 - 0.5 * v / 0.24)
    assert found["strongest_at_chance"]["value"] == near(0.8 - 0.5 * v / 0.24)
    assert (found["v_most"], found["strongest_at_most"]) == (near(0.24), near(0.3))


def test_the_points_at_which_findings_read_are_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = {"celeba.linkage.anchor.crossing.procrustes": {"value": 0.12}}
    moved |= {"mnist.linkage.anchor.0.20.procrustes": {"args": {"at": 0.25}}}
    monkeypatch.setattr(findings, "paper_number", lambda id: replace(paper_number(id), **moved.get(id, {})))
    found = find({"celeba": faces(last=0.24), "mnist": digits()})
    assert (found["faces"]["v_chance"], found["faces"]["procrustes_at_chance"]) == (0.12, near(0.35))
    assert (found["digits"]["v"], found["digits"]["procrustes"]) == (0.25, near(0.235))


def test_tables_are_told_by_own_new_rows_and_by_size() -> None:
    rows = []
    for each, alone in ((50, 0.7), (700, 0.8)):
        base = {"deployment": 0, "n_participants": 50, "rows_each": each}
        rows += [
            {**base, "method": "local-own", "draw": 0, "auc_own_clean": alone},
            {**base, "method": "aa-i-gdp", "draw": 0, "auc_own_clean": 0.9, "auc_own_clean:linear": 0.91},
            {**base, "method": "pooled-raw", "draw": 0, "auc_own_clean": 0.92},
            {
                **base, "method": "i-gdp", "draw": 0, "auc_own_clean": 0.6, "match:moments": 0.3,
                "auc_own_clean:linear": 0.5,
            },
        ]  # fmt: skip
        for k, noise in enumerate((0.1, 1.0)):
            score = {"draw": k, "auc_own_clean": 0.85 - 0.1 * noise, "match:moments": 1.0 - 0.5 * noise}
            rows.append({**base, **score, "method": "aa-i-gdp-data-noise", "data_noise_scale": noise})
            rows.append({**base, **score, "method": "aa-i-gdp-anchor-noise", "anchor_noise_scale": noise})
    small, large = find({"census": Results.from_rows(rows)})["tables"]
    assert (small["study"], small["rows_each"], large["rows_each"]) == ("census", 50, 700)
    assert small["shares"] == pytest.approx([0.7, 0.92, 0.9, 0.6, 0.3, 0.75, 0.5, 0.75, 0.5])
    assert large["shares"][:2] == pytest.approx([0.8, 0.92])
    assert (small["i_gdp"]["rows_each"], small["i_gdp"]["linear"]) == (50, 0.5)


def test_a_level_that_is_never_reached_has_no_figure() -> None:
    assert find({"mnist": digits(worst_anchor=0.85)})["digits"]["anchor"]["falls"] is None


def test_studies_that_were_not_run_are_left_out() -> None:
    found = find({"mnist": digits()})
    assert [name for name in ("faces", "participants", "landscape", "tables") if found[name]] == []
    assert not re.search(r"\bnan\b|n/a", render_findings({"mnist": digits()}))


@pytest.mark.parametrize("grows", [True, False])
def test_participants_are_told_one_a_line_each_allocation_as_a_series(grows: bool) -> None:
    rows = []
    for each, shift in ((19, 0.0), (98, 0.05)):
        for p in (2, 10):
            base = {"deployment": 0, "n_participants": p, "identities_each": each, "strongest_attacks": True}
            rows.append({**base, "method": "local-only", "draw": 0, "balanced_accuracy": 0.6 + shift})
            rows.append({**base, "method": "pooled-raw", "draw": 0, "balanced_accuracy": 0.94})
            rows.append({**base, "method": "i-gdp", "draw": 0, "balanced_accuracy": 0.5 + shift})
            more = 0.01 * (p == 10) * (1 if grows or each == 98 else -1)
            for k, v in enumerate(np.linspace(0, 0.1, 50)):
                links = {"linkage:moments": 0.7, "anchor_noise_scale": v}
                draw = {"draw": k, "balanced_accuracy": 0.88 + shift + more - 2 * v}
                rows.append({**base, **draw, **links, "method": "aa-i-gdp-anchor-noise"})
    found = find({"participants": Results.from_rows(rows)})["participants"]
    lines = {(one["identities_each"], one["participants"]): one for one in found["lines"]}
    shares = ("alone", "pooled", "little", "half", "i_gdp", "linked")
    for place, expected in {
        (98, 2): (0.65, 0.94, 0.91, 0.83, 0.55, 0.70),
        (98, 10): (0.65, 0.94, 0.92, 0.84, 0.55, 0.70),
        (19, 2): (0.60, 0.94, 0.86, 0.78, 0.50, 0.70),
    }.items():
        assert [lines[place][name] for name in shares] == pytest.approx(expected)
    assert found["order"] == [{"identities_each": 19, "grows": grows}, {"identities_each": 98, "grows": True}]


def test_a_figure_stands_beside_its_range_over_deployments() -> None:
    both = Results.from_rows([*digit_rows(), *digit_rows(deployment=1, alone=ALONE - 0.1)])
    found = find({"mnist": both})["digits"]
    of_two = {"read": 2, "of": 2}
    assert found["alone"] == {"value": near(0.8), "range": of_two | {"low": near(0.7), "high": near(0.8)}}
    falls = found["anchor"]["falls"]  # 1 − 0.4 t = 0.7 at t = ¾
    assert falls == {"value": near(0.25), "range": of_two | {"low": near(0.25), "high": near(0.375)}}
    assert found["anchor"]["linked"] == {"value": near(0.36), "range": None}
    assert found["data"]["linked"] == {"value": near(0.32), "range": of_two | {"low": near(0.27), "high": near(0.32)}}


def test_a_level_crossed_where_there_are_no_draws_is_not_read() -> None:
    rows = digits()
    v = rows["anchor_noise_scale"]
    gone = (rows["method"] == "aa-i-gdp-anchor-noise") & (v > 0.2) & (v < 0.3)
    study = Study(rows.only(~gone))
    assert study.falls_to_alone(ANCHOR) is None  # it would be at 0.25
    assert Study(rows).falls_to_alone(ANCHOR) == pytest.approx(0.25, abs=1e-3)


def test_a_spline_that_overshoots_is_not_read_as_certainty() -> None:
    x = np.linspace(0, 10, 40)
    y = np.where(x < 5, 0.999, 0.999 - 0.15 * (x - 5))
    curve = fit(x, y)
    over = float(curve.grid()[np.argmax(curve.at(curve.grid()))])
    assert float(curve.at(over)) > 1
    assert share_at(curve, over) == pytest.approx(0.999)
    assert share_at(curve, 12.0) == share_at(curve, 10.0)  # never past the last draw
    assert np.isnan(share_at(curve, None))


def test_what_i_gdp_leaks_is_told_study_by_study_with_its_spread() -> None:
    def of(deployment: int, each: int, matched: float) -> dict[str, object]:
        return {"deployment": deployment, "rows_each": each, "method": "i-gdp", "draw": 0, "match:moments": matched}

    some = {"method": "aa-i-gdp", "draw": 0, "deployment": 0, "auc_own_clean": 0.8}
    first = of(0, 212, 0.1) | {"match:moments+kernel": 0.1}
    hospitals = Results.from_rows([first, of(1, 212, 0.3), some | {"rows_each": 212}])
    census = Results.from_rows([of(0, 50, 0.4), of(0, 694, 0.9), some | {"rows_each": 50}, some | {"rows_each": 694}])
    studies = {"hospitals": hospitals, "census": census}
    matched = [one["i_gdp"]["matched"] for one in find(studies)["tables"]]
    assert matched[0] == {"mean": near(0.2), "low": 0.1, "high": 0.3}
    assert [one["mean"] for one in matched[1:]] == [0.4, 0.9]
    assert matched[1]["low"] is None  # one deployment
    assert [one["by_all_denoisers"] for one in find(studies)["tables"]] == [True, False, False]


def test_a_share_between_two_draws_of_one_mind_is_theirs_and_not_a_splines() -> None:
    """Twenty draws at 100 % and a last one at 60 % bend the spline at the first; nothing was measured there but 100 %."""
    curve = fit(np.linspace(0, 1, 21), np.array([1.0] * 20 + [0.6]))
    bent = [float(curve.at(x)) for x in np.linspace(0, 0.9, 50)]
    assert min(bent) < 1 - 1e-3
    assert all(share_at(curve, float(x)) == 1.0 for x in np.linspace(0, 0.94, 50))
    assert share_at(curve, 0.99) < 0.95


def test_the_share_of_a_single_draw_is_its_own() -> None:
    assert share_at(fit(np.array([0.3]), np.array([0.7])), 0.1) == 0.7


def test_a_figure_that_some_deployments_lack_says_so() -> None:
    rows = [{"deployment": k, "method": "i-gdp", "balanced_accuracy": 0.5 + 0.1 * k} for k in range(3)]
    study = Deployments(Results.from_rows(rows))
    assert study.share(lambda one: one.mean("i-gdp")) == {
        "value": 0.5,
        "range": {"low": 0.5, "high": 0.7, "read": 3, "of": 3},
    }
    some = study.share(lambda one: value if (value := one.mean("i-gdp")) < 0.65 else float("nan"))
    assert some["range"] == {"low": 0.5, "high": 0.6, "read": 2, "of": 3}
