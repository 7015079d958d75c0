"""Known secret: if all participants share one map, one colluder reveals it."""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import CollusionView


def known_secret(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Invert the common map, which any colluder reveals (C-GDP in the collusion setting)."""
    if view.method.transform != "common":
        raise DoesNotApply(f"In {view.method.title} every participant has its own map.")
    if not view.colluders:
        raise DoesNotApply("The common map is known only to participants, and none colludes.")
    return reconstruct(view, view.colluders[0].secret)
