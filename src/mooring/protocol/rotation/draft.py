"""What a draft of a study says of rotation, and the public projection that it may wait for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.rotation.methods import get_method
from mooring.mechanisms.rotation.projection import public_svd_projection
from mooring.protocol.exchange import MechanismDraft, PublicFile
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import TODO
from mooring.protocol.participant.contrast import ANCHOR_NOISE, DATA_NOISE, WIDEST_WITHOUT_PROJECTION
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Matrix

_METHOD = "aa-i-gdp-data-noise"


def draft_rotation(given: Mapping[str, Any], width: int) -> MechanismDraft:
    """The entries of a draft; those that follow from the columns are left to comments.

    Parameters
    ----------
    given : mapping
        Entries that were asked for.
    width : int
        Of the encoded rows.
    """
    name, n_components = given.get("method", _METHOD), given.get("n_components")
    method = get_method(name)
    needs_projection = width > WIDEST_WITHOUT_PROJECTION or n_components not in (None, width)
    projection = given.get("projection") or ("gaussian" if needs_projection else "none")
    if n_components is None and projection != "none":
        n_components = min(WIDEST_WITHOUT_PROJECTION, max(1, width))
    sizes = {"n_components": n_components, "n_anchor_rows": given.get("n_anchor_rows")}
    entries: dict[str, Any] = {"name": "rotation", "method": name}
    entries |= {key: value for key, value in sizes.items() if value is not None}
    for key, used, usual in (
        ("data_noise_scale", method.data_noise, DATA_NOISE),
        ("anchor_noise_scale", method.anchor_noise, ANCHOR_NOISE),
    ):
        entries[key] = float(given.get(key, usual)) if used else 0.0
    entries["projection"] = projection
    remarks = {
        "n_components": "# n_components: as many as the encoded rows are wide, without a projection.\n",
        "n_anchor_rows": "# n_anchor_rows: four times the components.\n",
    }
    above = "".join(remarks[key] for key, value in sizes.items() if value is None)
    if projection == "gaussian" and not given.get("projection"):
        wide = f"rows this wide go onto {n_components} random directions, for speed"
        above += f'# projection: {wide}; "none" shares all.\n'
    waits = f"# projection_digest comes from: mooring study project  {TODO} run it\n"
    return MechanismDraft(entries, above, waits if projection == "public-svd" else "")


def take_gaussian(given: Mapping[str, Any], n_components: int | None) -> dict[str, Any]:
    """The entries of a study that waits for its public projection, with a Gaussian one instead.

    Parameters
    ----------
    n_components : int, optional
        Instead of the study's.
    """
    entries = {key: value for key, value in given.items() if key != "projection_digest"} | {"projection": "gaussian"}
    if n_components is not None:
        entries["n_components"] = n_components
        entries.pop("n_anchor_rows", None)
    elif "n_components" not in entries:
        cure = "Say how many with --components."
        raise InputError("n_components", expected="given for a projection", got="none", cure=cure)
    return entries


def project_on_public(study: Study, batches: Callable[[], Iterable[Matrix]]) -> PublicFile:
    """The projection on the principal directions of public rows.

    Parameters
    ----------
    batches : callable
        Returns the encoded public rows, block by block, whenever it is called.
    """
    settings = rotation_of(study)
    seed = int.from_bytes(hashlib.sha256(b"mooring public svd" + study.nonce.encode()).digest())
    projection = public_svd_projection(batches, settings.n_components, rng=np.random.default_rng(seed))
    return PublicFile(
        {"matrix": np.asarray(projection.matrix)},
        lambda digest: replace(settings, projection="public-svd", projection_digest=digest),
        f"{study.n_features} by {settings.n_components}",
    )
