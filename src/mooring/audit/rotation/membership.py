"""Membership inference and record search by likelihood, prepared once for all attacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import CollusionView, DoesNotApply, Reconstruction
from mooring.attacks.denoising.gaussian import fit_population
from mooring.attacks.matching import match_candidates
from mooring.audit.results.point_result import AttackOutcome
from mooring.audit.rotation.simulation import RowSimulation
from mooring.audit.specification import EvaluationSpec
from mooring.geometry.backend import like, to_numpy
from mooring.metrics import EpsilonAudit, Figure, Interval, Membership, bound_epsilon, wilson
from mooring.metrics.likelihood import Densities, RebuiltRows, name_holders
from mooring.metrics.membership import gaussian_epsilon
from mooring.tables import Partition
from mooring.typing import Array, Matrix

Codes = npt.NDArray[np.intp]
_MOST_OTHERS = 5000
_MOST_NUMBERS = 100_000
_OUTLYING_SHARE = 0.1
_REGISTER = 1000
_SURE = 0.95
_DELTA = 1e-5
_EXACT = 1e-6  # error of rows that are rebuilt exactly, relative to their spread


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows with their classes, after projection."""

    rows: Matrix
    codes: Codes

    def __getitem__(self, chosen: Any) -> Candidates:
        return Candidates(self.rows[chosen], self.codes[chosen])

    def __add__(self, more: Candidates) -> Candidates:
        return Candidates(np.concatenate([self.rows, more.rows]), np.concatenate([self.codes, more.codes]))


@dataclass(frozen=True, eq=False)
class MembershipTest:
    """Tests of membership and of identity on the targets' rows and on rows that nobody uploaded."""

    views: tuple[CollusionView, ...]
    """The views, one per target."""
    members: tuple[Candidates, ...]
    """The rows of each target."""
    others: tuple[Candidates, ...]
    """For each target, non-members of the target's classes; no non-member is used for two targets."""
    register: Candidates
    """Further candidates: rows of all participants who neither collude nor are targets, and non-members."""
    outlying: npt.NDArray[np.bool_]
    """Marks the tenth of all members that lies farthest from the mean of its class."""
    seed: int

    def measure(
        self,
        outcome: AttackOutcome,
        reconstructions: Sequence[Reconstruction],
        evidence: Sequence[Matrix] | None = None,
        *,
        matched: bool = False,
    ) -> AttackOutcome:
        """Return an attack's outcome with figures on membership and identity, from one reconstruction per target.

        Reconstructions are those before denoising. `evidence` holds log densities of the rebuilt rows under a population
        model other than one Gaussian per class; the control still uses the Gaussians. With `matched`, candidates are matched
        to rows one to one, as an attacker with a register of all candidates can do. With `evidence` or `matched`, only
        membership is measured. If nothing is known about the population, the outcome is returned unchanged.
        """
        try:
            attacks = [
                _LikelihoodAttack.of(self.views[k], reconstruction, seed=self.seed + k)
                for k, reconstruction in enumerate(reconstructions)
            ]
        except DoesNotApply:  # without knowledge of the population there is no likelihood
            return outcome
        if evidence is not None:
            pairs = zip(attacks, evidence, strict=True)
            attacks = [replace(attack, upload=replace(attack.upload, surplus=-density)) for attack, density in pairs]
        membership, without = self._scores(attacks, _match if matched else RebuiltRows.score_members)
        figures = membership.figures(without) | membership.outlying_figures(self.outlying, without)
        bound, control = (
            None if scores is None else bound_epsilon(scores.members, scores.others, delta=_DELTA).epsilon
            for scores in (membership, without)
        )
        figures["empirical_epsilon"] = Figure(
            "empirical_epsilon", bound or 0.0, Interval.unknown(), 0.0, control, None, membership.members.size, True
        )
        figures |= {} if matched or evidence is not None else self._search(attacks) | self._holders(attacks)
        return replace(outcome, figures={**outcome.figures, **figures}, curve=membership.curve())

    def _scores(
        self, attacks: Sequence[_LikelihoodAttack], score: Callable[[RebuiltRows, Matrix, Codes], Matrix]
    ) -> tuple[Membership, Membership | None]:
        """Return the scores of members and non-members; as a control, or None, their scores from an upload of other rows."""
        scores: list[list[Matrix]] = [[], [], [], []]
        for k, attack in enumerate(attacks):
            asked, n = self.members[k] + self.others[k], self.members[k].codes.size
            codes = attack.recode(asked.codes)
            for place, upload in enumerate((attack.upload, attack.control)):
                if upload is not None:
                    every = score(upload, asked.rows, codes)
                    scores[2 * place].append(every[:n])
                    scores[2 * place + 1].append(every[n:])
        membership = Membership(np.concatenate(scores[0]), np.concatenate(scores[1]))
        if not scores[2]:
            return membership, None
        missed = min(float(part[np.isfinite(part)].min(initial=0.0)) for part in scores[2] + scores[3])
        control = [np.nan_to_num(np.concatenate(part), neginf=missed) for part in scores[2:]]
        return membership, Membership(control[0], control[1])

    def _search(self, attacks: Sequence[_LikelihoodAttack]) -> dict[str, Figure]:
        """Return figures for finding rebuilt rows in a register, and for assigning them to a list of the target's own rows.

        The figure of such a list is called "roster". The control shifts rows within their class.
        """
        matches, shifted, foreign, right, wrong = [], [], [], [], []
        for members, attack in zip(self.members, attacks, strict=True):
            register, places, others = (
                members + self.register,
                np.arange(members.codes.size),
                _shift(attack.upload.codes),
            )
            codes = attack.recode(register.codes)
            matches.append(attack.upload.search_register(register.rows, codes, places))
            shifted.append(attack.upload.search_register(register.rows, codes, others))
            if attack.control is not None:
                nowhere = np.full(attack.control.codes.size, -1)
                foreign.append(attack.control.search_register(register.rows, codes, nowhere).posterior > _SURE)
            rows, chosen = attack.upload.assign_roster(members.rows)
            right.append(chosen == rows)
            wrong.append(chosen == others[rows])
        figures = {}
        sizes = 1 + np.concatenate([match.n_others for match in matches])
        for name, size in (("register_class", None), ("register_1000", _REGISTER)):
            hits, false = (np.concatenate([match.first_ranks(size) for match in side]) for side in (matches, shifted))
            enough = sizes >= (size or 0)
            if enough.any():
                chance = float((1 / np.minimum(sizes, size or np.inf))[enough].mean())
                figures[name] = _share(name, hits[enough], chance, float(false[enough].mean()))
        sure = np.concatenate([match.posterior > _SURE for match in matches])
        named = np.concatenate([match.is_right for match in matches])
        claimed = float(np.concatenate(foreign).mean()) if foreign else None
        figures["claims"] = _share("claims", sure & named, 0.0, claimed)
        if sure.any():
            figures["claims_right"] = _share("claims_right", named[sure], float((1 / sizes).mean()), 0.0)
        n_classes = sum(np.unique(attack.upload.codes).size for attack in attacks)
        roster, missed = np.concatenate(right), np.concatenate(wrong)
        return figures | {"roster": _share("roster", roster, n_classes / roster.size, float(missed.mean()))}

    def _holders(self, attacks: Sequence[_LikelihoodAttack]) -> dict[str, Figure]:
        """Return how often an attacker names a record's true holder; the control is for records that nobody holds.

        The result is empty unless the uploads of two or more honest participants have a common space.
        """
        hits: list[npt.NDArray[np.bool_]] = []
        false: list[npt.NDArray[np.bool_]] = []
        shares = []
        for k, attack in enumerate(attacks):
            uploads, place, share = attack.all_uploads(self.views[k])
            if len(uploads) < 2:
                return {}
            for asked, named in ((self.members[k], hits), (self.others[k], false)):
                named.append(name_holders(uploads, asked.rows, attack.recode(asked.codes)) == place)
            shares.append(share)
        chance = float(np.mean(shares))
        return {"holder": _share("holder", np.concatenate(hits), chance, float(np.concatenate(false).mean()))}


def audit_row_noise(simulation: RowSimulation) -> EpsilonAudit | None:
    """Return the ε that is measured from the noise on rows after the maps are undone, with the ε of ideal noise.

    Both say how well two rows that differ by σ in one number can be distinguished. To measure this, σ is added to half of
    the noise's numbers, and these are compared with the other half. The result is None without private-data noise.
    """
    scale = simulation.data_noise_scale
    if scale == 0:
        return None
    parts = zip(simulation.secrets, simulation.uploads, simulation.private_data, strict=True)
    undone = [to_numpy(secret.invert(upload.representation) - rows) for secret, upload, rows in parts]
    drawn = np.concatenate([noise.ravel() for noise in undone])[:_MOST_NUMBERS] / scale
    claimed = gaussian_epsilon(1.0, _DELTA)
    return EpsilonAudit(claimed, claimed, bound_epsilon(drawn[::2] + 1, drawn[1::2], delta=_DELTA))


@dataclass(frozen=True, eq=False)
class _LikelihoodAttack:
    """One attack on one target, prepared for likelihood tests."""

    reconstruction: Reconstruction
    by_class: bool
    error: Matrix
    densities: Densities
    upload: RebuiltRows
    """The rebuilt rows of the target."""
    control: RebuiltRows | None
    """The colluders' rows with the same error, as an upload that does not hold the target's rows; None without colluders."""

    @classmethod
    def of(cls, view: CollusionView, reconstruction: Reconstruction, *, seed: int) -> _LikelihoodAttack:
        rows = to_numpy(reconstruction.rows)
        codes, population = fit_population(reconstruction, view)
        by_class = np.array_equal(codes, view.codes_of([view.target]))
        left = view.data_noise_scale if reconstruction.data_noise_scale is None else reconstruction.data_noise_scale
        error = np.eye(rows.shape[1]) * (left**2 + _EXACT**2 * float(rows.var(axis=0).mean()))
        error += 0.0 if reconstruction.row_error is None else to_numpy(reconstruction.row_error)
        densities = Densities(to_numpy(population.means), to_numpy(population.covariances) + error)
        upload = RebuiltRows.of(rows, codes, error=error, densities=densities)
        attack = cls(reconstruction, by_class, error, densities, upload, None)
        if not view.colluders:
            return attack
        known = np.concatenate([to_numpy(colluder.rows) for colluder in view.colluders])
        noise = np.random.default_rng([seed, 15]).standard_normal(known.shape) @ np.linalg.cholesky(error).T
        colluder_codes = view.codes_of([colluder.index for colluder in view.colluders])
        return replace(attack, control=attack._prepare(known + noise, colluder_codes))

    def _prepare(self, rows: Matrix, codes: Codes) -> RebuiltRows:
        """Return another upload with the same error, without rows of classes that the population model lacks."""
        codes = self.recode(codes)
        known = codes < len(self.densities.means)
        return RebuiltRows.of(rows[known], codes[known], error=self.error, densities=self.densities)

    def recode(self, codes: Codes) -> Codes:
        """Return the class codes, or zeros if the attack learnt the population without classes."""
        return codes if self.by_class else np.zeros_like(codes)

    def all_uploads(self, view: CollusionView) -> tuple[list[RebuiltRows], int, float]:
        """Return the uploads of participants that do not collude, the target's index, and the target's share of their rows.

        The rows of each upload are rebuilt in the same way as the target's. The list is empty if uploads have no common
        space.
        """
        if view.alignment is None and view.method.transform != "common":
            return [], 0, 0.0
        colluding = {colluder.index for colluder in view.colluders}
        others = [i for i in range(len(view.uploads)) if i not in colluding]
        uploads = []
        for i in others:
            if i == view.target:
                uploads.append(self.upload)
                continue
            rows: Array = view.uploads[i].representation
            if view.alignment is not None:
                rows = view.alignment.maps[view.target].invert(view.alignment.maps[i].apply(rows))
            uploads.append(self._prepare(to_numpy(self.reconstruction.rigid_map.invert(rows)), view.codes_of([i])))
        counts = [upload.codes.size for upload in uploads]
        place = others.index(view.target)
        return uploads, place, counts[place] / sum(counts)


def _match(upload: RebuiltRows, candidates: Matrix, codes: Codes) -> Matrix:
    """Return the log odds that each candidate is one of the rebuilt rows; −∞ for classes without rebuilt rows."""
    scores = np.full(len(candidates), -np.inf)
    for places, log_ratios in upload.compare(candidates, codes):
        scores[places] = match_candidates(log_ratios)
    return scores


def _shift(codes: Codes) -> npt.NDArray[np.int64]:
    """Return, for each row, the index of the previous row of its class; for the first row of a class, that of the last."""
    order = np.argsort(codes, kind="stable")
    following = np.empty(codes.size, dtype=np.int64)
    for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        following[part] = np.roll(part, 1)
    return following


def _share(name: str, hits: npt.NDArray[Any], chance: float, control: float | None) -> Figure:
    """Return the figure of how often an attacker is right, with Wilson's interval."""
    return Figure(
        name, float(hits.mean()), wilson(float(hits.sum()), hits.size), chance, control, None, hits.size, True
    )


def make_membership_test(
    simulation: RowSimulation, views: Sequence[CollusionView], partition: Partition, spec: EvaluationSpec, *, seed: int
) -> MembershipTest | None:
    """Return the membership test of the targets' rows; None if a target has fewer than two rows or non-members.

    `views` has one view per target. The non-members are the partition's test rows, except those of colluders, and the rows
    in `spec.others`.
    """
    colluders = [colluder.index for colluder in views[0].colluders]
    honest = [i for i in range(partition.n_participants) if i not in colluders]
    rows = [partition.test[i] for i in honest]
    labels: list[npt.NDArray[Any] | None] = [
        None if partition.test_labels is None else partition.test_labels[i] for i in honest
    ]
    if spec.others is not None:
        rows, labels = [*rows, spec.others[0]], [*labels, spec.others[1]]
    outside = np.concatenate(rows)
    known = [part for part in labels if part is not None]
    members = tuple(Candidates(to_numpy(simulation.private_data[v.target]), v.codes_of([v.target])) for v in views)
    encoded = to_numpy(simulation.projection.encode(like(outside, simulation.projection.matrix)))
    known_labels = np.concatenate(known) if len(known) == len(labels) else None
    codes = _codes_like(partition, views[0], known_labels, len(outside))
    order = np.random.default_rng([seed, 16]).permutation(len(outside))[:_MOST_OTHERS]
    free = Candidates(encoded[order], codes[order])
    others = tuple(
        free[k :: len(views)][np.isin(free.codes[k :: len(views)], candidates.codes)]
        for k, candidates in enumerate(members)
    )
    if min(candidates.codes.size for candidates in (*members, *others)) < 2:
        return None
    targets = [view.target for view in views]
    more = [
        Candidates(to_numpy(simulation.private_data[i]), views[0].codes_of([i])) for i in honest if i not in targets
    ]
    register = sum(more, free)
    return MembershipTest(tuple(views), members, others, register, _find_outlying(members, others), seed)


def _codes_like(partition: Partition, view: CollusionView, labels: npt.NDArray[Any] | None, n_rows: int) -> Codes:
    """Return classes of rows that nobody uploaded, in the view's coding: −1 if unknown, and 0 throughout without labels."""
    codes = view.class_codes()
    if labels is None or partition.train_labels is None or any(part is None for part in codes):
        return np.zeros(n_rows, dtype=np.intp)
    known, first = np.unique(np.concatenate(partition.train_labels), return_index=True)
    place = np.minimum(np.searchsorted(known, labels), known.size - 1)
    mapped = np.concatenate([part for part in codes if part is not None])[first][place]
    is_number = np.issubdtype(known.dtype, np.floating)  # numbers are grouped; use the group of the next known number
    return np.asarray(np.where(is_number | (known[place] == labels), mapped, -1), dtype=np.intp)


def _find_outlying(members: Sequence[Candidates], others: Sequence[Candidates]) -> npt.NDArray[np.bool_]:
    """Return which members are in the tenth with the largest Mahalanobis distance from their class mean."""
    everything = sum((*members[1:], *others), members[0])
    centred, n_members = everything.rows.copy(), sum(candidates.codes.size for candidates in members)
    for k in np.unique(everything.codes):
        centred[everything.codes == k] -= centred[everything.codes == k].mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = values > _EXACT * values[-1]
    far = ((centred[:n_members] @ axes[:, kept]) ** 2 / values[kept]).sum(axis=1)
    return np.asarray(far >= np.quantile(far, 1 - _OUTLYING_SHARE))
