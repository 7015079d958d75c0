"""The settings of a study of rotation, the participant that makes its anchor, and its public projection."""

from __future__ import annotations

import hashlib

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection
from mooring.mechanisms.rotation.settings import RotationSettings
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.public_file import read_public_file, refuse_public_file
from mooring.protocol.messages.study import Study


def rotation_of(study: Study) -> RotationSettings:
    """Return the settings of a study of rotation; a study of another mechanism is refused."""
    if not isinstance(study.mechanism, RotationSettings):
        expected, got = "one of the mechanism rotation", f"one of {study.mechanism.name}"
        cure = "Other mechanisms have no anchor and share no rows; leave this step out."
        raise InputError("study", expected=expected, got=got, cure=cure)
    return study.mechanism


def dealing_member(study: Study) -> Member:
    """Return the participant that makes the anchor: the dealer whom the study names, or else the first participant."""
    study.require_roster()
    dealer = rotation_of(study).dealer
    return study.member(dealer) if dealer else study.participants[0]


def study_projection(study: Study) -> Projection:
    """Return the study's public projection: none, Gaussian from the nonce, or from the file beside the study.

    The file is refused unless it has the digest in the study and its matrix has orthonormal columns.
    """
    settings, m = rotation_of(study), study.n_features
    h = settings.n_components
    if settings.projection == "none":
        return no_projection(m)
    if settings.projection == "gaussian":
        seed = int.from_bytes(hashlib.sha256(b"mooring projection" + study.nonce.encode()).digest())
        rng = np.random.default_rng(seed)
        return gaussian_projection(m, h, rng=rng)
    F = read_public_file(study, settings.projection_digest, {"matrix": (m, h)})["matrix"]
    if np.abs(F.T @ F - np.eye(h)).max() > 1e-8:
        raise refuse_public_file(f"no matrix of {m} by {h} with orthonormal columns")
    return Projection(F, F.T.copy(), "public-svd")
