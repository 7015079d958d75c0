"""A study's file written again: with further members in its roster, or with what is made from public rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mooring.atomic_io import write_atomically
from mooring.errors import InputError
from mooring.mechanisms.rotation.projection import public_svd_projection
from mooring.mechanisms.sums.picture_features import PictureFeatures, fit_to_public
from mooring.mechanisms.sums.settings import SECURE_SUM, make_features
from mooring.protocol.messages.card import read_card
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study, read_plain, read_text, render_member
from mooring.tables.encoder import encoded_batches
from mooring.typing import Matrix, Progress

_MOST_PICTURES = 10_000


def enrol_cards(path: Path, cards: Sequence[Path]) -> Study:
    """Check cards, the analyst's among them, and enter them in the roster of a study's file, which is written again."""
    read = [read_card(card) for card in cards]
    study = Study.read(path).with_members([member for role, member in read if role == "participant"])
    for role, member in read:
        if role == "analyst":
            study = study.with_members(analyst=member)
    write_roster(study, path)
    return study


def write_roster(study: Study, path: Path) -> None:
    """Write a study that has further members; the file's own comments and layout are kept where that is possible."""
    text = read_text(path)
    known = Study.from_dict(parse_study(text))
    new = [member for member in study.participants if known.member_with_key(member.signing_key) is None]
    text = text.rstrip("\n") + "\n" + "".join(render_member("[[participants]]", member.as_dict()) for member in new)
    if study.analyst is not None and known.analyst is None:
        text += render_member("[analyst]", study.analyst.as_dict())
    try:
        is_same = Study.from_dict(parse_study(text)) == study
    except InputError:
        is_same = False
    if is_same:
        write_atomically(path, text.encode(), what="the study's file")
    else:
        study.write(path)


def project_study(
    path: str | Path,
    public_rows: str | Path,
    *,
    components: int | None = None,
    ignore: Sequence[str] = (),
    progress: Progress | None = None,
) -> Study:
    """Make a study's public projection, or fit its features of pictures to public ones; write the digest into the study.

    Parameters
    ----------
    path : path
        The study's file, which is written again; the projection lies beside it.
    public_rows : path
        A table of public rows, never a participant's, with the study's columns. Its labels are not read.
    components : int, optional
        Default: what the study says.
    """
    path = Path(path)
    plain = read_plain(path)
    # a draft that waits for its digest is no study yet, so its other parts are read under a projection that needs none
    method = dict(plain["method"]) if isinstance(plain.get("method"), dict) else {}
    digests, uses_sums = ("projection_digest", "features_digest"), method.get("name") == SECURE_SUM
    method = {key: value for key, value in method.items() if key not in digests}
    method |= {} if uses_sums else {"projection": "gaussian"}
    if components is not None:
        method["n_features" if uses_sums else "components"] = components
        method.pop("anchor_rows", None)
    elif "components" not in method and not uses_sums:
        raise InputError(
            "components", expected="given for a projection", got="none", cure="Say how many with --components."
        )
    study = Study.from_dict(plain | {"method": method}, folder=path.parent)
    if study.participants:
        expected, got = "one without a roster yet", f"a roster of {len(study.participants)}, who agreed on it as it is"
        raise InputError("study", expected=expected, got=got, cure="Make the projection before anybody is enrolled.")
    batches = partial(encoded_batches, study.schema, public_rows, labels="ignore", ignore=ignore, progress=progress)
    if study.sums is not None:
        arrays = _fit_features(study, (batch.rows for batch in batches()))
    else:
        seed = int.from_bytes(hashlib.sha256(b"mooring public svd" + study.nonce.encode()).digest())
        found = public_svd_projection(
            lambda: (batch.rows for batch in batches()), study.n_components, rng=np.random.default_rng(seed)
        )
        arrays = {"matrix": found.matrix}
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array, dtype=np.float64) for name, array in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    if study.sums is not None:
        projected = replace(study, sums=replace(study.sums, features_digest=digest))
    else:
        projected = replace(study, projection="public-svd", projection_digest=digest)
    write_atomically(path.parent / public_file_name(study), content, what="the projection's file")
    projected.write(path)
    return projected


def _fit_features(study: Study, batches: Iterable[Matrix]) -> dict[str, Matrix]:
    """Fit features of pictures to the first public ones, as many as memory holds well."""
    assert study.sums is not None
    features = make_features(study.sums, study.schema, study.image_shape)
    if not isinstance(features, PictureFeatures):
        expected, got = "'pictures' for a study of secure sums", repr(study.sums.features)
        cure = "Features of columns follow from what is declared of them: public rows make them no better."
        raise InputError("features", expected=expected, got=got, cure=cure)
    pictures: list[Matrix] = []
    for batch in batches:
        pictures.append(features.to_grey(batch[: _MOST_PICTURES - sum(map(len, pictures))]))
        if sum(map(len, pictures)) == _MOST_PICTURES:
            break
    grey = np.concatenate(pictures) if pictures else np.empty((0, features.height * features.width))
    if len(grey) < features.n_components:
        expected, got = f"{features.n_components} pictures or more, as many as features", str(len(grey))
        cure = "Give more of them, or say fewer features with --components."
        raise InputError("public rows", expected=expected, got=got, cure=cure)
    fitted = fit_to_public(replace(features, n_channels=1), grey).projection
    return {"mean": fitted.mean, "matrix": fitted.matrix}
