"""Known secret: under a common transform, one colluder's map is everybody's."""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import CollusionView


def known_secret(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Undo the common map, which any colluder reveals (C-GDP in the collusion setting)."""
    if view.method.transform != "common":
        raise DoesNotApply(f"Under {view.method.title} every participant has a map of its own.")
    if not view.colluders:
        raise DoesNotApply("The common map is known only to participants, and none colludes.")
    return reconstruct(view, view.colluders[0].secret)
