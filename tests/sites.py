"""Studies of numbers: of participants with keys and no vault, with their bundles; and of participants with vaults."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mooring import RigidMap
from mooring.learners.models import Specify
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.registry import exchange_of
from mooring.protocol.rotation.bundle import KIND, bundle_fields, bundle_tensors, verify_bundle
from mooring.protocol.storage.vault import Vault
from mooring.tables.schema import Column, Label
from tests.keys import keyed_member
from tests.study_settings import make_study

ANALYST = SigningKey.generate()
KEYS = tuple(SigningKey.generate() for _ in range(12))
SITES = tuple(keyed_member(f"site-{k}", key) for k, key in enumerate(KEYS))
LABELS = {
    "classes": Label("y", "classes", ("well", "ill")),
    "number": Label("y", "number", low=-1000.0, high=1000.0),
    "none": Label(),
}


def numeric_study(
    p: int = 4,
    h: int = 6,
    r: int = 24,
    v: float = 0.05,
    kind: str = "classes",
    method: str = "aa-i-gdp-anchor-noise",
    participants: Sequence[Member] | None = None,
    analyst: Member | None = None,
) -> Study:
    """p participants with h columns and r anchor rows; site-0 … with the keys of this module, unless others are given."""
    return make_study(
        name="trial",
        nonce="0" * 32,
        columns=tuple(Column(f"x{k}", "number", low=-1, high=1) for k in range(h)),
        label=LABELS[kind],
        method=method,
        n_components=h,
        n_anchor_rows=r,
        anchor_noise_scale=v if "anchor" in method else 0.0,
        participants=SITES[:p] if participants is None else tuple(participants),
        analyst=analyst or Member("analyst", ANALYST.public),
    )


def write_bundle(
    path: Path,
    study: Study,
    *,
    representation: np.ndarray,
    anchor_representation: np.ndarray,
    labels: np.ndarray | None,
    signer: SigningKey,
    anchor_digest: str = "0" * 64,
) -> str:
    """Write a bundle from arrays, without shuffling rows, and return its SHA-256."""
    given = {"anchor_representation": anchor_representation, "representation": representation, "labels": labels}
    n_rows = representation.shape[0]
    specs = bundle_tensors(study, n_rows)
    arrays = {name: np.asarray(given[name], dtype=np.float32).reshape(spec.shape) for name, spec in specs.items()}
    fields = bundle_fields(study, n_rows=n_rows, anchor_digest=anchor_digest)
    return write_signed(path, kind=KIND, fields=fields, arrays=arrays, signer=signer)


def write_site(
    path: Path,
    study: Study,
    signer: SigningKey,
    rows: np.ndarray,
    labels: np.ndarray | None,
    anchor: np.ndarray,
    rng: np.random.Generator,
) -> RigidMap:
    """Write the bundle of these rows, and return the secret map, which is drawn."""
    secret = RigidMap.sample(study.mechanism.n_components, rng=rng)
    noise = study.mechanism.anchor_noise_scale * rng.standard_normal(anchor.shape)
    write_bundle(
        path,
        study,
        representation=np.asarray(secret.apply(rows)),
        anchor_representation=np.asarray(secret.apply(anchor)) + noise,
        labels=labels,
        signer=signer,
    )
    return secret


def rewrite_bundle(
    path: Path, study: Study, signer: SigningKey, *, written_for: Study | None = None, **changes: np.ndarray
) -> None:
    """Write a bundle again with other labels or another anchor representation, signed all the same."""
    bundle = verify_bundle(path, written_for or study)
    arrays = {"representation": bundle.representation(), "anchor_representation": bundle.anchor_representation}
    write_bundle(path, study, **({**arrays, "labels": bundle.labels()} | changes), signer=signer)


def vaulted_study(vaults: Mapping[str, Vault], analyst: Vault, m: int, r: int, **changes: Any) -> Study:
    """A study of these people: m numbers c0 …, r anchor rows, two classes y, noise on rows and anchor."""
    settings: dict[str, Any] = {
        "name": "small",
        "nonce": "0123456789abcdef" * 2,
        "columns": tuple(Column(f"c{k}", "number", -5, 5, outside="clip") for k in range(m)),
        "label": Label("y", "classes", ("a", "b")),
        "method": "aa-i-gdp-both-noise",
        "n_components": m,
        "n_anchor_rows": r,
        "data_noise_scale": 0.3,
        "anchor_noise_scale": 0.05,
    }
    members = [make_member(name, vault) for name, vault in vaults.items()]
    return make_study(**(settings | changes)).with_members(members, Member("lab", analyst.signing_key.public))


def write_rows(path: Path, rows: np.ndarray, labels: Sequence[str]) -> None:
    """A table for a `vaulted_study`."""
    lines = [",".join([*(f"{value:.6f}" for value in row), label]) for row, label in zip(rows, labels, strict=True)]
    path.write_text("\n".join([",".join([*(f"c{k}" for k in range(rows.shape[1])), "y"]), *lines]) + "\n")


def label_by_sum(rows: np.ndarray) -> list[str]:
    """Labels that can be learnt."""
    return ["ab"[int(total > 0)] for total in rows.sum(axis=1)]


def specifier_of(study: Study) -> Specify:
    """What the models of a study take and predict, by outcome."""
    return partial(exchange_of(study).specify_model, study)
