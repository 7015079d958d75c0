"""The figures on the page of findings are those of the tables; what was not run is left out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from mooring_studies.comparison.curves import fit
from mooring_studies.comparison.findings import find, render_findings
from mooring_studies.comparison.paper import paper_number
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
    value = find({"mnist": digits()})["digits"]
    assert (value["alone"]["value"], value["pooled"]["value"]) == (near(0.8), near(0.95))
    assert value["anchor"]["falls"] == {"value": near(0.25), "range": None}  # 1 − 0.4 t = 0.8 at t = ½
    assert value["data"]["falls"]["value"] == near(12.5)  # t = ¼
    assert (value["anchor"]["linked"]["value"], value["data"]["linked"]["value"]) == (near(0.36), near(0.32))
    assert (value["anchor"]["matched"]["value"], value["data"]["matched"]["value"]) == (near(0.99), near(0.875))
    assert (value["v"], value["procrustes"]) == (0.2, near(0.262))
    assert (value["exact_rows"], value["exact_rows_decoded"]) == (near(0.37), near(0.98))
    assert value["strongest"]["value"] == near(0.36)
    assert value["matched_at_worst"]["value"] == near(0.99)
    assert value["i_gdp"]["matched"]["value"] == near(0.987)


def test_faces_are_read_where_the_paper_reaches_chance_and_where_our_draws_end() -> None:
    v = paper_number("celeba.linkage.anchor.crossing.procrustes").value or 0.0
    value = find({"celeba": faces(last=0.24)})["faces"]
    assert value["v_chance"] == v
    assert value["procrustes_at_chance"] == near(0.6 - 0.5 * v / 0.24)
    assert value["strongest_at_chance"]["value"] == near(0.8 - 0.5 * v / 0.24)
    assert (value["v_most"], value["strongest_at_most"]) == (near(0.24), near(0.3))


def test_tables_are_told_by_own_new_rows_and_by_size() -> None:
    rows = []
    for each, alone in ((50, 0.7), (700, 0.8)):
        base = {"deployment": 0, "n_participants": 50, "rows_each": each}
        rows += [
            {**base, "method": "local-own", "draw": 0, "auc_own_clean": alone},
            {**base, "method": "aa-i-gdp", "draw": 0, "auc_own_clean": 0.9, "auc_own_clean:linear": 0.91},
            {**base, "method": "pooled-raw", "draw": 0, "auc_own_clean": 0.92},
            {**base, "method": "i-gdp", "draw": 0, "auc_own_clean": 0.6, "match:moments": 0.3},
        ]
        for k, noise in enumerate((0.1, 1.0)):
            score = {"draw": k, "auc_own_clean": 0.85 - 0.1 * noise, "match:moments": 1.0 - 0.5 * noise}
            rows.append({**base, **score, "method": "aa-i-gdp-data-noise", "data_noise_scale": noise})
            rows.append({**base, **score, "method": "aa-i-gdp-anchor-noise", "anchor_noise_scale": noise})
    small, large = find({"census": Results.from_rows(rows)})["tables"]
    assert (small["study"], small["rows_each"], large["rows_each"]) == ("census", 50, 700)
    assert small["shares"] == pytest.approx([0.7, 0.92, 0.9, 0.6, 0.3, 0.75, 0.5, 0.75, 0.5])
    assert large["shares"][:2] == pytest.approx([0.8, 0.92])
    assert small["i_gdp"]["rows_each"] == 50


def test_studies_that_were_not_run_are_left_out() -> None:
    value = find({"mnist": digits()})
    assert [name for name in ("faces", "participants", "landscape", "tables") if value[name]] == []
    assert not re.search(r"\bnan\b|n/a", render_findings({"mnist": digits()}))


def test_a_figure_stands_beside_its_range_over_deployments() -> None:
    both = Results.from_rows([*digit_rows(), *digit_rows(deployment=1, alone=ALONE - 0.1)])
    value = find({"mnist": both})["digits"]
    of_two = {"read": 2, "of": 2}
    assert value["alone"] == {"value": near(0.8), "range": of_two | {"low": near(0.7), "high": near(0.8)}}
    falls = value["anchor"]["falls"]  # 1 − 0.4 t = 0.7 at t = ¾
    assert falls == {"value": near(0.25), "range": of_two | {"low": near(0.25), "high": near(0.375)}}
    assert value["anchor"]["linked"] == {"value": near(0.36), "range": None}
    assert value["data"]["linked"] == {"value": near(0.32), "range": of_two | {"low": near(0.27), "high": near(0.32)}}


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


def test_a_figure_that_some_deployments_lack_says_so() -> None:
    rows = [{"deployment": k, "method": "i-gdp", "balanced_accuracy": 0.5 + 0.1 * k} for k in range(3)]
    study = Deployments(Results.from_rows(rows))
    assert study.share(lambda item: item.mean("i-gdp")) == {
        "value": 0.5,
        "range": {"low": 0.5, "high": 0.7, "read": 3, "of": 3},
    }
    some = study.share(lambda item: value if (value := item.mean("i-gdp")) < 0.65 else float("nan"))
    assert some["range"] == {"low": 0.5, "high": 0.6, "read": 2, "of": 3}
