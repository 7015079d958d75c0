"""Figures are drawn from tables alone, the same each time, and always show what the numbers are worth."""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest
from mooring_studies.comparison.results import Results
from mooring_studies.figures.chart import spread_out
from mooring_studies.figures.fits import Fits, Line, Material, Track, outline_track, raise_to
from mooring_studies.figures.frontier import find_frontier
from mooring_studies.figures.readings import average_by_setting, match_levels, pair_gains, select_strongest_noise
from mooring_studies.figures.study_figures import _STUDIES as FUNCTIONS
from mooring_studies.figures.study_figures import draw_figures, draw_study, house_style, locate_paper
from mooring_studies.figures.tradeoff import smooth_surface

from mooring.errors import InputError, MissingExtraError, StorageError
from tests.raising import raising
from tests.studies.support import landscape_rows

CHARTS = ["linkage", "linkage-strongest", "utility", "tradeoff", "tradeoff-as-deployed", "both-noises", "deployments"]
EXPECTED = {
    "mnist": [*CHARTS, "solver", "reconstructions", "digit-0", "digit-1"],
    "celeba": [*CHARTS, "solver", "reconstructions", "identity-0", "identity-1"],
    "participants": ["tradeoff", "tradeoff-strongest", "utility-by-noise", "transition"],
    "hospitals": ["utility", "utility-auc", "tradeoff", "each-participant"],
    "census": ["utility", "utility-auc", "tradeoff"],
    "landscape": ["gain", "leakage", "leakage-error"],
}
FACTS = {"phase_transition": {"2": 0.038, "5": 0.047, "10": 0.0977, "20": 0.058, "50": 0.064}}
FEW_RESAMPLES = 20


# Synthetic results: plausible curves, so that a figure of them can be looked at.


def falling(x, *, top, bottom, middle):
    return bottom + (top - bottom) / (1 + (np.asarray(x) / middle) ** 2.2)


def image_rows(
    study="mnist", *, n_draws=20, n_deployments=2, every=3, p=10, identities=None, with_moments=True, seed=1
):
    rng = np.random.default_rng(seed)
    digits = study == "mnist"
    guess, top, worst = (0.10, 0.91, 0.57) if digits else (0.50, 0.86, 0.71)
    ceiling = 0.37 if digits else 0.82
    sigma_top, v_top, v_pt = (50.0, 0.5, 0.08) if digits else (3.0, 0.25, 0.039)
    rows = []
    for deployment in range(n_deployments):
        shift = 0.02 * (deployment - 1)
        common = {"deployment": deployment, "n_participants": p, "identities_each": identities}

        def add(method, draw, shared=common, **values):
            noise = {"anchor_noise_scale": 0.0, "data_noise_scale": 0.0}
            rows.append({**shared, "method": method, "draw": draw, **noise, **values})

        def score(value, clean=None, rng=rng, shift=shift):
            noisy = value + shift + rng.normal(0, 0.008)
            return {
                "balanced_accuracy": noisy,
                "balanced_accuracy_clean": noisy if clean is None else clean + shift + rng.normal(0, 0.008),
            }

        add("c-gdp", 0, **score(top), **{"linkage:known-secret": ceiling, "match:known-secret": 1.0})
        add("aa-i-gdp", 0, **score(top), **{"linkage:known-anchor": ceiling, "match:known-anchor": 1.0})
        moments = {"linkage:moments": ceiling - 0.02, "match:moments": 0.99} if with_moments else {}
        add("i-gdp", 0, **score(worst), **moments)
        add("pooled-raw", 0, **score(top + 0.06))
        for k in range(p):
            add("local-only", k, **score(top - 0.05 + 0.01 * np.sin(k)))
        for draw, sigma in enumerate(rng.uniform(0, sigma_top, n_draws)):
            level = sigma / sigma_top
            link = falling(level, top=ceiling, bottom=0.1, middle=0.2) + rng.normal(0, 0.006)
            match = falling(level, top=0.98, bottom=0.1, middle=0.5) + rng.normal(0, 0.004)
            worth = score(
                falling(level, top=top, bottom=guess, middle=0.25), falling(level, top=top, bottom=guess, middle=0.9)
            )
            found = {"linkage:known-secret": link, "match:known-secret": match}
            found |= {"linkage:known-secret+denoised": link + 0.02, "match:known-secret+denoised": match + 0.01}
            add("c-gdp-data-noise", draw, data_noise_scale=sigma, **worth, **found)
            aligned = {f"{kind}:known-anchor": found[f"{kind}:known-secret"] for kind in ("linkage", "match")}
            if digits:
                add("aa-i-gdp-data-noise", draw, data_noise_scale=sigma, **worth, **aligned)
        order = np.sort(rng.uniform(0, v_top, n_draws))
        for draw, v in enumerate(order):
            middle = {"pseudoinverse": 0.06, "procrustes": 0.11, "alignment-map": 0.08}
            found = {}
            for attack, scale in middle.items():
                link = falling(v / v_top * 0.5, top=ceiling, bottom=0.1, middle=scale)
                found[f"linkage:{attack}"] = link + rng.normal(0, 0.008)
                found[f"match:{attack}"] = falling(v / v_top * 0.5, top=1.0, bottom=0.1, middle=2 * scale)
            found["strongest_attacks"] = with_moments and draw % every == 0
            if found["strongest_attacks"]:
                found |= {
                    "linkage:moments": ceiling - 0.03 + rng.normal(0, 0.005),
                    "match:moments": 0.99 - 0.1 * v / v_top,
                }
            shut = v < v_pt
            add(
                "aa-i-gdp-anchor-noise",
                draw,
                anchor_noise_scale=v,
                **score(falling(v / v_top * 0.5, top=top, bottom=worst + 0.02, middle=0.1)),
                **found,
                iterations=int(20 + 400 * (v / v_pt) ** 3) if shut else 500,
                converged=bool(shut),
                residual=1e-8 if shut else 10 ** rng.normal(-3.4, 0.2),
                solver_seconds=float(0.02 * (20 + 400 * (v / v_pt) ** 3) if shut else 10 * rng.uniform(0.9, 1.1)),
            )
        for draw in range(n_draws if deployment == 0 else 0):
            v, sigma = rng.uniform(0, 0.6 * v_top), rng.uniform(0, 0.4 * sigma_top)
            level = sigma / sigma_top
            worth = falling(level, top=top, bottom=guess, middle=0.9) - 0.5 * v / v_top * (top - worst)
            found = {"match:procrustes": falling(level, top=0.9, bottom=0.1, middle=0.4)}
            found["strongest_attacks"] = with_moments and draw % every == 0
            if found["strongest_attacks"]:
                found["match:moments"] = falling(level, top=1.0, bottom=0.1, middle=0.5) - 0.1 * v / v_top
            noise = {"anchor_noise_scale": v, "data_noise_scale": sigma}
            add("aa-i-gdp-both-noise", draw, **noise, **score(worth), **found)
    return rows


def participant_rows(**options):
    rows = []
    for identities, counts in ((19, (2, 5, 10, 20, 50)), (98, (2, 5, 10))):
        for k, p in enumerate(counts):
            own = image_rows("celeba", p=p, identities=identities, n_deployments=1, seed=p, **options)
            for row in own:
                for name in ("balanced_accuracy", "balanced_accuracy_clean"):
                    row[name] += 0.02 * (k - 3) + (0.02 if identities == 98 else 0)
            rows += own
    return rows


def table_rows(*, n_deployments=3, sizes=(50, 700), own_columns=False):
    rng = np.random.default_rng(3)
    rows = []
    for deployment in range(n_deployments):
        for size in sizes:
            common = {"deployment": deployment, "n_participants": 4, "rows_each": size}
            lift = 0.0 if size < 100 else 0.04

            def add(method, draw, value, leak, shared=common, lift=lift, **noise):
                clean = value + lift + rng.normal(0, 0.006)
                own = {f"own:{k}": clean + 0.02 * (k - 1.5) for k in range(4)}
                own |= {f"auc_{name}": score + 0.05 for name, score in own.items()}
                rows.append(
                    {
                        **shared, "method": method, "draw": draw, "anchor_noise_scale": 0.0, "data_noise_scale": 0.0,
                        **noise, **(own if own_columns else {}), "auc_own_clean": clean + 0.05,
                        "balanced_accuracy_clean": clean, "match:moments": leak, "error:guessing": 1.0,
                        "balanced_accuracy": clean - 0.1 * noise.get("data_noise_scale", 0),
                        "error:moments": None if leak is None else 1.1 - leak,
                    }
                )  # fmt: skip

            add("c-gdp", 0, 0.80, 1.0)
            add("i-gdp", 0, 0.60, 0.97)
            add("pooled-raw", 0, 0.82, None)
            for k in range(4):
                add("local-only", k, 0.71 + 0.01 * k, None)
            add("local-own", 0, 0.77, None)
            rms = 1 + 0.01 * deployment
            for draw, sigma in enumerate((0.1, 0.3, 0.5, 0.8, 1.5)):
                add("c-gdp-data-noise", draw, 0.80 - 0.08 * sigma, 1 / (1 + sigma), data_noise_scale=sigma * rms)
            for draw, v in enumerate((0.02, 0.05, 0.1, 0.2, 0.5)):
                add("aa-i-gdp-anchor-noise", draw, 0.80 - 0.3 * v, 0.95 - 0.1 * v, anchor_noise_scale=v)
            for draw, v in enumerate((0.05, 0.2)):
                noise = {"anchor_noise_scale": v, "data_noise_scale": 0.5 * rms}
                add("aa-i-gdp-both-noise", draw, 0.77 - 0.3 * v, 0.6 - 0.1 * v, **noise)
    return rows


def made_pictures(*, colour=False, n_columns=3, n_sources=2):
    rng = np.random.default_rng(4)
    shape = (n_sources, 16, 16, 3) if colour else (n_sources, 16, 16)
    rows = ["c-gdp-data-noise|known-secret", "c-gdp-data-noise|known-secret+denoised"]
    rows += [
        f"aa-i-gdp-anchor-noise|{attack}" for attack in ("pseudoinverse", "procrustes", "alignment-map", "moments")
    ]
    sources = rng.integers(0, 255, shape).astype(np.uint8)
    pictures = {"sources": sources, "projected": sources // 2, "labels": np.arange(n_sources), "rows": np.array(rows)}
    for i in range(len(rows)):
        noise = np.linspace(0, 0.5, n_columns)
        faded = sources[None] * (1 - noise.reshape((-1,) + (1,) * len(shape)))
        pictures[f"row{i}_images"] = faded.astype(np.uint8)
        pictures[f"row{i}_noise"] = noise
        pictures[f"row{i}_linkage"] = np.linspace(0.37, 0.1, n_columns)
    return pictures


def synthetic(study, **options):
    """Results and pictures of a study."""
    if study in ("mnist", "celeba"):
        return Results.from_rows(image_rows(study, **options)), made_pictures(colour=study == "celeba")
    if study == "participants":
        return Results.from_rows(participant_rows(**options)), None
    census = study == "census"
    tables = table_rows(sizes=(50, 700) if census else (200,), own_columns=not census)
    rows = landscape_rows() if study == "landscape" else tables
    return Results.from_rows(rows), None


def drawings(study, results, pictures=None, facts=FACTS):
    """Every drawing of a study by its name, unwritten."""
    with house_style():
        return {one.name: one for one in draw_study(study, results, facts, pictures, n_resamples=FEW_RESAMPLES)}


class Drawings(dict):
    """The drawings of a study by name, each drawn when it is first asked for."""

    def __init__(self, study, rows, facts=FACTS):
        results = rows if isinstance(rows, Results) else Results.from_rows(rows)
        self.material, self.functions = Material(study, results, facts, Fits(FEW_RESAMPLES)), FUNCTIONS[study]

    def __missing__(self, name):
        alone = [one for one in self.functions if one.__name__ == f"draw_{name.replace('-', '_')}"]
        with house_style():
            self.update((one.name, one) for draw in alone or self.functions for one in draw(self.material))
        return self[name]


def of_panel(axes, label):
    """A panel's lines whose label begins so."""
    return [line for line in axes.get_lines() if str(line.get_label()).startswith(label)]


def lines(drawing, label):
    """The lines with this label, in all panels."""
    return [line for axes in drawing.canvas.axes for line in of_panel(axes, label) if line.get_label() == label]


def heights(found):
    return {round(float(np.asarray(line.get_ydata())[0]), 6) for line in found}


@cache
def default(study):
    """The synthetic results of a study, and its drawings."""
    results, _ = synthetic(study)
    return results, drawings(study, results)


@pytest.fixture
def mnist():
    return default("mnist")


# What is drawn.


DRAWN_AS = {"celeba": "mnist", "census": "hospitals"}  # by the same functions


@pytest.mark.parametrize("study", EXPECTED)
def test_every_figure_of_a_study_is_drawn(study):
    assert sorted(drawings(study, *synthetic(study))) == sorted(EXPECTED[study])


def test_figures_are_written_with_the_same_bytes_whatever_others_set(tmp_path):
    import matplotlib

    results, _ = synthetic("landscape")
    first = draw_figures("landscape", results, FACTS, None, tmp_path / "ours", n_resamples=FEW_RESAMPLES)
    with matplotlib.rc_context({"font.size": 23.0, "axes.linewidth": 5.0}):
        before = dict(matplotlib.rcParams)
        again = draw_figures("landscape", results, FACTS, None, tmp_path / "theirs", n_resamples=FEW_RESAMPLES)
        assert dict(matplotlib.rcParams) == before
    assert [one.path.read_bytes() for one in first] == [one.path.read_bytes() for one in again]


@pytest.mark.parametrize("study", [study for study in EXPECTED if study not in DRAWN_AS])
def test_an_unfinished_study_is_drawn_as_far_as_it_goes(study):
    rows = {"mnist": image_rows, "participants": participant_rows, "landscape": landscape_rows}
    made = rows.get(study, table_rows)()
    controls = [row for row in made if not row["method"].endswith("-noise")]
    assert set(drawings(study, Results.from_rows(controls), facts={})) <= set(EXPECTED[study])
    assert set(drawings(study, Results.from_rows([]), facts={})) <= set(EXPECTED[study])


# What figures must show.


@pytest.mark.parametrize("name", ["utility", "tradeoff", "tradeoff-as-deployed", "both-noises"])
def test_training_alone_and_pooling_are_on_every_utility_and_tradeoff(mnist, name):
    results, found = mnist
    for words, method in (("local only", "local-only"), ("pooled raw", "pooled-raw")):
        own = 100 * results.where(method=method, deployment=0)["balanced_accuracy"]
        assert heights(lines(found[name], words)) == {round(float(own.mean()), 6)}
        n_panels = 1 if name == "tradeoff" else 2
        assert len(lines(found[name], words)) == n_panels


@pytest.mark.parametrize("study", ["participants", "hospitals", "census"])
def test_the_other_studies_carry_them_as_well(study):
    for drawing in default(study)[1].values():
        labels = {line.get_label() for axes in drawing.canvas.axes for line in axes.get_lines()}
        if drawing.name != "transition":
            alone = "training alone" if drawing.name == "each-participant" else "local only"
            assert any(label.startswith(alone) for label in labels)
            assert any(label.startswith("pooled raw") for label in labels)


def test_the_strongest_attack_is_the_darkest_line_and_not_the_papers(mnist):
    results, found = mnist
    strongest_lines = lines(found["linkage"], "strongest attack we know")
    assert len(strongest_lines) == 2  # one a panel
    assert {line.get_color() for line in strongest_lines} == {"#000000"}
    others = [line for axes in found["linkage"].canvas.axes for line in axes.get_lines() if line not in strongest_lines]
    assert min(line.get_linewidth() for line in strongest_lines) > max(line.get_linewidth() for line in others)
    anchor = strongest_lines[1].get_ydata()
    moments = 100 * results.where(method="aa-i-gdp-anchor-noise", deployment=0)["linkage:moments"]
    assert np.all(np.abs(anchor - np.nanmean(moments)) < 8)  # flat at what moments link, where Procrustes sees chance


def test_filled_markers_converged_and_open_ones_did_not(mnist):
    results, found = mnist
    own = results.where(method="aa-i-gdp-anchor-noise", deployment=0)
    n_converged = int(own["converged"].sum())
    assert 0 < n_converged < len(own)
    for name, n_panels in (("solver", 3), ("utility", 1)):
        marks = [
            line
            for axes in found[name].canvas.axes
            for line in axes.get_lines()
            if line.get_marker() == "o" and line.get_color() is not None and line.get_markeredgecolor() == "#D55E00"
        ]
        n_open = [len(line.get_xdata()) for line in marks if line.get_markerfacecolor() == "none"]
        n_filled = [len(line.get_xdata()) for line in marks if line.get_markerfacecolor() != "none"]
        assert n_filled == [n_converged] * n_panels
        assert n_open == [len(own) - n_converged] * n_panels


def test_the_deployed_tradeoff_shades_what_is_worse_than_training_alone(mnist):
    results, found = mnist
    alone = 100 * results.where(method="local-only", deployment=0)["balanced_accuracy"].mean()
    panels = found["tradeoff-as-deployed"].canvas.axes
    assert len(panels) == 2
    for axes in panels:
        (shade,) = [patch for patch in axes.patches if patch.get_label() == "worse than training alone"]
        assert shade.get_y() + shade.get_height() == pytest.approx(alone)
    fronts = lines(found["tradeoff-as-deployed"], "frontier")
    assert len(fronts) == 2
    for front in fronts:
        assert np.all(np.diff(front.get_xdata()) >= 0)
        assert np.all(np.diff(front.get_ydata()[:-1]) > 0)
        assert front.get_ydata()[-1] == front.get_ydata()[-2]  # level, as far as the greatest leakage


def test_the_deployed_tradeoff_has_the_strongest_attack_by_both_measures(mnist):
    results, found = mnist
    own = results.where(method="c-gdp-data-noise", deployment=0)
    by_panel = [of_panel(axes, "private-data noise")[0] for axes in found["tradeoff-as-deployed"].canvas.axes]
    for line, kind in zip(by_panel, ("match", "linkage"), strict=True):
        np.testing.assert_allclose(np.sort(line.get_xdata()), np.sort(100 * own[f"{kind}:known-secret+denoised"]))


def bands(axes):
    """The filled bands of a panel, as arrays of their corners, by their colour's red, green and blue."""
    found = []
    for one in axes.collections:
        if one.get_paths() and len(one.get_facecolor()):
            corners = np.concatenate([path.vertices for path in one.get_paths()])
            found.append((tuple(np.round(one.get_facecolor()[0][:3], 3)), corners))
    return found


def test_nothing_that_is_a_share_leaves_its_scale():
    rows = image_rows(n_deployments=2, n_draws=24, every=1)
    for row in rows:
        if row["method"].endswith("-noise"):
            row |= {"match:moments": float(row["data_noise_scale"] < 12), "linkage:moments": float(row["draw"] % 2)}
    found = Drawings("mnist", rows)
    for name in ("linkage", "linkage-strongest", "deployments", "utility"):
        for axes in found[name].canvas.axes:
            drawn_lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
            assert all(np.nanmax(y, initial=0) <= 100 and np.nanmin(y, initial=100) >= 0 for y in drawn_lines)
            assert all(np.nanmax(band[:, 1]) <= 100 and np.nanmin(band[:, 1]) >= 0 for _, band in bands(axes))
    bars = [axes for axes in found["both-noises"].canvas.axes if axes.get_label() == "<colorbar>"]
    assert len(bars) == 3  # accuracy, and leakage by two measures
    assert all(min(axes.get_ylim()) >= 0 and max(axes.get_ylim()) <= 100 for axes in bars)


def test_a_smooth_surface_does_not_overshoot():
    rng = np.random.default_rng(5)
    sigma, v = rng.uniform(0, 20, 60), rng.uniform(0, 0.3, 60)
    z = np.where(sigma < 10, 100.0, 0.0)
    _, _, surface = smooth_surface(sigma, v, z)
    assert (float(surface.min()), float(surface.max())) == (0.0, 100.0)


def test_bands_end_where_draws_are_few():
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(0, 0.2, 20), [0.4, 0.55, 0.7, 0.85, 1.0]])
    y = 80 - 60 * x + rng.normal(0, 2, len(x))
    line = Fits(200).line(x, y)
    assert (line.x[0], line.x[-1]) == (x.min(), x.max())  # the curve goes as far as its draws
    assert np.isfinite(line.y).all()
    near = np.array([(np.abs(x - place) <= 0.1 * np.ptp(x)).sum() for place in line.x])
    last = np.flatnonzero(near >= 5)[-1]
    assert 0 < last < len(line.x) - 1
    known = np.isfinite(line.lower)
    assert np.array_equal(known, np.isfinite(line.upper))
    assert known[: last + 1].all()
    assert not known[last + 1 :].any()
    assert Fits(200).track(x, y, y).up.lower[-1] != line.lower[-1]  # NaN: the same rule for what is paired


@pytest.mark.parametrize("study", ["hospitals", "census"])
def test_joining_is_held_against_each_ones_own_model_on_its_own_rows(study):
    results, found = default(study)
    sizes = np.unique(results["rows_each"])
    for name, column in (("utility", "balanced_accuracy_clean"), ("utility-auc", "auc_own_clean")):
        for words, method in (
            ("training alone, own rows", "local-own"),
            ("local only, everybody's rows", "local-only"),
        ):
            wanted = {
                round(100 * float(results.where(method=method, rows_each=size)[column].mean()), 6) for size in sizes
            }
            assert heights(lines(found[name], words)) == wanted
    (first, *_) = found["tradeoff"].canvas.axes
    (shade,) = [patch for patch in first.patches if patch.get_label() == "worse than training alone"]
    alone = 100 * results.where(method="local-own", rows_each=sizes[0])["balanced_accuracy"].mean()
    assert shade.get_y() + shade.get_height() == pytest.approx(alone)


def test_gains_over_training_alone_are_paired_by_deployment():
    rows = []
    for deployment, alone, joined in ((0, 0.7, (0.8, 0.7)), (1, 0.5, (0.5, 0.4)), (2, None, (0.9, 0.9))):
        if alone is not None:
            rows.append({"deployment": deployment, "method": "local-own", "auc_own_clean": alone})
        for v, score in zip((0.1, 0.2), joined, strict=True):
            rows.append({"deployment": deployment, "method": "m", "anchor_noise_scale": v, "auc_own_clean": score})
    results = Results.from_rows(rows)
    own = results.where(method="m")
    np.testing.assert_allclose(pair_gains(results, own, "auc_own_clean"), [5, -5])
    np.testing.assert_allclose(pair_gains(results, select_strongest_noise(own), "auc_own_clean"), [0, -10], atol=1e-9)


# What figures must not show: frontiers that something beats, curves of attacks that no attack follows, bands that cross.


def with_control(rows, method, **values):
    """The same rows, those of one method without noise with other values."""
    return [row | values if row["method"] == method else row for row in rows]


def marked(axes):
    """Every operating point with a marker of its own, as (leakage, utility), noisy or not."""
    shown = [line for line in axes.get_lines() if line.get_marker() not in ("None", "", None)]
    return np.concatenate([np.asarray(line.get_xydata(), dtype=float) for line in shown])


@pytest.mark.parametrize("name", ["tradeoff-as-deployed", "both-noises"])
def test_nothing_beats_the_frontier_of_images_with_or_without_noise(name):
    safe = {"linkage:moments": 0.11, "match:moments": 0.12, "balanced_accuracy": 0.7, "balanced_accuracy_clean": 0.7}
    best = {"balanced_accuracy": 0.95, "balanced_accuracy_clean": 0.95}
    rows = with_control(with_control(image_rows(every=1), "i-gdp", **safe), "aa-i-gdp", **best)
    drawing = Drawings("mnist", rows)[name]
    panels = [axes for axes in drawing.canvas.axes if of_panel(axes, "frontier")]
    assert len(panels) == 2 if name == "tradeoff-as-deployed" else panels
    for axes in panels:
        (front,) = of_panel(axes, "frontier")
        corners, points = front.get_xydata()[:-1], marked(axes)
        beaten = (points[:, None, 0] <= corners[None, :, 0]) & (points[:, None, 1] > corners[None, :, 1])
        assert not beaten.any()
        assert corners[0].tolist() == [pytest.approx(12.0 if axes is panels[0] else 11.0), pytest.approx(70.0)]
        assert corners[-1][1] == pytest.approx(95.0)
        labels = {str(line.get_label()) for line in axes.get_lines()}
        assert {"I-GDP, no noise", "C-GDP, no noise", "AA-I-GDP, no noise"} <= labels
    if name == "both-noises":
        assert "I-GDP without noise 1" in drawing.caption


@pytest.mark.parametrize("study", ["hospitals", "census"])
def test_nothing_beats_the_frontier_of_tables_with_or_without_noise(study):
    sizes = (50, 700) if study == "census" else (200,)
    safe = {"match:moments": 0.15, "error:moments": 1.2, "balanced_accuracy": 0.9, "balanced_accuracy_clean": 0.9}
    rows = with_control(table_rows(sizes=sizes), "i-gdp", **safe)
    panels = Drawings(study, rows)["tradeoff"].canvas.axes
    for place, axes in enumerate(panels):
        (front,) = of_panel(axes, "frontier")
        # I-GDP beats everything here: its level runs from its own leakage to the greatest.
        assert np.asarray(front.get_ydata()) == pytest.approx([90.0, 90.0])
        assert front.get_xdata()[0] == pytest.approx(15.0 if place % 2 == 0 else 1.2)
        assert abs(front.get_xdata()[1] - front.get_xdata()[0]) > 0.5


def steep_rows(study="celeba", *, n_deployments=1):
    """Linkage that falls from 85 % so steeply that a spline begins far above; strongest attacks on few draws only."""
    rng = np.random.default_rng(2)
    rows = image_rows(study, n_draws=120, every=8, n_deployments=n_deployments)
    for row in rows:
        if row["method"] == "aa-i-gdp-anchor-noise":
            v = row["anchor_noise_scale"] = 4 * row["anchor_noise_scale"] ** 2  # most draws near none, as in the study
            linked = 0.1 + 0.75 / (1 + (v / 0.015) ** 3) + rng.normal(0, 0.004)
            row |= {f"linkage:{attack}": linked for attack in ("pseudoinverse", "procrustes", "alignment-map")}
            if row["strongest_attacks"]:
                row["linkage:moments"] = linked - 0.02
        elif row["method"] in ("c-gdp", "aa-i-gdp"):
            row |= {name: 0.85 for name in row if name.startswith("linkage:")}
    return rows


def test_no_attack_is_drawn_above_what_it_finds_without_noise():
    results = Results.from_rows(steep_rows())
    own = results.where(method="aa-i-gdp-anchor-noise")
    free = Fits(FEW_RESAMPLES).line(own["anchor_noise_scale"], 100 * own["linkage:procrustes"])
    assert free.y.max() > 88  # so there is something to stop
    found = Drawings("celeba", results)
    for name in ("linkage", "linkage-strongest"):
        curves = [line for line in found[name].canvas.axes[1].get_lines() if line.get_linestyle() != "None"]
        assert len(curves) >= 3
        for line in curves:
            assert line.get_label() == "strongest, matched directly" or np.nanmax(line.get_ydata()) <= 85 + 1e-9
    for label in ("anchor noise, Procrustes (paper)", "anchor noise, strongest attack we know"):
        (track,) = lines(found["tradeoff"], label)
        assert np.nanmax(track.get_xdata()) <= 85 + 1e-9
    lucky = [
        row | {"linkage:procrustes": row["linkage:procrustes"] + 0.08} if "linkage:procrustes" in row else row
        for row in image_rows(n_deployments=1)
    ]
    of_digits = Drawings("mnist", lucky)["tradeoff"]
    x, y = lines(of_digits, "anchor noise, Procrustes (paper)")[0].get_data()
    assert x.max() > 38
    assert np.all(x[np.isfinite(y)] <= 37 + 1e-9)


def test_the_strongest_attack_is_nowhere_below_one_that_is_shown():
    found = Drawings("celeba", steep_rows())
    for name, words in (("linkage", "strongest attack we know"), ("linkage-strongest", "strongest, by the auditor")):
        axes = found[name].canvas.axes[1]
        (strong,) = of_panel(axes, words)
        others = [line for line in axes.get_lines() if "OP)" in str(line.get_label()) or "MP)" in str(line.get_label())]
        assert others
        for other in others:
            there = np.interp(strong.get_xdata(), *other.get_data())
            assert np.all(strong.get_ydata() >= there - 1e-9)


def test_a_raised_curve_keeps_its_own_range_and_bands():
    x = np.array([0.0, 1.0, 2.0, 3.0])
    own = Line(x, np.array([5.0, 5, 5, 5]), np.array([4.0, 4, 4, np.nan]), np.array([6.0, 6, 6, np.nan]))
    other = Line(x[1:] + 0.0, np.array([7.0, 3, 9]), np.array([6.5, 2, 8]), np.array([np.nan, 4, 10]))
    raised = raise_to(own, [other, None])
    np.testing.assert_allclose(raised.y, [5, 7, 5, 9])
    np.testing.assert_allclose(raised.lower, [4, 6.5, 4, np.nan])
    np.testing.assert_allclose(raised.upper, [6, 7, 6, np.nan])


def test_a_ribbon_covers_both_bands_once_however_its_track_bends():
    noise = np.linspace(0, 1, 61)
    # Leakage falls and comes back while utility falls, and the bands widen: corners joined straight would cross.
    across, up = 20 + 60 * (1 - noise) ** 2 + 8 * np.sin(9 * noise), 85 - 25 * noise
    wide, high = 1 + 6 * noise, 8 - 7 * noise
    track = Track(noise, Line(noise, across, across - wide, across + wide), Line(noise, up, up - high, up + high))
    region = outline_track(track)
    pieces = region.vertices.reshape(-1, 5, 2)[:, :4]
    x, y = pieces[..., 0], pieces[..., 1]
    areas = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1)
    assert (areas > 0).all()  # all the same way round: nothing cancels, whatever overlaps
    corners = np.concatenate(
        [np.stack([across + a * wide, up + b * high], axis=1) for a in (-0.9, 0.9) for b in (-0.9, 0.9)]
    )
    assert region.contains_points(np.concatenate([corners, np.stack([across, up], axis=1)])).all()
    assert x.min() >= (across - wide).min() - 1e-9
    assert y.max() <= (up + high).max() + 1e-9
    nowhere = np.full(61, np.nan)
    assert outline_track(Track(noise, Line(noise, across, nowhere, nowhere), track.up)) is None


def test_utility_of_the_strongest_tradeoff_rests_on_all_draws():
    rows = image_rows("celeba", n_draws=80, every=8, n_deployments=1)
    for row in rows:
        if row["method"] == "aa-i-gdp-anchor-noise":
            row["balanced_accuracy"] = 0.9 if row["strongest_attacks"] else 0.7
    (track,) = lines(Drawings("celeba", rows)["tradeoff"], "anchor noise, strongest attack we know")
    assert abs(np.median(track.get_ydata()) - 72.5) < 2  # a draw in eight is at 90


def test_no_curve_is_drawn_through_a_stretch_without_draws():
    rows = [
        row
        for row in image_rows("celeba", n_draws=60, n_deployments=2, every=1)
        if row["deployment"] == 0
        or not (row["method"] == "aa-i-gdp-anchor-noise" and 0.1 < row["anchor_noise_scale"] < 0.2)
    ]
    drawing = Drawings("celeba", rows)["deployments"]
    for axes in (drawing.canvas.axes[1], drawing.canvas.axes[3]):
        first, second = of_panel(axes, "one deployment")
        (middle,) = of_panel(axes, "mean of deployments")
        assert np.isfinite(first.get_ydata()).all()
        for line in (second, middle):
            x, y = line.get_data()
            assert np.isnan(y[(x > 0.115) & (x < 0.185)]).all()
            assert np.isfinite(y[x < 0.09]).all()
            assert np.isfinite(y[x > 0.22]).all()
        orange = [band for colour, band in bands(axes) if colour[0] > colour[2]]
        assert orange
        assert not any(((band[:, 0] > 0.12) & (band[:, 0] < 0.18)).any() for band in orange)


# The parts.


def test_the_frontier_is_what_no_other_point_beats():
    rng = np.random.default_rng(0)
    leakage, utility = rng.integers(0, 12, 60).astype(float), rng.integers(0, 12, 60).astype(float)
    utility[7] = np.nan
    known = [k for k in range(60) if k != 7]
    points = {(leakage[k], utility[k]) for k in known}
    wanted = {p for p in points if not any(q != p and q[0] <= p[0] and q[1] >= p[1] for q in points)}
    best = find_frontier(leakage, utility)
    assert sorted((leakage[k], utility[k]) for k in best) == sorted(wanted)
    assert len(find_frontier(np.array([np.nan]), np.array([1.0]))) == 0


def test_labels_are_moved_apart_and_no_further():
    rng = np.random.default_rng(1)
    for _ in range(50):
        n = int(rng.integers(1, 9))
        wanted, sizes = np.sort(rng.uniform(0, 1, n)), rng.uniform(0.02, 0.1, n)
        placed = np.array(spread_out(list(wanted), list(sizes)))
        assert np.all(np.diff(placed) >= (sizes[:-1] + sizes[1:]) / 2 - 1e-12)
    assert spread_out([0.2, 0.8], [0.1, 0.1]) == pytest.approx([0.2, 0.8])


def test_levels_of_noise_are_matched_between_deployments_by_their_order():
    results = Results.from_rows(table_rows(sizes=(200,)))
    x, y = match_levels(results.where(method="c-gdp-data-noise"), "data_noise_scale", "balanced_accuracy_clean")
    np.testing.assert_allclose(x, 1.01 * np.array([0.1, 0.3, 0.5, 0.8, 1.5]))
    assert y.shape == (3, 5)


def test_the_frontier_of_tables_is_one_of_means_not_of_lucky_runs():
    rows = [
        {"deployment": d, "method": "m", "anchor_noise_scale": v, "data_noise_scale": sigma * (1 + 0.1 * d)}
        for d in (0, 1)
        for v, sigma in ((0.1, 1.0), (0.1, 2.0), (0.2, 1.0))
    ]
    leakage, utility = np.array([1.0, 2, 3, 3, 4, np.nan]), np.array([10.0, 20, 30, 30, 40, 90])
    found = average_by_setting(Results.from_rows(rows), leakage, utility)
    np.testing.assert_allclose(found, [[2, 3, 3], [20, 30, 30]])


def test_a_grid_of_pictures_takes_another_source_and_less_leakage_in_every_column():
    pictures = made_pictures(n_sources=3, n_columns=2)
    for level, source in np.ndindex(2, 3):
        pictures["row0_images"][level, source] = 10 * level + source
        pictures["row0_images"][level, source, -1, -1] = 255  # the brightest: nothing is left to stretch
    found = drawings("mnist", synthetic("mnist", n_draws=3)[0], pictures)
    shown = [int(image.get_array()[0, 0]) for image in found["reconstructions"].canvas.axes[0].images]
    assert shown[6:9] == [0, 1, 12]
    shown = [int(image.get_array()[0, 0]) for image in found["digit-2"].canvas.axes[0].images]
    assert shown[2:4] == [2, 12]
    texts = [text.get_text() for text in found["reconstructions"].canvas.axes[0].texts]
    assert "37 % · no noise" in texts
    assert "10 % · 0.5" in texts


# What goes wrong.


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with raising(MissingExtraError, extra="studies"):
        draw_figures("mnist", Results.from_rows([]), {}, None, tmp_path)


def test_an_unknown_study_is_refused(tmp_path):
    with raising(InputError, "study"):
        draw_figures("minst", Results.from_rows([]), {}, None, tmp_path)


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(StorageError):
        draw_figures("landscape", synthetic("landscape")[0], FACTS, None, blocked / "figures")


def test_the_papers_numbers_are_marked_on_its_figures() -> None:
    marked = {
        (study, name): locate_paper(study, name)
        for study in ("mnist", "celeba", "participants")
        for name in ("linkage", "utility", "tradeoff", "solver", "utility-by-noise")
    }
    assert (1, 0.1, 74.7281) in marked["mnist", "utility"]
    assert (0, 20, 14.39) in marked["mnist", "linkage"]
    assert (-1, pytest.approx(12.4), 59.2) in marked["mnist", "tradeoff"]
    assert (1, 0.059, pytest.approx(10)) in marked["celeba", "linkage"]
    assert (-1, 11.4, pytest.approx(75)) in marked["celeba", "tradeoff"]
    assert (0, 0.0395, 500) in marked["celeba", "solver"]
    assert len(marked["participants", "tradeoff"]) == 10
    assert sum(map(bool, marked.values())) == 10
