"""Sites of a study, and their bundles as they would send them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mooring import RigidMap, make_anchor
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.bundle import RowBundle, verify_bundle
from tests.sites import KEYS, write_bundle


@dataclass(frozen=True, eq=False)
class Site:
    rows: np.ndarray
    labels: np.ndarray | None
    secret: RigidMap
    anchor_representation: np.ndarray

    @property
    def representation(self) -> np.ndarray:
        return np.asarray(self.secret.apply(self.rows))


def sites_of(study: Study, *, n: int = 60, seed: int = 0) -> list[Site]:
    rng = np.random.default_rng([seed, 7])
    h, v = study.mechanism.n_components, study.mechanism.anchor_noise_scale
    anchor = make_anchor(study.mechanism.n_anchor_rows, h, rng=rng)
    sites = []
    for _ in study.participants:
        rows = rng.uniform(-1, 1, (n, h))
        labels: np.ndarray | None = (rows[:, 0] + rows[:, 1] > 0).astype(np.int64)
        if study.label.kind == "number":
            labels = 20 * rows[:, 0] + rng.standard_normal(n)
        secret = RigidMap.sample(h, rng=rng)
        noisy = secret.apply(anchor) + v * rng.standard_normal(anchor.shape)
        sites.append(Site(rows, None if study.label.kind == "none" else labels, secret, noisy))
    return sites


def send(study: Study, site: Site, who: int, folder: Path, name: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / (name or f"site-{who}.bundle")
    write_bundle(
        path,
        study,
        representation=site.representation,
        anchor_representation=site.anchor_representation,
        labels=site.labels,
        signer=KEYS[who],
    )
    return path


def sent(study: Study, folder: Path, whom: Sequence[int] | None = None, **settings: Any) -> list[Site]:
    sites = sites_of(study, **settings)
    for who in range(len(sites)) if whom is None else whom:
        send(study, sites[who], who, folder)
    return sites


def bundles_of(study: Study, folder: Path) -> list[RowBundle]:
    return [verify_bundle(path, study) for path in sorted(folder.glob("*.bundle"))]


def with_garbage(study: Study, site: Site, seed: int = 0) -> Site:
    """A site whose anchor representation is made as an honest one is, but of an anchor that nobody else has."""
    r, h, v = study.mechanism.n_anchor_rows, study.mechanism.n_components, study.mechanism.anchor_noise_scale
    rng = np.random.default_rng([seed, 99])
    noisy = site.secret.apply(make_anchor(r, h, rng=rng)) + v * rng.standard_normal((r, h))
    return replace(site, anchor_representation=noisy)


def spread_of(space: Any, sites: Sequence[Site], whom: Sequence[int]) -> float:
    """How far the effective maps of honest participants are from each other, entry by entry."""
    effective = [
        np.asarray(sites[who].secret.orthogonal) @ space.orthogonals[space.names.index(f"site-{who}")] for who in whom
    ]
    return float(np.abs(np.array(effective) - effective[0]).max())


def prepared(study: Study, tmp_path: Path, **settings: Any) -> tuple[Path, list[Site]]:
    sites = sent(study, tmp_path / "inbox", **settings)
    align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", certify=False)
    return tmp_path / "work", sites
