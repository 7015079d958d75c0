"""What rotation writes in the [mechanism] of a drafted study, and the fit of its public projection."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.rotation.methods import get_method
from mooring.mechanisms.rotation.projection import public_svd_projection
from mooring.protocol.exchange_types import MechanismDraft, PublicFile
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_text import TODO
from mooring.protocol.participant.contrast import ANCHOR_NOISE, DATA_NOISE, WIDEST_WITHOUT_PROJECTION
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Matrix

_METHOD = "aa-i-gdp-data-noise"
_ENTRIES = ("name", "method", "n_components", "n_anchor_rows", "data_noise_scale", "anchor_noise_scale", "projection")


def draft_rotation(
    entries: Mapping[str, Any], width: int, *, has_images: bool = False, has_label: bool = True
) -> MechanismDraft:
    """Return the entries with defaults for encoded rows of `width` numbers; sizes that follow from it become comments.

    `has_images` and `has_label` make no difference: pixels are columns, and rows are shared with a label or without.
    """
    unknown = [key for key in entries if key not in _ENTRIES]
    if unknown:
        problem = f"These settings do not belong to the mechanism rotation: {', '.join(unknown)}."
        cure = "Leave them out, or choose another mechanism, such as --mechanism secure-sum."
        raise InputError("mechanism", problem=problem, cure=cure)
    name, n_components = entries.get("method", _METHOD), entries.get("n_components")
    method = get_method(name)
    needs_projection = width > WIDEST_WITHOUT_PROJECTION or n_components not in (None, width)
    projection = entries.get("projection") or ("gaussian" if needs_projection else "none")
    if n_components is None and projection != "none":
        n_components = min(WIDEST_WITHOUT_PROJECTION, max(1, width))
    sizes = {"n_components": n_components, "n_anchor_rows": entries.get("n_anchor_rows")}
    drafted: dict[str, Any] = {"name": "rotation", "method": name}
    drafted |= {key: value for key, value in sizes.items() if value is not None}
    for key, used, usual in (
        ("data_noise_scale", method.data_noise, DATA_NOISE),
        ("anchor_noise_scale", method.anchor_noise, ANCHOR_NOISE),
    ):
        drafted[key] = float(entries.get(key, usual)) if used else 0.0
    drafted["projection"] = projection
    remarks = {
        "n_components": "# n_components: as many as the encoded rows are wide, without a projection.\n",
        "n_anchor_rows": "# n_anchor_rows: four times the components.\n",
    }
    above = "".join(remarks[key] for key, value in sizes.items() if value is None)
    if projection == "gaussian" and not entries.get("projection"):
        wide = f"rows of {width} numbers are projected on {n_components} random directions"
        above += f'# projection: {wide}; "none" shares all.\n'
    waits = f"# projection_digest comes from: mooring study project  {TODO} run it\n"
    return MechanismDraft(drafted, above, waits if projection == "public-svd" else "")


def take_gaussian(entries: Mapping[str, Any], n_components: int | None) -> dict[str, Any]:
    """Return the entries of a study with a Gaussian projection in place of its own.

    A given `n_components` replaces the study's number of components, and the number of anchor rows becomes the default. If
    neither number of components is given, an `InputError` is raised.
    """
    taken = {key: value for key, value in entries.items() if key != "projection_digest"} | {"projection": "gaussian"}
    if n_components is not None:
        taken["n_components"] = n_components
        taken.pop("n_anchor_rows", None)
    elif "n_components" not in taken:
        cure = "Say how many with --components."
        raise InputError("n_components", expected="given for a projection", got="none", cure=cure)
    return taken


def project_on_public(study: Study, batches: Callable[[], Iterable[Matrix]]) -> PublicFile:
    """Fit the projection to the principal directions of public rows, which `batches` yields block by block."""
    settings = rotation_of(study)
    seed = int.from_bytes(hashlib.sha256(b"mooring public svd" + study.nonce.encode()).digest())
    projection = public_svd_projection(batches, settings.n_components, rng=np.random.default_rng(seed))
    return PublicFile(
        {"matrix": np.asarray(projection.matrix)},
        lambda digest: replace(settings, projection="public-svd", projection_digest=digest),
        f"{study.n_features} by {settings.n_components}",
    )
