"""The page of findings says what the tables say, and leaves out what was not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mooring_studies.comparison import findings_reading
from mooring_studies.comparison.claims import FORMULA, NOT_RUN, Comparison, paper_numbers
from mooring_studies.comparison.curves import fit
from mooring_studies.comparison.findings import findings
from mooring_studies.comparison.findings_reading import Deployments, percent_at, share_at
from mooring_studies.comparison.findings_tables import on_tables
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


def flowing(text: str) -> str:
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_numbers_are_those_of_the_tables() -> None:
    page = flowing(findings({"mnist": digits()}))
    assert "to 2.0 · 10^-14 of its norm" in page
    assert "The largest v at which the solver converged is 0.076" in page
    assert "A participant who trains on its own rows reaches 80.0 %" in page
    assert "pooling everything without protection 95.0 %" in page
    assert "falls below training alone from about v = 0.25 on" in page  # 1 − 0.4 t = 0.8 at t = ½
    assert (
        "falls below training alone from about σ = 12 on, by the fitted curve; there the strongest attack picks out 87.5 %"
        in page
    )  # t = ¼
    assert "links 26.2 % of the rows, close to the 10 % of guessing" in page
    assert "the auditor links 35.0 % at the most noise, and 37.0 % of the exact rows" in page
    assert "linked in 98.0 % of all cases, and at v = 0.2 the strongest attack links 36.0 %" in page
    assert "in 99.0 % of all cases even at the v where it does worst" in page
    assert "by moments, picks out 98.7 % of the rows" in page
    assert "Over 2 deployments" in page
    assert "from 55.0 % to 66.0 %; the paper's 56.4 % lies among them" in page
    assert "links 36.0 % under anchor noise and 32.0 % under noise on the rows" in page  # at t = ½ and t = ¼
    assert "matched directly it is 99.0 % and 87.5 %" in page


def test_faces_are_read_where_the_paper_reaches_chance_and_where_our_draws_end() -> None:
    v = next(one.value for one in paper_numbers() if one.id == "celeba.linkage.anchor.crossing.procrustes")
    page = flowing(findings({"celeba": faces(last=0.24)}))
    assert f"At v = {v:g}, where the paper's strongest attack reaches chance" in page
    paper, strongest = (100 * (top - 0.5 * v / 0.24) for top in (0.6, 0.8))
    assert f"links {paper:.1f} % of the identities, and the strongest attack we know {strongest:.1f} %" in page
    assert "at v = 0.240, the most that it was run on, it links 30.0 % by the fitted curve. Which" in page
    assert "to 10.0 % at v = 0.240 and 37.5 % at σ = 3" in page


def test_the_points_at_which_findings_read_are_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = {"celeba.linkage.anchor.crossing.procrustes": {"value": 0.12}}
    moved |= {"mnist.linkage.anchor.0.20.procrustes": {"args": {"at": 0.25}}}
    numbers = tuple(replace(one, **moved.get(one.id, {})) for one in paper_numbers())
    monkeypatch.setattr(findings_reading, "paper_numbers", lambda: numbers)
    page = flowing(findings({"celeba": faces(last=0.24), "mnist": digits()}))
    assert (
        "At v = 0.12, where the paper's strongest attack reaches chance, ours by the same attack links 35.0 %" in page
    )
    assert "At v = 0.25 the paper's strongest attack links 23.5 %" in page


def test_luck_stands_beside_what_the_strongest_attack_links_at_the_end() -> None:
    number = next(one for one in paper_numbers() if one.id == "celeba.beside.luck.linkage")
    page = flowing(findings({"celeba": faces(last=0.24)}, [Comparison(number, 14.0)]))
    told = "(by luck alone, the best of as many attacks would link 14.0 % on average)"
    assert f"it links 30.0 % by the fitted curve {told}. Which" in page


def test_a_number_of_the_paper_outside_of_ours_is_not_called_one_of_them() -> None:
    page = flowing(findings({"mnist": digits(i_gdp=0.6)}))
    assert "from 60.0 % to 66.0 %; the paper's 56.4 % lies below all of them, for a reason we do not know" in page


def test_how_much_of_the_paper_holds_is_counted() -> None:
    number = paper_numbers()[-1]
    shown = [
        Comparison(replace(number, kind="result"), ours, large=large) for ours, large in ((1.0, False), (2.0, True))
    ]
    page = flowing(findings({}, [*shown, Comparison(replace(number, kind="result"), None)]))
    assert "**1 of the paper's 3 measurements come out again,**" in page  # one differs, one could not be read
    formula = replace(number, kind="result", ours=FORMULA)
    unrun = Comparison(replace(number, kind="result"), None, note=NOT_RUN)
    assert "**1 of the paper's 2 measurements" in flowing(findings({}, [*shown, Comparison(formula, 1.0), unrun]))


def test_tables_are_told_by_own_new_rows_and_by_size() -> None:
    rows = []
    for each, alone in ((50, 0.7), (700, 0.8)):
        base = {"deployment": 0, "n_participants": 50, "rows_each": each}
        rows += [
            {**base, "method": "local-own", "draw": 0, "auc_own_clean": alone},
            {**base, "method": "aa-i-gdp", "draw": 0, "auc_own_clean": 0.9, "auc_own_clean:linear": 0.91},
            {**base, "method": "pooled-raw", "draw": 0, "auc_own_clean": 0.92},
            {
                **base,
                "method": "i-gdp",
                "draw": 0,
                "auc_own_clean": 0.6,
                "match:moments": 0.3,
                "auc_own_clean:linear": 0.5,
            },
        ]
        for k, noise in enumerate((0.1, 1.0)):
            score = {"draw": k, "auc_own_clean": 0.85 - 0.1 * noise, "match:moments": 1.0 - 0.5 * noise}
            rows.append({**base, **score, "method": "aa-i-gdp-data-noise", "data_noise_scale": noise})
            rows.append({**base, **score, "method": "aa-i-gdp-anchor-noise", "anchor_noise_scale": noise})
    page = flowing(findings({"census": Results.from_rows(rows)}))
    assert "| census | 50 | 70.0 % | 92.0 % | 90.0 % | 60.0 % | 30.0 % | 75.0 % | 50.0 % | 75.0 % | 50.0 % |" in page
    assert "| census | 700 | 80.0 % | 92.0 %" in page
    assert "I-GDP scores 50.0 % on census with 50 rows at most each, and the joint model without noise 91.0 %" in page


def test_a_level_that_is_never_reached_is_said() -> None:
    page = flowing(findings({"mnist": digits(worst_anchor=0.85)}))
    assert "With anchor noise the joint model stays above training alone over the whole range" in page


def test_studies_that_were_not_run_are_left_out() -> None:
    page = findings({"mnist": digits()})
    assert "## Digits" in page
    for absent in ("## Faces", "## From two", "## Where joining pays", "## Tables", "nan", "n/a"):
        assert absent not in page
    assert "## What we take from it" in findings({})


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
    page = flowing(findings({"participants": Results.from_rows(rows)}))
    assert "| 98 | 2 | 65.0 % | 94.0 % | 91.0 % | 83.0 % | 55.0 % | 70.0 % |" in page
    assert "| 98 | 10 | 65.0 % | 94.0 % | 92.0 % | 84.0 % | 55.0 % | 70.0 % |" in page
    assert "| 19 | 2 | 60.0 % | 94.0 % | 86.0 % | 78.0 % | 50.0 % | 70.0 % |" in page
    assert f"with 19 this {'holds' if grows else 'does not hold throughout'} and with 98 this holds" in page


def test_a_figure_stands_beside_its_range_over_deployments() -> None:
    both = Results.from_rows([*digit_rows(), *digit_rows(deployment=1, alone=ALONE - 0.1)])
    page = flowing(findings({"mnist": both}))
    assert "reaches 80.0 % (70.0 % to 80.0 % over 2 deployments)" in page
    assert "from about v = 0.25 (0.25 to 0.38 over 2 deployments) on" in page  # 1 − 0.4 t = 0.7 at t = ¾
    assert "links 36.0 % under anchor noise and 32.0 % (27.0 % to 32.0 % over 2 deployments) under noise" in page


def test_a_level_crossed_where_there_are_no_draws_is_not_read() -> None:
    rows = digits()
    v = rows["anchor_noise_scale"]
    gone = (rows["method"] == "aa-i-gdp-anchor-noise") & (v > 0.2) & (v < 0.3)
    study = findings_reading.Reader(rows.only(~gone))
    assert study.falls_to_alone(findings_reading.ANCHOR) is None  # it would be at 0.25
    assert findings_reading.Reader(rows).falls_to_alone(findings_reading.ANCHOR) == pytest.approx(0.25, abs=1e-3)


def test_a_spline_that_overshoots_is_not_read_as_certainty() -> None:
    x = np.linspace(0, 10, 40)
    y = np.where(x < 5, 0.999, 0.999 - 0.15 * (x - 5))
    curve = fit(x, y)
    over = float(curve.grid()[np.argmax(curve.at(curve.grid()))])
    assert float(curve.at(over)) > 1
    assert percent_at(curve, over) == "99.9\N{NO-BREAK SPACE}%"
    assert percent_at(curve, 12.0) == percent_at(curve, 10.0)  # never past the last draw


def test_what_i_gdp_leaks_is_told_study_by_study_with_its_spread() -> None:
    def of(deployment: int, each: int, matched: float) -> dict[str, object]:
        return {"deployment": deployment, "rows_each": each, "method": "i-gdp", "draw": 0, "match:moments": matched}

    some = {"method": "aa-i-gdp", "draw": 0, "deployment": 0, "auc_own_clean": 0.8}
    hospitals = Results.from_rows([of(0, 212, 0.1), of(1, 212, 0.3), some | {"rows_each": 212}])
    census = Results.from_rows([of(0, 50, 0.4), of(0, 694, 0.9), some | {"rows_each": 50}, some | {"rows_each": 694}])
    page = on_tables({"hospitals": hospitals, "census": census}).replace("\N{NO-BREAK SPACE}", " ")
    assert "20.0 % (10.0 % to 30.0 % over deployments) of the rows of hospitals with 212 rows at most each" in page
    assert "40.0 % of the rows of census with 50 rows at most each; 90.0 % of the rows of census with 694" in page


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
    assert flowing(study.percent(lambda one: one.mean("i-gdp"))) == "50.0 % (50.0 % to 70.0 % over 3 deployments)"
    some = study.percent(lambda one: value if (value := one.mean("i-gdp")) < 0.65 else float("nan"))
    assert flowing(some) == "50.0 % (50.0 % to 60.0 % over 2 of 3 deployments)"


def test_how_far_much_anchor_noise_is_from_i_gdp_is_read_in_every_deployment() -> None:
    rows = [*digit_rows(i_gdp=0.60), *digit_rows(i_gdp=0.45, deployment=1)]
    for row in rows:
        if row["method"] == "aa-i-gdp-anchor-noise":
            row["balanced_accuracy"] = 0.58 if row["anchor_noise_scale"] > 0.3 else 0.9
    page = flowing(findings({"mnist": Results.from_rows(rows)}))
    assert "to 58.0 % (mean of the draws above v = 0.3; I-GDP: 60.0 %)" in page
    assert "mean accuracy is between 2.0 points below and 13.0 points above I-GDP's" in page
