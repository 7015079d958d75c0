"""An image study from noise levels to rows of results: controls, private-data noise, anchor noise, both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from mooring.attacks import Reconstruction
from mooring.mechanisms import ArrayNoise, add_noise
from mooring.typing import Array, Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.images.deployment import Levels, PreparedDeployment, strong_draws
from mooring_studies.images.execution import pieces_that_fit
from mooring_studies.images.leakage import Attacker
from mooring_studies.images.representations import AlignedDraws, aligned_draws, aligned_rows, coupled_draws, data_noise
from mooring_studies.images.row_writer import Draws, Parts, RowWriter
from mooring_studies.images.utility import scored, trained, without_protection
from mooring_studies.networks import Schedule
from mooring_studies.settings.spec import Spec, noise_draws
from mooring_studies.tabular.sum_line import sum_jobs

_BYTES_OF_ANCHORS = {"cpu": 2**30, "cuda": 12 * 2**30}
_BYTES_OF_ROWS = {"cpu": 2**29, "cuda": 16 * 2**30}
_MOST_ALONE = 10
_NO_NOISE = Levels(np.zeros(1), np.zeros(1), np.ones(1, dtype=bool))
_MOST_AT_ONCE = 100  # draws: what is lost when a run is ended
_OTHER_NOISE = 10**6  # added to a draw's number where both noises are drawn: other noise than that of one alone


class ImageStudy:
    """One deployment of an image study with one number of participants.

    With `reference_control`, as for MNIST, noiseless AA-I-GDP is aligned to the reference and private-data noise is drawn
    for both methods; for CelebA the paper's solver runs at v = 0, and private-data noise is drawn for C-GDP alone.
    `alignments` are those of the same participants, anchor and noise with other rows, to be used again.
    """

    def __init__(
        self,
        spec: Spec,
        prepared: PreparedDeployment,
        writer: RowWriter,
        *,
        reference_control: bool,
        alignments: dict[Any, AlignedDraws] | None = None,
        unaudited: frozenset[str] = frozenset(),
        found_before: dict[int, Reconstruction | None] | None = None,
    ) -> None:
        self.spec, self.prepared, self._kept = spec, prepared, writer
        self.deployment = prepared.deployment
        self.reference_control = reference_control
        self.seconds: dict[str, float] = {}
        self._alignments = alignments
        self.attacker = Attacker(
            prepared.deployment,
            prepared.evaluator,
            unaudited=unaudited,
            found_before={} if found_before is None else found_before,
        )

    def run(self, *, after_each: Callable[[], None] = lambda: None) -> None:
        """Run whatever is not in the store yet, and note how long each part took, waiting for the auditor apart."""
        parts: list[tuple[str, Callable[[], None]]] = [
            ("controls", self.controls),
            ("controls", self.without_anchor),
            ("pooled raw", self.pooled),
            ("alone", self.alone),
        ]
        if self.spec.sums.epsilons and self.prepared.sum_rows is not None:
            parts.append(("secure sums", self.secure_sums))
        if self.spec.noise.data:
            parts.append(("private-data noise", self.private_data_noise))
        if self.spec.noise.anchor:
            parts.append(("anchor noise", self.anchor_noise))
        if self.spec.noise.both:
            parts.append(("both noises", self.both_noises))
        with self._kept.background:
            for name, part in [*parts, ("", self._kept.background.wait)]:
                began = time.perf_counter() - self._kept.background.waited
                try:
                    part()
                finally:
                    spent = time.perf_counter() - self._kept.background.waited - began
                    if name:
                        self.seconds[name] = self.seconds.get(name, 0.0) + spent
                    self.seconds["waiting for the auditor"] = self._kept.background.waited
                    after_each()

    def controls(self) -> None:
        """Without noise: C-GDP and AA-I-GDP."""
        import torch

        methods = ("c-gdp", "aa-i-gdp")
        if not self._kept.begin("without noise", methods, 1).size:
            return
        coupled = coupled_draws(self.deployment, _NO_NOISE.data, [0])
        anchored, more = coupled.anchored, {"discrepancy": float(coupled.discrepancy[0])}
        if not self.reference_control:
            aligned = self._aligned(_NO_NOISE.anchor, [0])
            anchored = aligned_rows(self.deployment, self.deployment.uploaded(), aligned)
            more = aligned.diagnostics[0]
        rows = torch.cat([coupled.common, anchored])
        utilities = scored(self._trained(rows), rows, None, self.deployment)
        findings = [
            self.attacker.on_known_map(method, queries, _NO_NOISE)
            for method, queries in zip(methods, (coupled.target_common, coupled.target_anchored), strict=True)
        ]
        shares, mores = [[utility] for utility in utilities], list[list[Row]]([[{}], [more]])
        self._kept.later(
            np.zeros(1, dtype=np.intp), _NO_NOISE, list(zip(methods, findings, shares, mores, strict=True))
        )

    def without_anchor(self) -> None:
        """I-GDP: neither noise nor anchor."""
        method = "i-gdp"
        if not self._kept.begin("without an anchor", (method,), 1).size:
            return
        rows = self.deployment.uploaded().float()[None]
        utilities = scored(self._trained(rows), rows, None, self.deployment)
        parts: Parts = [(method, self.attacker.without_anchor(), utilities, [{}])]
        self._kept.later(np.zeros(1, dtype=np.intp), _NO_NOISE, parts)

    def pooled(self) -> None:
        """Everybody's rows pooled raw: what could be had with no protection at all."""
        if self._kept.begin("pooled raw", ("pooled-raw",), 1).size:
            self._without_protection("pooled-raw", {0: range(self.deployment.n_participants)})

    def alone(self) -> None:
        """A participant's own model, of ten of them at most: what each has without joining."""
        n_alone = min(_MOST_ALONE, self.deployment.n_participants)
        left = self._kept.begin("training alone", ("local-only",), n_alone)
        if left.size:
            self._without_protection("local-only", {int(participant): [int(participant)] for participant in left})

    def secure_sums(self) -> None:
        """One model from everybody's sums, at each ε, and training alone on the same features."""
        assert self.prepared.sum_rows is not None
        line, streams = self.spec.sums, self.deployment.streams
        jobs = sum_jobs(cache(self.prepared.sum_rows), line, streams, seed=self.spec.seed)
        for method in dict.fromkeys(named["method"] for named, _ in jobs):
            of_method = [job for job in jobs if job[0]["method"] == method]
            for draw in self._kept.begin("secure sums", (method,), len(of_method)):
                named, measure = of_method[draw]
                self._kept.now([{**self._kept.identity, **named, **measure()}])

    def private_data_noise(self) -> None:
        """C-GDP with noise on the rows, and AA-I-GDP with the same noise, coupled, where that is studied."""
        import torch

        methods = ("c-gdp-data-noise", "aa-i-gdp-data-noise")[: 2 if self.reference_control else 1]
        levels = self._levels("data")
        bytes_each = 4 * len(methods) * self.deployment.rows.numel()

        def computed(chunk: Draws) -> Parts:
            coupled = coupled_draws(self.deployment, levels.data[chunk], chunk.tolist())
            sides = [
                (coupled.common, coupled.common_clean, coupled.target_common),
                (coupled.anchored, coupled.anchored_clean, coupled.target_anchored),
            ][: len(methods)]
            rows = torch.cat([side[0] for side in sides])
            clean = torch.cat([side[1].expand(len(chunk), -1, -1) for side in sides])
            utilities = scored(self._trained(rows), rows, clean, self.deployment)
            measured = [
                self.attacker.on_known_map(method, side[2], levels[chunk])
                for method, side in zip(methods, sides, strict=True)
            ]
            shares = [utilities[: len(chunk)], utilities[len(chunk) :]][: len(methods)]
            gaps: list[Row] = [{"discrepancy": float(distance)} for distance in coupled.discrepancy]
            more = [[Row()] * len(chunk), gaps][: len(methods)]
            return list(zip(methods, measured, shares, more, strict=True))

        self._in_chunks(computed, self._kept.begin("private-data noise", methods, len(levels)), levels, bytes_each)

    def anchor_noise(self) -> None:
        """AA-I-GDP with anchor noise."""
        method, levels, uploaded = "aa-i-gdp-anchor-noise", self._levels("anchor"), self.deployment.uploaded()
        target_rows = uploaded[self.attacker.labelled_places]

        def computed(chunk: Draws) -> Parts:
            aligned = self._aligned(levels.anchor[chunk], chunk.tolist())
            rows = aligned_rows(self.deployment, uploaded, aligned)
            utilities = scored(self._trained(rows), rows, None, self.deployment)
            queries = uploaded[self.deployment.query_places]
            findings = self.attacker.on_noisy_anchor(
                method, aligned, queries, levels[chunk], lambda _: target_rows, chunk.tolist()
            )
            return [(method, findings, utilities, list(aligned.diagnostics))]

        left = self._kept.begin("anchor noise", (method,), len(levels))
        self._in_chunks(computed, left, levels, self._bytes_of_anchors())

    def both_noises(self) -> None:
        """AA-I-GDP with noise on anchors and on rows."""
        import torch

        method, levels, uploaded = "aa-i-gdp-both-noise", self._levels("both"), self.deployment.uploaded()
        labelled = self.attacker.labelled_places

        def computed(chunk: Draws) -> Parts:
            aligned = self._aligned(levels.anchor[chunk], [int(draw) + _OTHER_NOISE for draw in chunk])
            clean = aligned_rows(self.deployment, uploaded, aligned)
            rows, queries, target_rows = torch.empty_like(clean), [], []
            for k, draw in enumerate(chunk):
                noise = data_noise(self.deployment, int(draw) + _OTHER_NOISE)
                noisy = add_noise(uploaded, float(levels.data[draw]), ArrayNoise(noise))
                rows[k] = aligned_rows(self.deployment, noisy, aligned.only(k))[0]
                queries.append(noisy[self.deployment.query_places])
                target_rows.append(noisy[labelled])
            utilities = scored(self._trained(rows), rows, clean, self.deployment)
            findings = self.attacker.on_noisy_anchor(
                method, aligned, torch.stack(queries), levels[chunk], target_rows.__getitem__, chunk.tolist()
            )
            return [(method, findings, utilities, list(aligned.diagnostics))]

        left = self._kept.begin("both noises", (method,), len(levels))
        self._in_chunks(computed, left, levels, self._bytes_of_anchors())

    def _levels(self, kind: Any) -> Levels:
        v, sigma = noise_draws(self.spec, kind, self.deployment.streams, self.prepared.rms)
        # With noise on the rows every draw is an attack of its own, and none of a batch: half as many.
        every = self.spec.attacks.every * (2 if kind == "both" else 1)
        return Levels(v, sigma, strong_draws(sigma if kind == "data" else v, every))

    def _trained(self, rows: Array) -> Any:
        return trained(rows, self.deployment, architecture=self.prepared.architecture, schedule=self._schedule)

    @property
    def _schedule(self) -> Schedule:
        network = self.spec.network
        return Schedule(network.epochs, network.batch_size, network.learning_rate)

    def _without_protection(self, method: str, groups: Mapping[int, Sequence[int]]) -> None:
        utilities = without_protection(
            self.deployment, list(groups.values()), architecture=self.prepared.architecture, schedule=self._schedule
        )
        rows = [self._kept.row(method, draw, 0.0, 0.0, strong=False) for draw in groups]
        self._kept.now([row | utility for row, utility in zip(rows, utilities, strict=True)])

    def _aligned(self, scales: Matrix, draws: list[int]) -> AlignedDraws:
        solver = self.spec.solver
        solved = partial(
            aligned_draws,
            self.deployment,
            scales,
            draws,
            solver=solver.name,
            max_iterations=solver.max_iterations,
            tolerance=solver.tolerance,
        )
        if self._alignments is None:
            return solved()
        key = (self._kept.identity["deployment"], self.deployment.n_participants, tuple(draws), tuple(scales))
        if key not in self._alignments:
            self._alignments[key] = solved()
        return self._alignments[key]

    def _in_chunks(self, computed: Callable[[Draws], Parts], left: Draws, levels: Levels, bytes_each: int) -> None:
        """Compute and keep as many draws at a time as memory holds well."""
        at_once = min(_MOST_AT_ONCE, max(1, _BYTES_OF_ROWS[self.deployment.device.type] // bytes_each))
        for chunk, parts in pieces_that_fit(computed, left, at_once, make_room=self._make_room):
            self._kept.later(chunk, levels, parts)
            del parts
            if not self.prepared.evaluator.works_beside:
                # The next chunk's alignments are timed, and the auditor would share their device.
                self._kept.background.wait()

    def _make_room(self) -> None:
        """Let go of what takes memory and can be had again: alignments, and what the auditor still looks at."""
        self._kept.background.wait()
        if self._alignments is not None:
            self._alignments.clear()

    def _bytes_of_anchors(self) -> int:
        """What a draw's anchors and rows take, in terms of the limit for rows."""
        kind = self.deployment.device.type
        anchors = 8 * self.deployment.n_participants * self.deployment.anchor.numel()
        return int(max(anchors * _BYTES_OF_ROWS[kind] // _BYTES_OF_ANCHORS[kind], 4 * self.deployment.rows.numel()))
