"""Reconstructions to look at: for each attack ten noise levels, chosen so that linkage falls from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring_studies.images.deployment import PreparedDeployment, on_device
from mooring_studies.images.evaluator import LEARNED, Decoder

_COLUMNS = 10
_CHANCE = 0.1
SHOWN: tuple[tuple[str, str, str, str], ...] = (
    # method, attack shown, control without noise, attack by whose linkage the levels are chosen
    ("c-gdp-data-noise", "known-secret", "c-gdp", "known-secret"),
    ("c-gdp-data-noise", "known-secret+denoised", "c-gdp", "known-secret+denoised"),
    ("c-gdp-data-noise", f"known-secret+denoised{LEARNED}", "c-gdp", f"known-secret+denoised{LEARNED}"),
    ("aa-i-gdp-data-noise", "known-anchor", "aa-i-gdp", "known-anchor"),
    ("aa-i-gdp-anchor-noise", "pseudoinverse", "aa-i-gdp", "pseudoinverse"),
    ("aa-i-gdp-anchor-noise", "procrustes", "aa-i-gdp", "procrustes"),
    ("aa-i-gdp-anchor-noise", "alignment-map", "aa-i-gdp", "alignment-map"),
    ("aa-i-gdp-anchor-noise", "moments", "aa-i-gdp", "procrustes"),
    ("aa-i-gdp-anchor-noise", f"procrustes{LEARNED}", "aa-i-gdp", f"procrustes{LEARNED}"),
    ("aa-i-gdp-anchor-noise", f"moments{LEARNED}", "aa-i-gdp", f"procrustes{LEARNED}"),
)
"""What a picture shows, from top to bottom; what a learned decoder makes of it only where there is one."""

Arrays = dict[str, npt.NDArray[Any]]


def pictures_of(
    prepared: PreparedDeployment, rows: Sequence[Mapping[str, Any]], rebuilt: Mapping[str, Arrays]
) -> Arrays:
    """Choose, decode and lay out the pictures of one deployment."""
    shape = prepared.pictures.shape
    exact = prepared.evaluator.queries[prepared.evaluator.shown].cpu().numpy()
    laid: Arrays = {
        "sources": prepared.pictures,
        "projected": _pixels(prepared, exact[None], "")[0].reshape(shape),
        "labels": np.asarray(prepared.picture_labels),
    }
    names: list[str] = []
    has_learned = prepared.evaluator.learned_decoder is not None
    for method, shown, control, chosen_by in SHOWN:
        attack = shown.removesuffix(LEARNED)
        if attack not in rebuilt.get(method, {}) or (shown != attack and not has_learned):
            continue
        by_draw = {int(row["draw"]): row for row in rows if row["method"] == method}
        zero = next(row for row in rows if row["method"] == control)
        linkage_without = max(
            value
            for name, value in zero.items()
            if name.startswith("linkage:") and value is not None and name.endswith(LEARNED) == shown.endswith(LEARNED)
        )
        finite = np.isfinite(rebuilt[method][attack]).all(axis=(1, 2))
        draws = [int(draw) for draw in rebuilt[method]["draws"][finite]]
        chosen = _falling({draw: float(by_draw[draw][f"linkage:{chosen_by}"]) for draw in draws}, linkage_without)
        place = {int(draw): k for k, draw in enumerate(rebuilt[method]["draws"])}
        images = [exact, *(rebuilt[method][attack][place[draw]] for draw in chosen)]
        noise = "data_noise_scale" if "data" in method else "anchor_noise_scale"
        index = len(names)
        laid[f"row{index}_images"] = _pixels(prepared, np.stack(images), shown).reshape(len(images), *shape)
        laid[f"row{index}_noise"] = np.array([0.0, *(by_draw[draw][noise] for draw in chosen)])
        laid[f"row{index}_linkage"] = np.array(
            [linkage_without, *(by_draw[draw][f"linkage:{shown}"] for draw in chosen)]
        )
        names.append(f"{method}|{shown}")
    for shown in ("moments", f"moments{LEARNED}")[: 1 + has_learned]:
        if "moments" in rebuilt.get("i-gdp", {}):
            index = len(names)
            laid[f"row{index}_images"] = _pixels(prepared, rebuilt["i-gdp"]["moments"], shown).reshape(1, *shape)
            laid[f"row{index}_noise"] = np.zeros(1)
            only = next(row for row in rows if row["method"] == "i-gdp")
            laid[f"row{index}_linkage"] = np.array([only[f"linkage:{shown}"]])
            names.append(f"i-gdp|{shown}")
    laid["rows"] = np.array(names)
    return laid


def _falling(linkage: Mapping[int, float], highest: float) -> list[int]:
    """Draws whose linkage falls about evenly from that without noise to chance, each used once."""
    left = dict(linkage)
    chosen = []
    for wanted in np.linspace(highest, _CHANCE, _COLUMNS)[1:]:
        if not left:
            break
        draw = min(left, key=lambda draw: abs(left[draw] - wanted))
        chosen.append(draw)
        del left[draw]
    return sorted(chosen, key=lambda draw: -linkage[draw])


def _pixels(prepared: PreparedDeployment, rebuilt: npt.NDArray[Any], attack: str) -> npt.NDArray[np.uint8]:
    """Decode rows of shape (c, k, h) to bytes of shape (c, k, d), by the decoder that the attack's name tells."""
    flat = on_device(rebuilt.reshape(-1, rebuilt.shape[-1]), str(prepared.deployment.device), "float32")
    evaluator = prepared.evaluator
    decoder: Decoder | None = evaluator.learned_decoder if attack.endswith(LEARNED) else evaluator.decoder
    assert decoder is not None
    decoded = decoder.images(flat).cpu().numpy()
    return np.asarray(np.round(decoded * 255), dtype=np.uint8).reshape(*rebuilt.shape[:2], -1)
