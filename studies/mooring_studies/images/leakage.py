"""Every attack on every draw: the paper's in batches, the strongest we know on a share of the draws.

Legend: Ô the attacker's estimate of O_i, b_i the mean of the uploaded anchor; X̂ = (Y − 1 b_iᵀ) Ô⁻¹.

The attacker estimates the target's map from all its uploaded rows whose labels the analyst sees, compares them with all
rows that the colluder has and with the public ones, and undoes the map on the queries. Of the attacks that look at
everybody's uploads, which pay with many small participants, none is run here: for networks of images they take too long.
Nor is `refine`, which takes as long as all others together: of 194 draws of MNIST, of many participants and of uneven sizes,
it rebuilt rows better than the best of the others in 17, with an error lower by .005 at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import DENOISERS, CollusionView, Reconstruction, reconstruct
from mooring.audit import SimulationSettings, run_attack, run_attack_batch, run_denoising, simulate
from mooring.mechanisms import METHODS, Upload, UploadNoise
from mooring.typing import Array, Matrix
from mooring_studies.comparison.results import name_attack
from mooring_studies.images.deployment import LABELLED, SPLITS, Deployment, Levels
from mooring_studies.images.evaluator import ImageEvaluator
from mooring_studies.images.representations import AlignedDraws
from mooring_studies.roles import COLLUDER, TARGET

CLOSED_FORM = ("pseudoinverse", "procrustes", "alignment-map")
"""The paper's attacks on a noisy anchor, which are run on every draw."""
NOT_SHOWN = frozenset({"pseudoinverse", "alignment-map"})
"""Attacks whose linkage no figure shows beyond the paper's main studies."""

_WITHOUT_ANCHOR = -1  # stands for a draw in what was found before


class Findings:
    """What attacks found in D draws: columns for the result table, and a few rebuilt rows to look at.

    The auditor is asked later, all at once, by `audit`: a face model on the CPU can then work while a GPU goes on. About
    the attacks in `unaudited` it is not asked at all.
    """

    def __init__(self, n_draws: int, evaluator: ImageEvaluator, *, unaudited: frozenset[str] = frozenset()) -> None:
        self._not_asked_about = unaudited
        self.columns: list[dict[str, Any]] = [{} for _ in range(n_draws)]
        self.rebuilt: dict[str, npt.NDArray[np.float32]] = {}
        self._evaluator = evaluator
        self._unaudited: list[tuple[str, Array, npt.NDArray[np.intp]]] = []

    def add(self, attack: str, rebuilt: Array, draws: npt.NDArray[np.intp]) -> None:
        """Take reconstructions of shape (len(draws), q, h) in, and measure all that needs no auditor."""
        shown = self._evaluator.shown
        empty = np.full((len(self.columns), len(shown), rebuilt.shape[2]), np.nan, dtype=np.float32)
        self.rebuilt.setdefault(attack, empty)[draws] = rebuilt[:, shown].float().cpu().numpy()
        self._set(f"match:{attack}", self._evaluator.match(rebuilt), draws)
        self._set(f"error:{attack}", self._evaluator.error(rebuilt), draws)
        if attack not in self._not_asked_about:
            self._unaudited.append((attack, rebuilt, draws))

    def add_denoised(self, attack: str, reconstruction: Reconstruction, view: CollusionView, *, draw: int) -> None:
        """Put what an attack rebuilt in one draw through every denoiser of the audit; take in where there was an error."""
        for denoiser in DENOISERS:
            denoised = run_denoising(
                attack, reconstruction, view, denoiser, rng=np.random.default_rng(0)
            ).reconstruction
            if denoised is not None:
                self.add(name_attack(attack, denoiser), denoised.rows[None], np.array([draw]))

    def audit(self) -> Findings:
        """Ask the auditor about everything taken in since it was last asked."""
        while self._unaudited:
            attack, rebuilt, draws = self._unaudited.pop()
            for column, values in self._evaluator.linkages(attack, rebuilt).items():
                self._set(column, values, draws)
        return self

    def _set(self, name: str, values: Matrix, draws: npt.NDArray[np.intp]) -> None:
        for draw, value in zip(draws, values, strict=True):
            self.columns[draw][name] = float(value)


@dataclass(frozen=True, eq=False)
class Attacker:
    """An analyst in league with the colluder, turned on the target of one deployment."""

    deployment: Deployment = field(repr=False)
    evaluator: ImageEvaluator = field(repr=False)
    unaudited: frozenset[str] = frozenset()
    """Attacks whose reconstructions no auditor is shown, where an auditor is slow and the paper shows none
    either."""
    found_before: dict[int, Reconstruction | None] = field(default_factory=dict, repr=False)
    """What the moments attack found on the same target, colluder and anchor noise with fewer participants: it looks
    at nobody else's upload, so that it would find the same again."""

    @property
    def labelled_places(self) -> npt.NDArray[np.int64]:
        """Where the target's rows stand whose labels the analyst sees."""
        return self.deployment.places(TARGET, LABELLED)

    def on_known_map(self, method: str, queries: Array, levels: Levels) -> Findings:
        """Attack uploads of shape (D, q, h) whose map is known: C-GDP's from the colluder, AA-I-GDP's from the anchor.

        On strong draws the rebuilt rows are also drawn towards what the population makes likely.
        """
        findings, scales = Findings(len(levels), self.evaluator), levels.data
        attack = "known-secret" if METHODS[method].transform == "common" else "known-anchor"
        B = None if attack == "known-secret" else self.deployment.anchor_uploads()[TARGET]
        view = self._view(method, self.deployment.query_places)

        def seen(k: int) -> CollusionView:
            return view.with_target_upload(Upload(queries[k], B), data_noise_scale=float(scales[k]))

        reconstruction = self._run(attack, seen(0), self.deployment.streams.named("attack"))
        if reconstruction is None:
            return findings
        known = reconstruction.rigid_map
        findings.add(attack, known.invert(queries), np.arange(len(scales)))
        for k in np.flatnonzero(levels.strong & (scales > 0)).tolist():
            findings.add_denoised(attack, reconstruct(seen(k), known), seen(k), draw=k)
        return findings

    def on_noisy_anchor(
        self,
        method: str,
        aligned: AlignedDraws,
        queries: Array,
        levels: Levels,
        uploaded_rows: Callable[[int], Array],
        draws: Sequence[int],
    ) -> Findings:
        """Attack uploads with anchor noise: queries of shape (q, h), or (D, q, h) where they carry noise of their own.

        Queries with noise of their own are only measured by what figures show. An attack that fails in a draw leaves out its
        columns for that draw.
        `uploaded_rows` returns the target's uploaded rows of a draw whose labels are known.
        """
        import torch

        unaudited = self.unaudited if queries.ndim == 2 else self.unaudited | NOT_SHOWN
        findings = Findings(len(levels), self.evaluator, unaudited=unaudited)

        def seen(view: CollusionView, rows: Array, k: int) -> CollusionView:
            return view.with_target_upload(
                Upload(rows, aligned.target_anchor[k]),
                anchor_noise_scale=float(levels.anchor[k]),
                data_noise_scale=float(levels.data[k]),
                alignment=aligned.alignments[k],
                anchor_mean=aligned.origins[k, TARGET],
            )

        of_queries = self._view(method, self.deployment.query_places)
        on_queries = [seen(of_queries, queries if queries.ndim == 2 else queries[k], k) for k in range(len(levels))]
        rng = self.deployment.streams.named("attack")
        for attack in CLOSED_FORM:
            attempts = run_attack_batch(attack, on_queries, rng=rng)
            rebuilt = {
                k: attempt.reconstruction.rows
                for k, attempt in enumerate(attempts)
                if attempt.reconstruction is not None
            }
            if rebuilt:
                findings.add(attack, torch.stack(list(rebuilt.values())), np.array(list(rebuilt)))
        chosen = [int(k) for k in np.flatnonzero(levels.strong)]
        of_labelled = self._view(method, self.labelled_places)
        views = [seen(of_labelled, uploaded_rows(k), k) for k in chosen]
        if queries.ndim == 2:  # all draws share the target's rows, and its moments
            new = [(draws[k], view) for k, view in zip(chosen, views, strict=True) if draws[k] not in self.found_before]
            if new:
                attempts = run_attack_batch("moments", [view for _, view in new], rng=rng)
                for (draw, _), attempt in zip(new, attempts, strict=True):
                    self.found_before[draw] = attempt.reconstruction
            by_moments = [self.found_before[draws[k]] for k in chosen]
        else:
            by_moments = [self._run("moments", view, rng) for view in views]
        for k, view, by_moment in zip(chosen, views, by_moments, strict=True):
            self._on_queries(findings, "procrustes", self._run("procrustes", view, rng), on_queries[k], draw=k)
            self._on_queries(findings, "moments", by_moment, on_queries[k], draw=k)
        return findings

    def without_anchor(self) -> Findings:
        """Attack I-GDP, to which the paper assigns no leakage: nothing but the moments of what was uploaded."""
        Y, findings = self.deployment.uploaded(), Findings(1, self.evaluator)
        view, seen = (
            self._view("i-gdp", places).with_target_upload(Upload(Y[places], None))
            for places in (self.labelled_places, self.deployment.query_places)
        )
        if _WITHOUT_ANCHOR not in self.found_before:
            rng = self.deployment.streams.named("attack")
            self.found_before[_WITHOUT_ANCHOR] = self._run("moments", view, rng)
        self._on_queries(findings, "moments", self.found_before[_WITHOUT_ANCHOR], seen, draw=0)
        return findings

    def _on_queries(
        self, findings: Findings, attack: str, reconstruction: Reconstruction | None, seen: CollusionView, *, draw: int
    ) -> None:
        """Undo a map that was estimated from labelled rows on the queries, and denoise them."""
        if reconstruction is None:
            return
        on_queries = reconstruct(
            seen, reconstruction.rigid_map, row_error=reconstruction.row_error, population=reconstruction.population
        )
        if f"error:{attack}" not in findings.columns[draw]:
            findings.add(attack, on_queries.rows[None], np.array([draw]))
        findings.add_denoised(attack, on_queries, seen, draw=draw)

    @staticmethod
    def _run(attack: str, view: CollusionView, rng: np.random.Generator) -> Reconstruction | None:
        """What an attack finds in one draw, not denoised; None where it does not apply, or fails."""
        return run_attack(attack, view, rng=rng).reconstruction

    def _view(self, method: str, places: npt.NDArray[np.int64]) -> CollusionView:
        """What the audit shows an attacker before noise, if the target has the rows in these places.

        The view holds only colluder and target, since these attacks look at nobody else's upload. Noise and alignment are
        added draw by draw. The colluder's own upload is left as it is, since its rows and map are known anyway.
        """
        deployment, chosen = self.deployment, METHODS[method]
        of_colluder = deployment.places(COLLUDER, SPLITS)
        maps = [deployment.map_of(COLLUDER if chosen.transform == "common" else i) for i in (COLLUDER, TARGET)]
        quiet = "c-gdp" if chosen.transform == "common" else "aa-i-gdp" if chosen.uses_anchor else "i-gdp"
        simulation = simulate(
            [deployment.rows[of_colluder], deployment.rows[places]],
            [deployment.labels[of_colluder], deployment.labels[places]],
            method=quiet,
            rng=deployment.streams,
            settings=SimulationSettings(
                anchor=deployment.anchor,
                secrets=[(m, UploadNoise()) for m in maps],
                public_rows=deployment.public_rows,
            ),
        )
        return replace(simulation.view(colluders=[COLLUDER], target=TARGET), method=chosen)
