"""What travels is what is attacked: a bundle holds the numbers that a simulation shows for the same rows, map and noise."""

import io
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from mooring import RigidMap, RowSimulation, SimulationSettings, UploadNoise, simulate
from mooring.atomic_io import write_atomically
from mooring.errors import RefusedError
from mooring.protocol.registry import exchange_of
from mooring.protocol.rotation.anchor import Perturbation, open_anchor, used_anchor
from mooring.protocol.rotation.bundle import RowBundle, verify_bundle
from mooring.protocol.rotation.participant import upload
from mooring.protocol.rotation.scheme import study_projection
from mooring.protocol.storage.vault import Floors
from mooring.tables import encoded_batches
from tests.permissions import has_mode
from tests.protocol.conftest import N_ROWS, SmallStudy
from tests.raising import raising

N_PARTICIPANTS = 3
STUDIES: dict[str, dict[str, Any]] = {
    "both noises": {},
    "anchor noise": {"method": "aa-i-gdp-anchor-noise", "data_noise_scale": 0.0},
    "data noise": {"method": "aa-i-gdp-data-noise", "anchor_noise_scale": 0.0},
    "no noise": {"method": "aa-i-gdp", "data_noise_scale": 0.0, "anchor_noise_scale": 0.0},
    "both noises, projected": {"projection": "gaussian", "n_components": 3},
    "no noise, projected": {
        "method": "aa-i-gdp",
        "data_noise_scale": 0.0,
        "anchor_noise_scale": 0.0,
        "projection": "gaussian",
        "n_components": 2,
    },
}


@dataclass(frozen=True, eq=False)
class Sent:
    """One participant's bundle, and all that went into it: its encoded rows in the bundle's order, its map, its noise."""

    bundle: RowBundle
    records: np.ndarray
    secret: RigidMap
    noise: UploadNoise


@pytest.fixture(params=STUDIES)
def played(request: pytest.FixtureRequest, small_study: Any) -> Any:
    """The study, what everybody sent, and the same collaboration simulated."""
    given = small_study.another(**STUDIES[request.param])
    study, h = given.study, given.study.mechanism.n_components
    blocks = upload.Blocks(4 * h * 7, 2 * h)  # 20 rows in three stretches, each with its part of the noise
    sent = [send(given, i, blocks=blocks) for i in range(N_PARTICIPANTS)]
    simulation = simulate(
        [message.records for message in sent],
        method=study.mechanism.method,
        anchor_noise_scale=study.mechanism.anchor_noise_scale,
        data_noise_scale=study.mechanism.data_noise_scale,
        rng=np.random.default_rng(0),
        settings=SimulationSettings(
            projection=study_projection(study),
            anchor=open_anchor(given.vaults[0], study, given.anchor).matrix,
            precision="float32",
            secrets=[(message.secret, message.noise) for message in sent],
        ),
    )
    return study, sent, simulation


def send(given: Any, i: int, **options: Any) -> Sent:
    vault = replace(given.vaults[i], floors=Floors(0.0, 0.0, without_noise=True))
    study, table = given.study, given.table(i)
    output = given.folder / f"{i}.bundle"
    given.share(vault, table, output=output, **options)
    perturbation = Perturbation(study, open_anchor(vault, study, given.anchor), vault)
    surveyed, rows = upload._survey(perturbation, table, (), io.BytesIO(), lambda done, total, what="": None)
    encoded = np.concatenate([block.rows for block in encoded_batches(study.schema, table)])
    records = np.empty_like(encoded)
    records[upload._place(perturbation, surveyed, rows.digest)[0]] = encoded
    noise = UploadNoise(perturbation.data_noise(len(encoded), rows.digest), anchor=perturbation.anchor_noise)
    return Sent(verify_bundle(output, study), records, perturbation.map._SecretMap__map, noise)


def test_a_bundle_is_what_a_simulation_shows_to_attackers(played: tuple[Any, list[Sent], RowSimulation]) -> None:
    _, sent, simulation = played
    view = simulation.view(colluders=(0,), target=1)
    for message, shown in zip(sent, view.uploads, strict=True):
        assert shown.representation.dtype == shown.anchor_representation.dtype == np.float32
        np.testing.assert_array_equal(message.bundle.representation(), shown.representation)
        np.testing.assert_array_equal(message.bundle.anchor_representation, shown.anchor_representation)


def test_a_bundle_is_the_definition_of_the_mechanism(played: tuple[Any, list[Sent], RowSimulation]) -> None:
    """def:pa_i_gdp in plain NumPy: Y = X F O + 1 Ψᵀ + σ W and B = A O + 1 Ψᵀ + v W', to float32's rounding."""
    study, sent, simulation = played
    for message in sent:
        X, O, psi = (
            message.records @ study_projection(study).matrix,
            message.secret.orthogonal,
            message.secret.translation,
        )
        for values, scale, stream, sent_values in (
            (X, study.mechanism.data_noise_scale, message.noise.data, message.bundle.representation()),
            (
                simulation.anchor,
                study.mechanism.anchor_noise_scale,
                message.noise.anchor,
                message.bundle.anchor_representation,
            ),
        ):
            W = stream.normals(0, values.size).reshape(values.shape)
            np.testing.assert_allclose(sent_values, values @ O + psi + scale * W, rtol=0, atol=2e-6)


def test_every_row_of_a_bundle_has_the_label_that_the_file_gives_it(small_study: SmallStudy) -> None:
    """Rows are shuffled, and their labels with them: here the map is undone, and each row is found in the file again."""
    given = small_study.another(**STUDIES["no noise"])
    sent = send(given, 1)
    records = given.records[N_ROWS : 2 * N_ROWS]
    low, high = np.array([(column.low, column.high) for column in given.study.columns]).T
    encoded = 2 * (np.array([record[:-1] for record in records]) - low) / (high - low) - 1
    rows = sent.secret.invert(sent.bundle.representation().astype(float))
    distances = np.linalg.norm(rows[:, None] - encoded[None], axis=2)
    places = distances.argmin(axis=1)
    assert distances.min(axis=1).max() < 1e-4
    assert sorted(places) == list(range(N_ROWS))
    assert [given.study.label.classes[code] for code in sent.bundle.labels()] == [records[k][-1] for k in places]


def test_a_bundle_is_readable_by_its_owner_only_and_rests_of_a_killed_run_go(small_study: SmallStudy) -> None:
    output = small_study.folder / "out [1].bundle"
    with patch("mooring.atomic_io.os.replace", side_effect=KeyboardInterrupt), patch("mooring.atomic_io.os.unlink"):
        with pytest.raises(KeyboardInterrupt):
            write_atomically(output, b"cut short")  # as by a kill: nothing is cleared
        with pytest.raises(KeyboardInterrupt):
            write_atomically(small_study.folder / "another file", b"is being written")
    assert len(list(small_study.folder.glob(".*.partial"))) == 2
    small_study.share(output=output)
    assert len(list(small_study.folder.glob(".*.partial"))) == 1
    assert has_mode(output, 0o600)


def test_an_anchor_file_that_changed_since_it_was_opened_is_not_kept(small_study: SmallStudy) -> None:
    kept, given = small_study.folder / "kept.anchor", small_study.folder / "given.anchor"
    given.write_bytes(b"another")
    with raising(RefusedError, "the anchor file", reason="while it was being used"):
        upload._keep_anchor(small_study.study, kept, given, "a" * 64)
    assert not kept.exists()


def test_a_copy_of_the_anchor_that_was_damaged_is_written_again(small_study: SmallStudy) -> None:
    kept = used_anchor(small_study.vaults[1], small_study.study)
    for _ in range(2):
        small_study.share(output=small_study.folder / "out.bundle")
        assert kept.read_bytes() == small_study.anchor.read_bytes()
        kept.write_bytes(b"damaged")


def test_the_table_is_read_once_so_the_rows_that_were_checked_are_those_that_travel(small_study: SmallStudy) -> None:
    with patch.object(upload, "encoded_batches", wraps=encoded_batches) as read:
        small_study.share(output=small_study.folder / "out.bundle")
    assert read.call_count == 1


def test_other_rows_in_anothers_vault_are_refused_with_whose_vault_it_is(small_study: SmallStudy) -> None:
    small_study.share(output=small_study.folder / "out.bundle")
    with raising(RefusedError, "a second upload", reason="hospital-1 has already uploaded", cure="your own --vault"):
        small_study.share(data=small_study.table(2), output=small_study.folder / "other.bundle")


def test_progress_never_goes_back_and_ends_at_the_total(small_study: SmallStudy) -> None:
    collected: list[tuple[float, float]] = []
    output, blocks = small_study.folder / "out.bundle", upload.Blocks(stretch_bytes=4 * 4 * 7)  # three stretches
    small_study.share(
        output=output, progress=lambda done, total, what="": collected.append((done, total)), blocks=blocks
    )
    shares = [done / total for done, total in collected]
    assert shares == sorted(shares)
    assert (shares[0] >= 0, shares[-1]) == (True, pytest.approx(1.0))
    assert len(shares) > 2


@pytest.mark.parametrize("count", [1, 2])
def test_a_class_of_fewer_rows_than_the_study_allows_is_refused_and_an_empty_one_is_not(
    small_study: SmallStudy, count: int
) -> None:
    strict = replace(small_study.study, smallest_class=3)
    assert exchange_of(strict).list_refusals(strict, 3, {"yes": 0, "no": 3}) == []
    (refusal,) = exchange_of(strict).list_refusals(strict, 3 + count, {"yes": count, "no": 3})
    assert isinstance(refusal, RefusedError)
    assert "'yes'" in refusal.reason
