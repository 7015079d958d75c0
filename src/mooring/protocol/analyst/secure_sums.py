"""The analyst of a study of secure sums: close the list of bundles, open the total, train on it, deliver one model.

Nothing that the analyst holds opens a single contribution. Bundles are sealed to combiners; their answers are shares of the
total of one list. The total carries everybody's noise, and all that follows from it is covered by the guarantee.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mooring.atomic_io import make_folder, read_bounded, write_atomically
from mooring.errors import InputError, MooringError, RefusedError, StorageError
from mooring.learners.coefficients import Coefficient, fit_coefficients
from mooring.learners.sum_export import sums_to_onnx
from mooring.learners.sums import SumModel, Sums, check_sums, fit_discriminant, fit_least_squares
from mooring.mechanisms.secure_sum.feature_map import TableFeatures
from mooring.mechanisms.secure_sum.guarantee import calibrate_sums
from mooring.mechanisms.secure_sum.prime_field import LARGEST, decode_signed
from mooring.mechanisms.secure_sum.secret_sharing import find_wrong, find_wrong_values, recombine
from mooring.protocol.analyst.training import TRAINING_FILE, require_agreement, require_label
from mooring.protocol.crypto.keys import Secret, SigningKey
from mooring.protocol.messages.model import Model
from mooring.protocol.messages.result import MODEL_FILE
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.sums.answers import (
    CONFIRMATION,
    LIST_FILE,
    SHARE,
    SUFFIXES,
    ClosingList,
    CombinedShare,
    Confirmation,
    read_closing_list,
    read_combined_share,
    read_confirmation,
    write_closing_list,
)
from mooring.protocol.messages.sums.bundle import SumBundle, words_of

CLOSING_FILE = "closing.json"
LEARNERS = ("auto", "discriminant", "least-squares")
_ROWS_COMPARED = 2_000


@dataclass(frozen=True)
class Closing:
    """The list that was closed.

    Attributes
    ----------
    participants : tuple of str
        Whose bundles are on it.
    left_out : dict of str
        Of participants whose bundle is not, why.
    doubted : tuple of str
        Combiners whose confirmations contradict the others'.
    confirmed_by : tuple of str
        Combiners who confirmed; without any, bad shares show only when the total is opened.
    digest : str
        SHA-256 of the list.
    """

    participants: tuple[str, ...]
    left_out: dict[str, str]
    doubted: tuple[str, ...]
    confirmed_by: tuple[str, ...]
    digest: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "participants": list(self.participants),
            "left_out": self.left_out,
            "doubted": list(self.doubted),
            "confirmed_by": list(self.confirmed_by),
            "list": self.digest,
        }


def close_list(
    study: Study,
    bundles: Sequence[SumBundle],
    folder: str | Path,
    signing_key: SigningKey,
    *,
    confirmations: str | Path | None = None,
    command: str = "",
) -> Closing:
    """Write the signed list of bundles that make up the total; a study is closed once.

    Parameters
    ----------
    study : Study
    bundles : sequence of SumBundle
        One a participant, verified.
    folder : path
        The analyst's work folder.
    signing_key : SigningKey
        The analyst's.
    confirmations : path, optional
        The folder of the combiners' confirmations: a bundle whose shares do not fit is left out.
    command : str
        For the record.
    """
    folder, scheme = Path(folder), study.sum_scheme
    require_analyst(study, signing_key)
    make_folder(folder, mode=0o700, what="the work folder")
    given = [] if confirmations is None else _read_all(confirmations, CONFIRMATION, study, read_confirmation)
    left_out, doubted = _check_confirmations(study, bundles, given)
    kept = [bundle for bundle in bundles if bundle.member.name not in left_out]
    if len(kept) < scheme.quorum:
        raise InputError(
            "bundles",
            expected=f"those of {scheme.quorum} participants or more, the study's quorum",
            got=f"{len(kept)}" + (f", {len(left_out)} more being left out" if left_out else ""),
            cure="Wait for further bundles: the noise is meant for a quorum, and nothing is opened of fewer.",
        )
    path = folder / LIST_FILE
    digests = {bundle.member.signing_key: bundle.digest for bundle in kept}
    if path.exists() and read_closing_list(path, study).digests != digests:
        raise RefusedError(
            "a second list",
            reason="the study was closed with other bundles, and combiners answer one list only",
            cure=f"Send them {LIST_FILE} again; who came later gets the model and is not in it.",
        )
    digest = write_closing_list(path, study, digests, signing_key)
    names = tuple(bundle.member.name for bundle in kept)
    confirmed_by = tuple(one.member.name for one in given)
    closing = Closing(names, left_out, doubted, confirmed_by, digest)
    record = {"command": command, "study": study.digest, **closing.as_dict()}
    write_atomically(folder / CLOSING_FILE, json.dumps(record, indent=2).encode(), what="the record")
    return closing


def _check_confirmations(
    study: Study, bundles: Sequence[SumBundle], given: Sequence[Confirmation]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Whose bundles do not hold up by the combiners' values, and which combiners contradict the others.

    Where one value does not fit, its combiner or the bundle's sender is at fault. Senders who collude are few: a combiner
    that contradicts more bundles than there may be colluders is at fault itself, and is not heard. Otherwise the bundle is
    left out.
    """
    found: dict[str, list[int] | None] = {}
    heard = list(given)
    for _ in range(2):
        found = {bundle.member.name: _contradicting(study, bundle.digest, heard) for bundle in bundles}
        wrong = Counter(point for points in found.values() for point in points or ())
        doubted = {point for point, count in wrong.items() if count > study.sum_scheme.threshold.n_colluders}
        heard = [one for one in heard if one.combiner not in doubted]
    reason = "its shares do not fit each other, or combiners cannot open them"
    out = {one.member.name for one in given} - {one.member.name for one in heard}
    return {name: reason for name, points in found.items() if points != []}, tuple(sorted(out))


def _contradicting(study: Study, digest: str, given: Sequence[Confirmation]) -> list[int] | None:
    told = {one.combiner: one.values[digest] for one in given if digest in one.values}
    values = {point: value for point, value in told.items() if value is not None}
    wrong = find_wrong_values(values, study.sum_scheme.threshold)
    return None if wrong is None else [*wrong, *(point for point in told if point not in values)]


@dataclass(frozen=True, eq=False)
class Total:
    """The opened total.

    Attributes
    ----------
    sums : Sums
    participants : tuple of str
        Whose rows are in it.
    wrong : tuple of str
        Combiners whose shares do not fit the others', and were left out.
    remarks : tuple of str
        What about the total is not plausible.
    checked : bool
        Whether there were more shares than the threshold: of just as many, a wrong one shifts the total and is not told.
    """

    sums: Sums
    participants: tuple[str, ...]
    wrong: tuple[str, ...]
    remarks: tuple[str, ...]
    checked: bool


def open_total(study: Study, folder: str | Path, shares: str | Path) -> Total:
    """Open the total of the closing list from the combiners' shares.

    Parameters
    ----------
    study : Study
    folder : path
        The analyst's work folder, with the closing list.
    shares : path
        The folder of the combiners' shares.

    Raises
    ------
    InputError
        If there are too few shares of this list.
    RefusedError
        If shares contradict each other and it cannot be told whose are wrong.
    """
    scheme, closed = study.sum_scheme, _read_list(study, Path(folder))
    given: dict[int, CombinedShare] = {}
    for one in _read_all(shares, SHARE, study, read_combined_share):
        if one.list_digest == closed.digest:  # shares of another list are not mixed in
            given[one.combiner] = one
    elements = {point: one.elements for point, one in given.items()}
    wrong: tuple[str, ...] = ()
    if len(elements) > scheme.threshold.threshold:
        found = find_wrong(elements, scheme.threshold, words_of(Secret.draw()))
        if found is None:
            raise RefusedError(
                "the total",
                reason="the combiners' shares contradict each other, and there are too few to tell whose are wrong",
                cure="Ask further combiners for their shares, or all of them whether their vault is whole.",
            )
        wrong = tuple(given[point].member.name for point in found)
        elements = {point: value for point, value in elements.items() if point not in found}
    vector = decode_signed(recombine(elements, scheme.threshold))
    if int(np.abs(vector).max()) > LARGEST // 2:
        raise RefusedError(
            "the total",
            reason="it holds numbers that no sums have: a share is wrong, or a participant shared no sums",
            cure="Ask further combiners for their shares; with more than the threshold, a wrong one is told.",
        )
    S, T = scheme.layout.unpack(vector)
    scales = (0.0, 0.0)
    if scheme.settings.epsilon is not None:
        noise = calibrate_sums(scheme.layout, scheme.privacy)
        scales = noise.scales(scheme.layout, len(closed.digests))
    sums = Sums(S, T, scheme.features.constant_share, scheme.layout.outcome.n_classes, scales)
    names = tuple(one.name for one in study.participants if one.signing_key in closed.digests)
    checked = len(elements) > scheme.threshold.threshold
    return Total(sums, names, wrong, tuple(check_sums(sums)), checked)


@dataclass(frozen=True)
class SumTraining:
    """What was trained on the total.

    Attributes
    ----------
    learner : {"discriminant", "least-squares"}
    kind : {"classes", "number"}
    participants, wrong, remarks, checked
        As of `Total`.
    epsilon, delta : float or None
        None without noise.
    unit : {"row", "person"}
    rows : int
        About how many, read off the noisy total.
    model_digest : str
    coefficients : tuple of Coefficient
        Of least squares, where features are the columns themselves and there are two classes or a number.
    """

    learner: str
    kind: str
    participants: tuple[str, ...]
    wrong: tuple[str, ...]
    remarks: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    unit: str
    rows: int
    model_digest: str
    checked: bool
    coefficients: tuple[Coefficient, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "learner": self.learner,
            "kind": self.kind,
            "contributors": list(self.participants),
            "wrong": list(self.wrong),
            "remarks": list(self.remarks),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "rows": self.rows,
            "checked": self.checked,
            "model_digest": self.model_digest,
            "holds_rows": False,
            "coefficients": [one.as_dict() for one in self.coefficients],
        }


def train_sums(
    study: Study, folder: str | Path, shares: str | Path, *, learner: str = "auto", command: str = ""
) -> SumTraining:
    """Open the total, train on it, and write the model as ONNX.

    There is no score: the analyst has no rows. Participants score the model at home.

    Parameters
    ----------
    study : Study
    folder, shares : path
        As for `open_total`.
    learner : {"auto", "discriminant", "least-squares"}
        "auto" is discriminant analysis for classes and least squares for numbers.
    command : str
        For the record.
    """
    folder, scheme = Path(folder), study.sum_scheme
    kind = require_label(study)
    require_sum_learner(study, learner)
    if learner == "auto":
        learner = "discriminant" if kind == "classes" else "least-squares"
    total = open_total(study, folder, shares)
    fit = fit_discriminant if learner == "discriminant" else fit_least_squares
    model = fit(total.sums, shrink=scheme.settings.features == "columns")
    if kind == "number":
        model = _to_range(model, study.label.low, study.label.high)
    data = sums_to_onnx(model, scheme.features, limits=(study.label.low, study.label.high))
    _require_agreement(study, model, data)
    settings = scheme.settings
    found = SumTraining(
        learner,
        kind,
        total.participants,
        total.wrong,
        total.remarks,
        settings.epsilon,
        None if settings.epsilon is None else settings.delta,
        settings.unit,
        round(total.sums.n_rows),
        hashlib.sha256(data).hexdigest(),
        total.checked,
        _coefficients(study, total),
    )
    record = {"command": command, **found.as_dict(), "study": study.digest, "list": _read_list(study, folder).digest}
    write_atomically(folder / MODEL_FILE, data, what="the model")
    write_atomically(folder / TRAINING_FILE, json.dumps(record, indent=2, allow_nan=False).encode(), what="the record")
    return found


def _coefficients(study: Study, total: Total) -> tuple[Coefficient, ...]:
    features = study.sum_scheme.features
    if not isinstance(features, TableFeatures) or features.n_hats or features.log_scaled or total.sums.n_classes > 2:
        return ()
    spread = study.label.high - study.label.low if study.label.kind == "number" else 1.0
    return fit_coefficients(total.sums, features, spread=spread)


def require_sum_learner(study: Study, learner: str) -> None:
    """Refuse a learner that sums do not train, before any work."""
    if learner not in LEARNERS or (learner == "discriminant" and study.label.kind == "number"):
        raise InputError(
            "learner",
            expected=f"one of {', '.join(LEARNERS)}, the second for classes only",
            got=repr(learner),
            cure="Sums train these; 'auto' chooses.",
        )


def require_analyst(study: Study, signing_key: SigningKey) -> None:
    """Refuse a key that is not the study's analyst's: nobody would take what it signs."""
    study.require_roster()
    if study.analyst is None or signing_key.public != study.analyst.signing_key:
        raise RefusedError(
            "the signature",
            reason="this key is not that of the study's analyst, and others would refuse what it signs",
            cure="Open the vault that the analyst joined with.",
        )


def read_trained_sums(study: Study, folder: Path) -> tuple[bytes, ClosingList]:
    """The model that was trained on the total of the closing list, or an error that says what to run."""
    closed = _read_list(study, folder)
    try:
        record = json.loads((folder / TRAINING_FILE).read_bytes())
        expected = (record["study"], record["list"], record["model_digest"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise StorageError(
            "the record", reason="training.json cannot be read", cure="Run 'mooring train', then deliver."
        ) from None
    data = read_bounded(folder / MODEL_FILE, 2**26, what="the model")
    if expected != (study.digest, closed.digest, hashlib.sha256(data).hexdigest()):
        raise InputError(
            "model",
            expected="one that was trained on the total of this list",
            got="another",
            cure="Run 'mooring train' again, then deliver.",
        )
    return data, closed


def _read_list(study: Study, folder: Path) -> ClosingList:
    path = folder / LIST_FILE
    if not path.exists():
        raise StorageError("the closing list", reason="there is none", cure="Run 'mooring align' first.")
    return read_closing_list(path, study)


def _read_all(folder: str | Path, kind: str, study: Study, read: Any) -> list[Any]:
    """The files of a kind in a folder that hold up, one a combiner; two that differ count for nothing."""
    place = Path(folder)
    if not place.is_dir():
        raise StorageError(f"the folder of {kind}s", reason="there is no such folder", cure="Check its path.")
    found: dict[int, tuple[bytes, Any]] = {}
    twice: set[int] = set()
    for path in sorted(place.glob(f"*{SUFFIXES[kind]}")):
        try:
            one, content = read(path, study), hashlib.sha256(path.read_bytes()).digest()
        except (MooringError, OSError):
            continue
        if found.setdefault(one.combiner, (content, one))[0] != content:
            twice.add(one.combiner)
    return [one for point, (_, one) in sorted(found.items()) if point not in twice]


def _to_range(model: SumModel, low: float, high: float) -> SumModel:
    """A model of numbers in the label's own range instead of −1 to 1."""
    half = (high - low) / 2
    return replace(model, weights=model.weights * half, intercept=model.intercept * half + low + half)


def _require_agreement(study: Study, model: SumModel, data: bytes) -> None:
    """Compare the written model with the fitted one on invented rows: of everybody's there are none."""
    rng = np.random.default_rng(0)
    rows = invent_rows(study, _ROWS_COMPARED, rng)
    features = study.sum_scheme.features
    low, high = study.label.low, study.label.high

    def predict(given: Any) -> Any:
        scores = model.scores(features.apply(given))
        return np.clip(scores[:, 0], low, high) if model.n_classes == 0 else model.predict(features.apply(given))

    kind = require_label(study)
    loaded = Model.load(data, n_components=study.n_features, kind=kind, n_classes=len(study.label.classes))
    require_agreement(predict, loaded, rows, spread=(high - low) or 1.0)


def invent_rows(study: Study, n_rows: int, rng: np.random.Generator) -> Any:
    """Rows that the study's columns allow: uniform in each."""
    parts = []
    for column in study.columns:
        if column.kind == "category":
            part = np.eye(len(column.categories))[rng.integers(len(column.categories), size=n_rows)]
        else:
            part = rng.uniform(-1, 1, size=(n_rows, 1))
        extra = np.zeros((n_rows, column.width - part.shape[1]))
        parts += [part, extra]
    return np.hstack(parts)
