"""Rows as a study encodes them, for `mooring audit --study` and `mooring plan --study`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from mooring import EvaluationSpec, InputError, OperatingPoint, Projection, gaussian_projection
from mooring.audit import PointGrid, SumSpec, point_with_noise, root_mean_square
from mooring.tables import Partition, Records, read_encoded

Study: TypeAlias = Any  # the protocol's libraries are loaded only by commands that run it
_ANCHOR_NOISE, _DATA_NOISE = 0.1, 0.5  # for methods with a noise that the study itself does not have


@dataclass(frozen=True, eq=False)
class StudiedRows:
    """A table as a study encodes it, and what the study says of how to look at it."""

    study: Study
    records: Records
    projection: Projection
    evaluation: EvaluationSpec


def read_studied(path: Path, study_path: Path, *, ignore: Sequence[str], examples: bool) -> StudiedRows:
    """Read a study and a table that fits it; nothing of the table's own statistics enters.

    Parameters
    ----------
    path, study_path : Path
        The table and the study.
    ignore : sequence of str
        Columns of the table that the study does not have.
    examples : bool
        Whether rows may be shown on the page.
    """
    from mooring.protocol.designer.draft import WIDEST_WITHOUT_PROJECTION
    from mooring.protocol.messages.projection import study_projection
    from mooring.protocol.messages.study import Study as StudyFile
    from mooring.protocol.participant.inspection import evaluation_of

    study = StudyFile.read(study_path)
    encoded = read_encoded(study.schema, path, labels="allow", ignore=ignore)
    records = Records(
        rows=encoded.rows,
        labels=encoded.labels,
        feature_names=study.feature_names,
        label_names=study.label.classes if encoded.labels is not None else (),
        image_shape=study.image_shape or None,
    )
    projection = study_projection(study)
    if study.sums is not None and study.n_features > WIDEST_WITHOUT_PROJECTION:
        # uploads of rows, beside the sums, are those that a draft of the same columns would have
        rng = np.random.default_rng(0)
        projection = gaussian_projection(study.n_features, WIDEST_WITHOUT_PROJECTION, rng=rng)
    return StudiedRows(study, records, projection, evaluation_of(study, n_examples=6 if examples else 0))


def refuse_beside_a_study(options: Mapping[str, Any]) -> None:
    """Refuse options that a study settles: what is audited must be what will be run."""
    for name, value in options.items():
        if value not in (None, [], ""):
            cure = "The study says it for everybody."
            raise InputError(f"--{name.replace('_', '-')}", expected="left out with --study", got="given", cure=cure)


def sums_of(studied: StudiedRows, parts: Partition, epsilons: Sequence[float | None]) -> SumSpec:
    """A study of secure sums as the audit takes it, its own ε first; of any other, the sums that its columns would give.

    Parameters
    ----------
    studied : StudiedRows
    parts : Partition
        Rows as dealt for the audit.
    epsilons : sequence of float or None
        Beside the study's own; None is without noise.
    """
    from mooring.mechanisms.secure_sum.settings import SumSettings, make_features
    from mooring.protocol.messages.projection import study_features

    study = studied.study
    own = study.sums or SumSettings(features="pictures" if study.image_shape else "columns")
    return SumSpec(
        epsilons=tuple(dict.fromkeys((*((own.epsilon,) if study.sums else ()), *epsilons))),
        delta=own.delta,
        quorum=own.quorum if study.sums and own.n_colluders < own.quorum <= parts.n_participants else None,
        n_colluders=own.n_colluders if study.sums else None,
        product_share=own.product_share,
        feature_map=study_features(study) if study.sums else make_features(own, study.schema, study.image_shape),
        shrink=own.features == "columns",
    )


def points_of(
    studied: StudiedRows,
    parts: Partition,
    *,
    methods: Sequence[str],
    anchor_noise_scales: Sequence[float],
    data_noise_scales: Sequence[float],
) -> tuple[OperatingPoint, ...]:
    """The study's own point first; then, for contrast, methods that were asked for, with its noise unless told otherwise.

    Parameters
    ----------
    studied : StudiedRows
    parts : Partition
        Rows as dealt for the audit.
    methods : sequence of str
        For contrast.
    anchor_noise_scales, data_noise_scales : sequence of float
        v and σ of these methods; none are the study's own.
    """
    from mooring.protocol.participant.inspection import point_of

    if (anchor_noise_scales or data_noise_scales) and not methods:
        cure = "Without both, the study's own point is used."
        raise InputError("--method", expected="named beside a noise", got="left out", cure=cure)
    study = studied.study
    h = studied.projection.n_components
    n_anchor_rows = study.n_anchor_rows or 4 * h
    if study.sums is not None and not methods:  # one upload of rows beside the sums
        return (point_with_noise(0.0, _DATA_NOISE, n_components=h, n_anchor_rows=n_anchor_rows),)
    rms = root_mean_square(parts.train, studied.projection)
    own = None if study.sums is not None else point_of(study, rms)
    if rms == 0 or (own is None and study.sums is None):
        raise InputError("data file", expected="rows that vary", got="rows of zeros", cure="Check the study's ranges.")
    others = PointGrid(
        methods,
        n_components=h,
        n_anchor_rows=n_anchor_rows,
        anchor_noise_scales=anchor_noise_scales or (study.anchor_noise_scale or _ANCHOR_NOISE,),
        data_noise_scales=data_noise_scales or (study.data_noise_scale or _DATA_NOISE,),
    ).points(h, lambda n_components: rms)
    return tuple(dict.fromkeys((*([] if own is None else [own]), *others)))
