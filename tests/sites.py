"""A study of numbers whose participants have keys and no vault, and their bundles."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mooring import RigidMap
from mooring.protocol.crypto.keys import SealingKey, SigningKey
from mooring.protocol.messages.bundle import verify_bundle, write_bundle
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.tables.schema import Column, Label

ANALYST = SigningKey.generate()
KEYS = tuple(SigningKey.generate() for _ in range(12))
SEALING = tuple(SealingKey.generate().public for _ in KEYS)
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
    sites = [Member(f"site-{k}", KEYS[k].public, SEALING[k]) for k in range(p)]
    return Study(
        name="trial",
        nonce="0" * 32,
        columns=tuple(Column(f"x{k}", "number", low=-1, high=1) for k in range(h)),
        label=LABELS[kind],
        method=method,
        n_components=h,
        n_anchor_rows=r,
        anchor_noise_scale=v if "anchor" in method else 0.0,
        participants=tuple(sites if participants is None else participants),
        analyst=analyst or Member("analyst", ANALYST.public),
    )


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
    secret = RigidMap.sample(study.n_components, rng=rng)
    noise = study.anchor_noise_scale * rng.standard_normal(anchor.shape)
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
    found = verify_bundle(path, written_for or study)
    own = {"representation": found.representation(), "anchor_representation": found.anchor_representation}
    write_bundle(path, study, **({**own, "labels": found.labels()} | changes), signer=signer)
