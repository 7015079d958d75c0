"""Secure sums between organisations: what opens is the total of one list and nothing else, whatever a party does."""

import hashlib
import itertools
import math
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import numpy as np
import pytest
from fsspec.spec import AbstractBufferedFile

from mooring.atomic_io import hold_lock
from mooring.errors import InputError, MooringError, RefusedError, StorageError
from mooring.learners.sums import Sums, fit_discriminant, fit_least_squares
from mooring.mechanisms.sums.features.pictures import PictureFeatures, fit_to_public
from mooring.mechanisms.sums.prime_field import PRIME, encode_signed
from mooring.mechanisms.sums.secret_sharing import weigh
from mooring.mechanisms.sums.sums import SumAccumulator
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import collect
from mooring.protocol.analyst.role import Analyst
from mooring.protocol.analyst.trained_model import read_training
from mooring.protocol.designer.revision import project_study
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.messages.result import Release, write_delivered_model
from mooring.protocol.messages.signed_file import read_signed_header, write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member, revoke_cards
from mooring.protocol.participant.prediction import Scoring, predict_rows
from mooring.protocol.participant.role import Participant, check_table_fit
from mooring.protocol.results import Consent, TrainingRecord
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.rotation.participant.upload import share_rows
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Floors
from mooring.protocol.sums import answers
from mooring.protocol.sums import bundle as bundles
from mooring.protocol.sums.analyst.total import open_total, read_list
from mooring.protocol.sums.analyst.training import train_sums
from mooring.protocol.sums.answers import (
    read_closing_list,
    read_combined_share,
    read_receipt,
    write_closing_list,
    write_combined_share,
    write_receipt,
)
from mooring.protocol.sums.bundle import sum_bundle_tensors, verify_sum_bundle, write_sum_bundle
from mooring.protocol.sums.combiner import combination
from mooring.protocol.sums.combiner.combination import check_boxes, combine_shares
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.participant import contribution
from mooring.protocol.sums.participant.contribution import share_sums
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables.schema import Column, Label
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.raising import raising
from tests.sites import specifier_of, vaulted_study


def exact_sums(given: SumStudy, people: range | list[int], n: int = 30) -> np.ndarray:
    scheme = sum_scheme(given.study)
    sums = SumAccumulator(scheme.layout)
    for i in people:
        rows, labels = given.rows(i, n)
        sums.add(scheme.features.apply(rows), labels if given.kind == "classes" else (labels - 1) / 4)
    return sums.vector


def test_a_model_that_predicts_one_class_is_said_to_from_training_to_predictions(tmp_path: Path) -> None:
    """All rows are alike, so that no model can separate the classes."""
    given = make_sum_study(tmp_path, p=3, epsilon=None, least_rows=50)
    alike = tmp_path / "alike.csv"
    alike.write_text("\n".join(["x0,x1,y", *(f"5,5,{'aabaac'[k % 6]}" for k in range(60))]) + "\n")
    for i in range(3):
        given.share(i, data=alike)
    given.close()
    for i in range(3):
        given.combine(i)
    training = train_sums(given.study, given.work, given.inbox)
    assert "one class" in [finding.kind for finding in training.list_findings()]
    deliver(given.study, given.work, tmp_path / "results", given.analyst.signing_key)
    predicted = predict_rows(given.vaults[0], given.study, alike, result=tmp_path / "results" / "p0")
    assert predicted.only_class
    assert "33.3%" in predicted.state_findings()[0]


def through(given: SumStudy, people: range | list[int], combiners: range | list[int] | None = None) -> None:
    """Share, close and combine."""
    for i in people:
        given.share(i)
    given.close()
    for i in range(len(given.vaults)) if combiners is None else combiners:
        given.combine(i)


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_without_noise_the_total_is_everybodys_sum_and_the_model_that_of_the_pooled_rows(
    folder: Path, kind: str
) -> None:
    given = make_sum_study(folder, epsilon=None, kind=kind, least_rows=25, person="who" if kind == "number" else "")
    (given.inbox / "._p0.bundle").write_text("what a system leaves beside a copy")
    through(given, range(6))
    total = open_total(given.study, given.work, given.inbox)
    S, T = sum_scheme(given.study).layout.unpack(exact_sums(given, range(6)))
    np.testing.assert_array_equal(total.content.products, S)
    np.testing.assert_array_equal(total.content.outcomes, T)
    assert (total.wrong, total.participants) == ((), tuple(f"p{i}" for i in range(6)))
    assert not (intake := collect(given.study, given.inbox, given.work)).set_aside, intake

    intake = train_sums(given.study, given.work, given.inbox)
    assert (intake.epsilon, intake.rows) == (None, 180)
    deliver(given.study, given.work, folder / "results", given.analyst.signing_key)
    predicted = predict_rows(given.vaults[5], given.study, given.table(9, 40), result=folder / "results" / "p5")
    assert next(iter(predicted.as_table())) == ("who" if kind == "number" else "prediction")
    rows, labels = given.rows(9, 40)
    phi = sum_scheme(given.study).features.apply(rows)
    pooled = Sums(S, T, sum_scheme(given.study).features.constant_share, 3 if kind == "classes" else 0)
    if kind == "classes":
        expected = np.array(list("abc"))[fit_discriminant(pooled).predict(phi)]
        assert (predicted.values == expected).all()
        assert np.mean(expected == np.array(list("abc"))[labels]) > 0.8
    else:
        np.testing.assert_allclose(predicted.values, 1 + 4 * fit_least_squares(pooled).predict(phi), atol=1e-4)
        np.testing.assert_allclose(predicted.values, labels, atol=0.2)
    # fitted to 20 labelled rows at home, the fewest; those that were shared do not count, since the model has seen them
    options: dict[str, Any] = {"result": folder / "results" / "p5", "scoring": Scoring(held_out=given.table(8, 20))}
    restored = replace(given.vaults[5], folder=folder)  # its ledger knows of no study
    for vault in (restored, given.vaults[5]):
        calibrated = predict_rows(vault, given.study, given.table(9, 40), own_rows=given.table(5), **options)
        assert calibrated.adjustment is not None
        assert calibrated.adjustment.record.checked == (vault is not restored)
    table = calibrated.as_table()
    alone = predict_rows(vault, given.study, given.table(9, 40), result=options["result"], own_rows=given.table(5))
    assert (calibrated.score, calibrated.gain) == (alone.score, alone.gain)  # no more labelled rows on one side
    if kind == "classes":
        assert calibrated.evaluation is not None
        assert alone.evaluation is not None
        before, after = alone.evaluation.joint, calibrated.evaluation.joint
        assert replace(after, calibration=before.calibration) == before != after
        shares = np.column_stack([table[f"probability_{name}"] for name in "abc"])
        np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-5)
        assert calibrated.adjustment.recalibration is not None
        chosen = calibrated.adjustment.recalibration.choose(shares)
        assert (np.array(list("abc"))[chosen] == table["prediction"]).all()
        assert not np.allclose(shares, predicted.probabilities, atol=1e-3)
    else:
        inside = (np.array(table["low"]) <= labels) & (labels <= np.array(table["high"]))
        assert inside.mean() >= 0.75
    for used in (given.table(5), given.table(9, 40)):  # shared, or scored
        with raising(InputError, "rows to calibrate on"):
            predict_rows(vault, given.study, given.table(9, 40), **options | {"scoring": Scoring(held_out=used)})


def test_boxes_have_the_size_of_the_format_and_a_bundle_is_within_its_limit(folder: Path) -> None:
    """Encapsulated keys and a tag beside a seed or a share with three masks: others refuse any other size."""
    given = make_sum_study(folder)
    box, length = 1088 + 32 + 16, sum_scheme(given.study).layout.size + 3
    shapes = {name: spec.shape for name, spec in sum_bundle_tensors(given.study).items()}
    assert shapes == {"seeds": (3, box + 32), "shares": (3, box + 8 * length)}
    size = given.share(0).stat().st_size
    assert size <= bundles.most_sum_bundle_bytes(given.study) < size + 2**16


def test_answers_have_room_for_all_participants_and_for_four_bundles_of_each(folder: Path) -> None:
    study = make_sum_study(folder, 5).study
    header = bundles.most_sum_bundle_bytes(study) - sum(spec.n_bytes for spec in sum_bundle_tensors(study).values())
    sizes = {
        answers.LIST: 5 * (32 + 32),
        answers.RECEIPT: 5 * 4 * (32 + 1),
        answers.SHARE: 8 * sum_scheme(study).layout.size,
    }
    assert {kind: answers.most_answer_bytes(study, kind) - header for kind in sizes} == sizes


def write_pictures(path: Path, n: int, seed: int) -> np.ndarray:
    """A table of pictures of 4 by 4, brighter to the left or to the right, and the encoded rows."""
    rng = np.random.default_rng(seed)
    rows, labels = rng.uniform(0, 1, (n, 16)).round(3), np.arange(n) % 2
    rows.reshape(n, 4, 4)[labels == 1, :, :2] *= 0.3
    lines = [",".join(map(str, [*row, "ab"[label]])) for row, label in zip(rows.round(4), labels, strict=True)]
    path.write_text("\n".join([",".join([*(f"x{k}" for k in range(16)), "y"]), *lines]) + "\n")
    return 2 * rows.round(4) - 1


def test_features_fitted_to_public_pictures_go_from_the_study_to_the_prediction(folder: Path) -> None:
    given = make_sum_study(folder, 4, epsilon=None, least_rows=40)
    settings = replace(given.study.mechanism, features="pictures", n_features=3)  # type: ignore[type-var]
    columns = tuple(Column(f"x{k}", "number", 0, 1) for k in range(16))
    label, members = Label("y", "classes", ("a", "b")), (given.study.participants, given.study.analyst)
    drafted = replace(given.study, columns=columns, label=label, image_shape=(4, 4), mechanism=settings)
    replace(drafted, participants=(), analyst=None).write(path := folder / "study.toml")
    public = write_pictures(folder / "public.csv", 50, 99)
    with raising(InputError, "public rows"):
        project_study(path, folder / "public.csv", components=51)
    made = project_study(path, folder / "public.csv").study
    assert Study.read(path) == made
    given = replace(given, study=Study.read(path).with_members(*members))
    features = study_features(given.study)
    fitted = fit_to_public(PictureFeatures(4, 4, 1, 3), public)
    np.testing.assert_array_equal(features.apply(public), fitted.apply(public))

    rows = [write_pictures(folder / f"pictures-{i}.csv", 40, i) for i in range(4)]
    for i in range(4):
        given.share(i, data=folder / f"pictures-{i}.csv")
    given.close()
    for i in range(4):
        given.combine(i)
    phi = features.apply(np.concatenate(rows))
    np.testing.assert_allclose(np.linalg.norm(phi, axis=1), 1)
    np.testing.assert_allclose(open_total(given.study, given.work, given.inbox).content.products, phi.T @ phi, atol=0.1)
    train_sums(given.study, given.work, given.inbox)
    deliver(given.study, given.work, folder / "results", given.analyst.signing_key)
    write_pictures(new := folder / "new.csv", 40, 7)
    predicted = predict_rows(given.vaults[3], given.study, new, result=folder / "results" / "p3")
    assert np.mean(predicted.values == np.array(list("ab"))[np.arange(40) % 2]) > 0.7

    file = folder / public_file_name(made)
    file.write_bytes(content := file.read_bytes()[:-8] + bytes(8))
    with raising(RefusedError, "the public projection", reason="not the one"):
        study_features(given.study)
    digest = hashlib.sha256(content[:-8] + np.array([np.inf]).tobytes()).hexdigest()
    file.write_bytes(content[:-8] + np.array([np.inf]).tobytes())
    with raising(RefusedError, "the public projection", reason="no matrix of"):
        study_features(replace(given.study, mechanism=replace(settings, features_digest=digest)))
    file.unlink()
    with raising(StorageError, "the public projection"):
        study_features(given.study)
    replace(made, mechanism=replace(settings, features="columns"), image_shape=()).write(path)
    with raising(InputError, "features"):
        project_study(path, folder / "public.csv")


def test_a_recorded_bundle_is_sent_again_as_it_is_whatever_the_table_holds_now(folder: Path) -> None:
    given = make_sum_study(folder)
    first = given.share(0).read_bytes()
    for table in (given.table(0), given.table(0, 31), folder / "gone.csv"):
        assert given.share(0, data=table).read_bytes() == first
    shutil.rmtree(given.vaults[0].folder / "studies")
    with raising(RefusedError, "the bundle"):
        given.share(0)


def test_nothing_about_the_rows_is_in_the_open_part_of_a_bundle(folder: Path) -> None:
    given = make_sum_study(folder)
    small, large = (given.share(i, data=given.table(i, n)) for i, n in ((0, 20), (1, 200)))
    assert small.stat().st_size == large.stat().st_size
    for path in (small, large):
        with path.open("rb") as file:
            _, fields = read_signed_header(file, kind=bundles.KIND, fields=bundles.FIELDS, what="the bundle")
        assert set(fields) == {"study", "nonce", "boxes", "proof", "signer", "data"}
        assert (len(str(fields["boxes"])), len(str(fields["proof"]))) == (6 * 64, 3 * 4 * 16)


def test_polynomials_and_masks_are_fresh_and_no_share_is_the_secret(folder: Path) -> None:
    given = make_sum_study(folder)
    vector, key = encode_signed(exact_sums(given, [0])), given.vaults[0].signing_key
    shares, masks = [], list[int]()
    for k in range(2):
        write_sum_bundle(path := folder / f"{k}.bundle", given.study, vector, key)
        shares.append([given.open_share(path, j) for j in range(1, 7)])
        with path.open("rb") as file:
            fields = bundles.read_box(file, given.study, 1).fields
        proof = np.frombuffer(bytes.fromhex(str(fields["proof"])), dtype="<u8").reshape(3, 4)
        for values, weights in zip(proof.tolist(), bundles._weights(given.study, fields, key.public), strict=True):
            masks.append((values[0] - weigh(vector, weights[: vector.size])) % PRIME)
    for first, second in combinations([share for of_bundle in shares for share in of_bundle], 2):
        assert (first != second).all()  # two combiners with one seed would open a contribution with fewer than t shares
    assert all((share != vector).mean() > 0.99 for of_bundle in shares for share in of_bundle)
    assert min(masks) > 2**40  # but for a chance of 2⁻²⁰
    assert len(set(masks)) == 6


@pytest.mark.parametrize("context", ["study", "sender", "combiner"])
def test_a_box_opens_only_for_its_study_sender_and_combiner(folder: Path, context: str) -> None:
    given = make_sum_study(folder)
    path, keys = given.share(0), [vault.signing_key for vault in given.vaults]
    with path.open("rb") as file:
        box = bundles.read_box(file, given.study, 2)
    key = given.vaults[1].combining_key(given.study.member("p1").combining_key)
    assert key is not None
    bundles.open_box(box, given.study, key)
    study = given.study
    if context == "study":
        study = replace(given.study, nonce="f" * 32)
    elif context == "sender":
        box = replace(box, member=given.study.member("p3"))
    else:
        box = replace(box, combiner=3)
    with raising(RefusedError, "the bundle", reason="was not sealed to its key"):
        bundles.open_box(box, study, key)
    assert len({key.public for key in keys}) == 6


def resign(given: SumStudy, source: Path, target: Path, signer: int, manifest: Path | None = None) -> None:
    """Put the boxes of one bundle, with its manifest or that of another, into a participant's, properly signed."""
    with source.open("rb") as file, (manifest or source).open("rb") as other:
        read_signed_header(file, kind=bundles.KIND, fields=bundles.FIELDS, what="")
        _, signed = read_signed_header(other, kind=bundles.KIND, fields=bundles.FIELDS, what="")
        data = file.read()
    arrays, position = {}, 0
    for name, spec in sum_bundle_tensors(given.study).items():
        arrays[name] = spec.decode(data[position : position + spec.n_bytes])
        position += spec.n_bytes
    fields = {name: signed[name] for name in bundles.FIELDS}
    write_signed(target, kind=bundles.KIND, fields=fields, arrays=arrays, signer=given.vaults[signer].signing_key)


def test_the_analyst_refuses_boxes_that_are_not_those_of_the_manifest(folder: Path) -> None:
    """All is signed, and every combiner would pass the bundle over: listed, it would keep all of them from answering."""
    given = make_sum_study(folder, p=3)
    first, second = given.share(0), folder / "second.bundle"
    write_sum_bundle(second, given.study, encode_signed(exact_sums(given, [0])), given.vaults[0].signing_key)
    resign(given, first, path := folder / "mixed.bundle", 0, manifest=second)
    with raising(RefusedError, "the bundle", reason="not those that were signed"):
        verify_sum_bundle(path, given.study)


def test_copied_boxes_double_nobody_and_use_up_no_answer(folder: Path) -> None:
    given = make_sum_study(folder, quorum=5)
    for i in range(5):
        given.share(i)
    resign(given, given.inbox / "p0.bundle", given.inbox / "p5.bundle", 5)
    given.close()  # the analyst cannot see it
    for i in range(5):
        with raising(RefusedError, "the bundle"):
            given.combine(i)
        assert Ledger(given.vaults[i].folder).find_answer(given.study.digest) is None
    for i in range(5):
        given.check_boxes(i)
    shutil.rmtree(given.work)
    closing = given.close(receipts=given.inbox)
    assert closing.left_out.keys() == {"p5"}
    assert not closing.doubted
    for i in range(6):
        given.combine(i)
    assert open_total(given.study, given.work, given.inbox).participants == ("p0", "p1", "p2", "p3", "p4")


def signed_list(given: SumStudy, entries: list[tuple[str, str]]) -> Path:
    path = given.folder / "crafted.list"
    rows = np.frombuffer(b"".join(bytes.fromhex(a + b) for a, b in entries), dtype=np.uint8).reshape(len(entries), 64)
    fields = {"study": given.study.digest, "count": len(entries)}
    write_signed(path, kind="closing list", fields=fields, arrays={"entries": rows}, signer=given.analyst.signing_key)
    return path


def list_entries(given: SumStudy) -> list[tuple[str, str]]:
    """An entry of a closing list for each bundle in the inbox."""
    bundles = [verify_sum_bundle(path, given.study) for path in sorted(given.inbox.glob("*.bundle"))]
    return [(bundle.member.signing_key, bundle.header_digest) for bundle in bundles]


def test_a_list_that_counts_twice_names_strangers_or_misses_the_quorum_is_answered_by_nobody(folder: Path) -> None:
    given = make_sum_study(folder, quorum=4)
    digests = {i: verify_sum_bundle(given.share(i), given.study).header_digest for i in range(6)}
    keys = [vault.signing_key.public for vault in given.vaults]
    whole = [(keys[i], digests[i]) for i in range(6)]
    zeros: Any = np.zeros(sum_scheme(given.study).layout.size, dtype=np.uint64)  # a colluder may sign what it likes
    write_sum_bundle(given.inbox / "again.bundle", given.study, zeros, given.vaults[4].signing_key)
    again = verify_sum_bundle(given.inbox / "again.bundle", given.study).header_digest
    crafted = {
        "two bundles of one sender": [whole[0], whole[5], whole[4], (keys[4], again)],
        "an entry twice": [*whole[:3], whole[0]],
        "a name twice": [*whole[:3], (keys[0], digests[4])],
        "a bundle twice": [*whole[:4], (keys[4], digests[0])],
        "quorum minus one": whole[:3],
        "a stranger": [*whole[:4], (given.analyst.signing_key.public, digests[5])],
        "another's bundle": [*whole[:3], (keys[3], digests[4])],
        "a bundle never seen": [*whole[1:4], (keys[4], "0" * 64)],
        "own bundle replaced": [*whole[1:4], (keys[0], digests[5])],
    }
    for entries in crafted.values():
        for combiner in (0, 5):
            vault = given.copy_vault(combiner)
            with raising(RefusedError, "the closing list"):
                given.combine(combiner, vault=vault, closing=signed_list(given, entries))
            shutil.rmtree(vault.folder)
    unsigned = write_closing_list(given.folder / "own.list", given.study, dict(whole[:4]), given.vaults[1].signing_key)
    assert unsigned
    with pytest.raises(RefusedError):
        given.combine(0, closing=given.folder / "own.list")
    given.combine(0, closing=signed_list(given, whole))


def test_a_combiner_answers_no_list_with_a_bundle_of_its_own_that_its_vault_did_not_record(folder: Path) -> None:
    """Whoever has a copy of its key can sign zeros in its name; in its own vault, too, the ledger decides."""
    given = make_sum_study(folder)
    for i in range(6):
        given.share(i)
    zeros: Any = np.zeros(sum_scheme(given.study).layout.size, dtype=np.uint64)
    write_sum_bundle(given.inbox / "p0.bundle", given.study, zeros, given.vaults[0].signing_key)
    closing = signed_list(given, list_entries(given))
    kept = given.vaults[0].study_path(given.study.folder_name) / bundles.KEPT
    for exchanged in (False, True):
        if exchanged:
            kept.write_bytes((given.inbox / "p0.bundle").read_bytes())
        with raising(RefusedError, "the closing list", reason="that this vault made"):
            given.combine(0, closing=closing)
    assert Ledger(given.vaults[0].folder).find_answer(given.study.digest) is None


def test_a_list_that_names_a_bundle_nobody_has_uses_up_no_answer(folder: Path) -> None:
    given = make_sum_study(folder, quorum=5)
    for i in range(6):
        given.share(i)
    given.close()
    digests = read_list(given.study, given.work).digests
    unknown = [(key, "0" * 64 if k == 3 else digest) for k, (key, digest) in enumerate(digests.items())]
    others = [i for i, vault in enumerate(given.vaults) if vault.signing_key.public != unknown[3][0]]
    for i in others:
        with raising(RefusedError, "the closing list"):
            given.combine(i, closing=signed_list(given, unknown))
    for i in range(6):
        given.combine(i)
    assert len(open_total(given.study, given.work, given.inbox).participants) == 6


def test_a_bundle_that_was_exchanged_is_not_added(folder: Path) -> None:
    given = make_sum_study(folder)
    for i in range(6):
        given.share(i)
    given.close()
    path = given.inbox / "p3.bundle"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1  # in the box of the last combiner
    path.write_bytes(data)
    with raising(RefusedError, "the closing list"):
        given.combine(5)
    assert given.combine(0)
    with raising(RefusedError, "the bundle", reason="not those that were signed"):
        verify_sum_bundle(path, given.study)


def test_one_list_is_answered_once_and_with_the_same_bytes(folder: Path) -> None:
    given = make_sum_study(folder, quorum=4)
    for i in range(5):
        given.share(i)
    given.close()
    for sums, n_warnings in ({}, 0), ({"epsilon": None, "least_rows": 500}, 4):  # beside noise, a class may be small
        study = replace(given.study, mechanism=replace(given.study.mechanism, **sums), smallest_class=1000)
        fit, warnings = check_table_fit(study, given.table(0))
        assert (fit.fits, len(warnings)) == (True, n_warnings)
    with raising(InputError, "study", cure="Nobody's rows"):
        Analyst(given.study, given.work).export(folder / "matrix.parquet")
    first = given.combine(0).read_bytes()
    assert given.combine(0, name="again").read_bytes() == first
    store, copy, path = fsspec.filesystem("memory"), given.copy_vault(1), folder / "from a store"
    for left_over in given.inbox.glob("*.bundle"):
        store.pipe(f"/sums/{left_over.name}", left_over.read_bytes())
    check_boxes(copy, given.study, "memory://sums", output=path)
    assert path.read_bytes() == given.check_boxes(1).read_bytes()
    problem = StorageError("the work folder", reason="the disk is full", cure="Make room.")
    full = patch("mooring.protocol.transport.inbox.download", side_effect=problem)
    with full, raising(StorageError, reason="is full"):
        check_boxes(copy, given.study, "memory://sums", output=folder / "not written")
    impatient, held = replace(copy, wait_seconds=0), hold_lock(copy.folder / "lock", what="it")
    with full, held, raising(StorageError, reason="is full"):  # downloaded while others work in the vault
        combine_shares(
            impatient, given.study, "memory://sums", given.work / "closing.list", output=folder / "not written"
        )
    Ledger((torn := given.copy_vault(2)).folder).record_answer(given.study.digest, "0" * 64)  # and no share was written
    with full, raising(RefusedError, "a second list"):  # before anything is downloaded
        combine_shares(torn, given.study, "memory://sums", given.work / "closing.list", output=folder / "not written")
    assert not (folder / "not written").exists()
    combine_shares(copy, given.study, "memory://sums", given.work / "closing.list", output=path)
    assert path.read_bytes() == given.combine(1).read_bytes()
    assert given.vaults[0].combining_key(given.study.member("p0").combining_key) is None
    given.share(5)
    with raising(RefusedError, "a second list"):
        given.combine(0, closing=signed_list(given, list_entries(given)))
    with raising(RefusedError, "a second list"):
        given.close()


def test_a_combiner_whose_key_is_gone_does_not_share(folder: Path) -> None:
    given = make_sum_study(folder, combiners=("p0", "p1", "p2"))
    for i in (0, 5):
        given.vaults[i].destroy_combining_key(given.study.member(f"p{i}").combining_key)
    with raising(StorageError, "the combining key"):
        given.share(0)
    assert Ledger(given.vaults[0].folder).entry(given.study.digest) is None
    assert given.share(5)  # it does not combine
    given.share(1)
    given.vaults[1].destroy_combining_key(given.study.member("p1").combining_key)
    assert given.share(1)  # the same bytes again
    with raising(StorageError, "the combining key"):
        given.check_boxes(1)


def test_keys_that_were_used_revoked_or_never_there_have_errors_of_their_own(folder: Path) -> None:
    given = make_sum_study(folder, p=3)
    given.share(0)
    assert [revoke_cards(vault) for vault in given.vaults[:2]] == [0, 1]  # the first has shared, and keeps its key
    with raising(StorageError, "the combining key", reason="revoked"):
        given.share(1)
    stranger = replace(given.vaults[2], folder=folder / "nothing")
    with raising(StorageError, "the combining key", reason="never held"):
        check_boxes(stranger, given.study, given.inbox, output=folder / "r")
    given.vaults[0].destroy_combining_key(given.study.member("p0").combining_key)
    with raising(StorageError, "the combining key", reason="answered the closing list"):
        given.check_boxes(0)
    fresh = given.vaults[1].draw_combining_key()
    assert given.vaults[1].combining_key(fresh) is not None


def test_from_a_store_a_combiner_fetches_headers_and_its_own_boxes(folder: Path) -> None:
    given, store = make_sum_study(folder, p=9, n_hats=5), fsspec.filesystem("memory")
    for i in range(9):
        store.pipe(f"/parts/{i}.bundle", given.share(i).read_bytes())
    whole = (given.inbox / "p0.bundle").stat().st_size
    store.pipe("/parts/short.bundle", b"")
    store.pipe("/parts/long.bundle", b"\xff" * 100)
    fetched = list[int]()

    class Remote(AbstractBufferedFile):
        """A file as object stores have them, which reads ahead unless it is asked not to."""

        def _fetch_range(self, start: int, end: int) -> bytes:
            data = bytes(store.cat_file(self.path, start, end))
            fetched.append(len(data))
            return data

    def open_remote(path: str, mode: str, **options: Any) -> Any:
        return Remote(store, path, mode, **options)

    with patch.object(store, "open", open_remote):
        for i in (0, 8):
            check_boxes(given.vaults[i], given.study, "memory://parts", output=folder / "from a store")
            (_, header), (_, box) = bundles.find_part(given.study, i + 1)
            assert sum(fetched) == 9 * (header + box) + 100  # of 'long', too, nothing is fetched beyond its end
            fetched.clear()
            assert (folder / "from a store").read_bytes() == given.check_boxes(i).read_bytes()
            assert all(read_receipt(folder / "from a store", given.study).passed.values())
    assert header + box < whole / 2


def test_of_many_lists_at_once_one_is_answered(folder: Path) -> None:
    assert Ledger(folder).entries() == ()

    def answer(k: int) -> bool:
        try:
            Ledger(folder).record_answer("study", f"list {k}")
        except RefusedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(answer, range(32))) == 1


def test_a_restored_combiner_and_mixed_lists_open_nothing(folder: Path) -> None:
    given = make_sum_study(folder, quorum=4)
    for i in range(6):
        given.share(i)
    restored = given.copy_vault(1)
    given.close()
    for i in range(1, 6):
        given.combine(i)
    assert open_total(given.study, given.work, given.inbox).participants == tuple(f"p{i}" for i in range(6))

    less = list_entries(given)[:5]
    (second := given.folder / "second").mkdir()
    shutil.copy(signed_list(given, less), second / "closing.list")
    given.combine(1, vault=restored, closing=second / "closing.list", name="restored")
    given.combine(0, closing=second / "closing.list", name="colluder")
    with raising(InputError, "shares"):  # two shares of this list; those of the first are not mixed in
        open_total(given.study, second, given.inbox)


def test_the_analyst_is_told_what_to_do_with_a_total_that_no_rows_have(folder: Path) -> None:
    """One participant's sums are so large that the model of the total would not be finite."""
    given = make_sum_study(folder, epsilon=1.0)
    for i in range(6):
        given.share(i)
    vector = np.full(given.open_vector(0).size, 10**15)
    write_sum_bundle(given.inbox / "p0.bundle", given.study, encode_signed(vector), given.vaults[0].signing_key)
    given.close()
    for i in range(1, 6):
        given.combine(i)
    with raising(RefusedError, "the total", cure="new study without that participant"):
        train_sums(given.study, given.work, given.inbox)


@pytest.mark.parametrize("spare", [2, 1, 0])
def test_a_wrong_share_is_named_told_or_refused(folder: Path, spare: int) -> None:
    given = make_sum_study(folder, p=8)
    t = sum_scheme(given.study).threshold.threshold
    assert t == 5
    through(given, range(8), combiners=range(t + spare))
    training = train_sums(given.study, given.work, given.inbox)
    assert training.checked == (spare > 0)
    wrong = read_combined_share(given.inbox / "p2.share", given.study)
    forged = np.random.default_rng(0).integers(PRIME, size=wrong.elements.size, dtype=np.uint64)
    write_combined_share(
        given.inbox / "p2.share",
        given.study,
        forged,
        combiner=3,
        list_digest=wrong.list_digest,
        signer=given.vaults[2].signing_key,
    )
    if spare == 2:
        training = train_sums(given.study, given.work, given.inbox)
        assert training.wrong == ("p2",)
        return
    with raising(RefusedError, "the total"):
        open_total(given.study, given.work, given.inbox)


def share_badly(given: SumStudy, i: int, change: Callable[[list[np.ndarray]], None]) -> Path:
    """Write a bundle whose last shares, those that are sent whole, were changed before they were sealed."""
    actual = bundles.split

    def bend(*args: Any) -> Any:
        shares = actual(*args)
        change(shares)
        return shares

    with patch.object(bundles, "split", bend):
        return given.share(i)


def test_a_sender_cannot_frame_a_combiner_nor_a_combiner_a_sender(folder: Path) -> None:
    given = make_sum_study(folder, p=9, quorum=7)
    assert sum_scheme(given.study).threshold.threshold == 7
    for i in range(8):
        given.share(i)

    def bend(shares: list[np.ndarray]) -> None:
        shares[-1][:] = (shares[-1] + np.uint64(7)) % np.uint64(PRIME)  # the last combiner's

    share_badly(given, 8, bend)
    for i in range(9):
        given.check_boxes(i)
    passed = read_receipt(given.inbox / "p8.receipt", given.study).passed
    bad = verify_sum_bundle(given.inbox / "p8.bundle", given.study).header_digest
    assert [digest for digest, is_good in passed.items() if not is_good] == [bad]
    assert all(read_receipt(given.inbox / f"p{i}.receipt", given.study).passed[bad] for i in range(8))
    lies = dict.fromkeys(passed, False)
    write_receipt(given.inbox / "p3.receipt", given.study, lies, combiner=4, signer=given.vaults[3].signing_key)
    closing = given.close(receipts=given.inbox)
    assert (closing.left_out.keys(), closing.doubted) == ({"p8"}, ("p3",))
    for i in (0, 1, 2, 4, 5, 6, 8):
        given.combine(i)
    total = open_total(given.study, given.work, given.inbox)
    assert total.participants == tuple(f"p{i}" for i in range(8))
    assert not total.wrong


def test_weights_follow_from_all_boxes_and_differ_from_test_to_test(folder: Path) -> None:
    """Weights that a sender knows beforehand let it send shares that pass and do not fit."""
    given = make_sum_study(folder)
    key, size = given.vaults[0].signing_key.public, sum_scheme(given.study).layout.size
    fields = {"boxes": "00" * 32 * 6}
    drawn = list(bundles._weights(given.study, fields, key))
    assert [weights[size:].tolist() for weights in drawn] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    others = [
        *bundles._weights(given.study, {"boxes": "00" * 191 + "01"}, key),
        *bundles._weights(given.study, fields, given.vaults[1].signing_key.public),
        *bundles._weights(replace(given.study, nonce="f" * 32), fields, key),
    ]
    vectors = [weights[:size] for weights in [*drawn, *others]]
    for first, second in itertools.combinations(vectors, 2):
        assert (first != second).all()
    assert all(len(set(vector.tolist())) == size for vector in vectors)
    with given.share(0).open("rb") as file:
        sent = bundles.read_box(file, given.study, 1).fields
    a, b = next(bundles._weights(given.study, sent, key))[:2].tolist()
    actual = bundles.split

    def cheat(*args: Any) -> Any:
        """Errors in two entries, which the weights of the earlier bundle would cancel."""
        shares = actual(*args)
        shares[-1][0] = (int(shares[-1][0]) + b) % PRIME
        shares[-1][1] = (int(shares[-1][1]) - a) % PRIME
        return shares

    with patch.object(bundles, "split", cheat):
        vector = encode_signed(exact_sums(given, [0]))
        write_sum_bundle(path := folder / "cheat.bundle", given.study, vector, given.vaults[0].signing_key)
    with raising(RefusedError, "the bundle", reason="does not fit"):
        given.open_share(path, 6)


@pytest.mark.parametrize("entry", [0, -1, -2, -3])
def test_a_share_that_is_wrong_in_one_entry_or_mask_fails(folder: Path, entry: int) -> None:
    given = make_sum_study(folder)

    def bend(shares: list[np.ndarray]) -> None:
        shares[1][entry] = (int(shares[1][entry]) + 1) % PRIME

    path = share_badly(given, 0, bend)
    for combiner in (1, 2, 3, 4, 6):
        given.open_share(path, combiner)
    with raising(RefusedError, "the bundle", reason="does not fit"):
        given.open_share(path, 5)


def test_a_combiner_needs_its_own_part_of_a_bundle_only(folder: Path) -> None:
    given = make_sum_study(folder)
    path = given.share(0)
    bundle = verify_sum_bundle(path, given.study)
    for combiner in range(1, 7):
        bundles.write_extract(bundle, given.study, combiner, part := folder / f"{combiner}.bundle")
        assert (given.open_share(part, combiner) == given.open_share(path, combiner)).all()
        assert part.stat().st_size < path.stat().st_size / 2
        with raising(RefusedError, "the bundle"):
            given.open_share(part, 7 - combiner)
        data = bytearray(part.read_bytes())
        data[-5] ^= 1
        part.write_bytes(data)
        with raising(RefusedError, "the bundle", reason="that was signed"):
            given.open_share(part, combiner)


def test_four_hospitals_finish_with_one_away_after_all_have_shared(folder: Path) -> None:
    given = make_sum_study(folder, p=4)
    through(given, range(4), combiners=[0, 1, 3])
    training = train_sums(given.study, given.work, given.inbox)
    assert training.contributors == ("p0", "p1", "p2", "p3")
    deliver(given.study, given.work, folder / "results", given.analyst.signing_key)
    for i in range(4):
        assert predict_rows(given.vaults[i], given.study, given.table(i), result=folder / "results" / f"p{i}")
    (given.inbox / "p3.share").unlink()
    with raising(InputError, "shares", expected="at least 3"):
        train_sums(given.study, given.work, given.inbox)
    (given.inbox / "p2.bundle").unlink()
    shutil.rmtree(given.work)
    with raising(InputError, "bundles"):
        given.close()


@pytest.mark.parametrize(
    ("floors", "reason"),
    [
        ({"threshold": 4}, "threshold of 3"),
        ({"n_colluders": 2}, "colluders of 1"),
        ({"most_pooled_epsilon": 1.82}, "pool keys, of 1.83"),
        ({"most_epsilon": 0.9}, "epsilon of 1"),
    ],
)
def test_a_vault_refuses_studies_below_its_floors(folder: Path, floors: dict[str, Any], reason: str) -> None:
    """Four hospitals at ε = 1: three who pool their keys would see one contribution at ε = 1.834."""
    given = make_sum_study(folder, p=4, floors=Floors(**floors))
    with raising(RefusedError, "the study", reason=reason):
        given.share(0)
    assert make_sum_study(folder / "kept", p=4, floors=Floors(most_pooled_epsilon=1.84, threshold=3)).share(0)


def test_absent_combiners_and_late_participants(folder: Path) -> None:
    given = make_sum_study(folder, p=7, quorum=5)
    assert sum_scheme(given.study).threshold.threshold == 6
    through(given, range(5), combiners=range(5))
    with raising(InputError, "shares"):
        train_sums(given.study, given.work, given.inbox)
    given.combine(6)  # shared nothing itself
    train_sums(given.study, given.work, given.inbox)
    assert given.share(5)  # too late for the list
    deliver(given.study, given.work, folder / "results", given.analyst.signing_key)
    for i in (5, 6):
        assert predict_rows(given.vaults[i], given.study, given.table(i), result=folder / "results" / f"p{i}")
    Ledger(given.vaults[5].folder).record_answer(given.study.digest, "0" * 64)  # as if it had answered another list
    with raising(RefusedError, "the model"):
        predict_rows(given.vaults[5], given.study, given.table(5), result=folder / "results" / "p5")


def test_what_spends_epsilon_is_counted_and_limited(folder: Path) -> None:
    given = make_sum_study(folder, floors=Floors(most_epsilon=4.0), epsilon=1.5)
    assert share_sums(given.vaults[0], given.study, given.table(0), output=folder / "a.bundle").spent == 0

    def again(nonce: str, **changes: Any) -> Study:
        member = make_member("p0", given.vaults[0], combines=True)
        return replace(
            given.study,
            nonce=nonce * 32,
            participants=(member, *given.study.participants[1:]),
            mechanism=replace(given.study.mechanism, **changes),
        )

    with raising(RefusedError, "the study"):  # the combining key of another study
        share_sums(given.vaults[0], replace(given.study, nonce="1" * 32), given.table(0), output=folder / "b.bundle")
    second = share_sums(given.vaults[0], again("1"), given.table(0, 30), output=folder / "b.bundle")
    assert (second.spent, second.epsilon_in_all) == (1.5, 3.0)
    with raising(RefusedError, "the upload"):
        share_sums(given.vaults[0], again("2"), given.table(0), output=folder / "c.bundle")
    with raising(RefusedError, "the upload"):  # by vault: other rows cost the same
        share_sums(given.vaults[0], again("3"), given.table(7), output=folder / "d.bundle")
    for study, what in ((again("4", epsilon=5.0), "the study"), (again("5", epsilon=None, least_rows=40), "the study")):
        with raising(RefusedError, what):
            share_sums(given.vaults[0], study, given.table(8), output=folder / "e.bundle")


def test_rows_that_went_out_mapped_do_not_go_into_sums_nor_the_reverse(folder: Path, small_study: Any) -> None:
    given = make_sum_study(folder / "own")
    named = {f"p{i}": vault for i, vault in enumerate(given.vaults)}
    rotated = vaulted_study(named, given.analyst, 2, 8, columns=given.study.columns, label=given.study.label)
    deal_anchor(given.vaults[0], rotated, anchor := folder / "a.anchor")
    way: dict[str, Any] = {"anchor": anchor, "output": folder / "r.bundle", "consent": Consent(labels=True)}
    share_rows(given.vaults[1], rotated, given.table(1), **way)
    with raising(RefusedError, "the upload"):
        given.share(1)
    given.share(2)
    with raising(RefusedError, "a second upload", reason="void the guarantee"):
        share_rows(given.vaults[2], rotated, given.table(2), **way)


def test_persons_count_as_the_study_says(folder: Path) -> None:
    given = make_sum_study(folder, person="who", rows_per_person=2)
    fine = [f"id {k // 2}" for k in range(30)]
    path = given.table(0, persons=fine)
    assert given.share(0, data=path)
    assert check_table_fit(given.study, path)[1] == []
    participant = Participant(given.study, given.vaults[1])
    path = given.table(1, persons=["id 1", *fine[1:-1], "ID 1 "])
    assert ["1 person has" in words for words in check_table_fit(given.study, path)[1]] == [True]
    assert any("1 person has" in words for words in participant.check(path).warnings)
    plain = make_sum_study(folder / "plain", 2).table(1)
    for step in (lambda: given.share(1, data=plain), lambda: participant.check(plain)):
        with raising(InputError, expected="which names persons"):
            step()
    mean = make_sum_study(folder / "mean", person="who", rows_per_person="mean", epsilon=None, least_rows=25)
    drawn: list[np.ndarray] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contribution, "encode_signed", lambda vector: drawn.append(vector) or encode_signed(vector))
        mean.share(0, data=mean.table(0, persons=["one"] * 10 + [str(k) for k in range(20)]))
    S, _ = sum_scheme(mean.study).layout.unpack(drawn[0])
    assert S[-1, -1] / sum_scheme(mean.study).features.constant_share == pytest.approx(21, rel=0.01)  # persons
    wider = make_sum_study(folder / "wider", person="who", rows_per_person=3)
    two, three = (sum_scheme(study.study).noise for study in (given, wider))
    assert two
    assert three
    assert three.on_products / two.on_products == pytest.approx(9 / 4, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"quorum": 1}, "quorum"),
        ({"quorum": 7}, "quorum"),
        ({"threshold": 1}, "threshold"),
        ({"threshold": 3}, "threshold"),  # 2t > k + c
        ({"threshold": 4, "quorum": 5}, "threshold"),  # 3t > 2k + c
        ({"combiners": ("p0", "nobody")}, "combiners"),
        ({"combiners": ("p0", "p0")}, "combiners"),
        ({"epsilon": None, "least_rows": 24}, "epsilon"),  # 15 numbers, 144 rows
        ({"n_colluders": 0}, "n_colluders"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 0.01}, "delta"),
        ({"person": "x0"}, "person"),
        ({"rows_per_person": 2}, "rows_per_person"),
        ({"rows_per_person": "mode", "person": "who"}, "rows_per_person"),
        ({"rows_per_person": 0, "person": "who"}, "rows_per_person"),
        ({"features": "pictures"}, "image_shape"),
        ({"features_digest": "0" * 64}, "features_digest"),
        ({"log_scaled": ("y",)}, "log_scaled"),
    ],
)
def test_studies_that_cannot_hold_are_refused_when_they_are_read(
    folder: Path, settings: dict[str, Any], what: str
) -> None:
    with raising(InputError, what):
        make_sum_study(folder, **settings)


def test_a_study_is_read_as_it_was_written(folder: Path) -> None:
    given = make_sum_study(
        folder, epsilon=None, person="who", rows_per_person=4, log_scaled=("x1",), n_hats=4, least_rows=150
    )
    given.study.write(path := folder / "study.toml")
    assert Study.read(path) == given.study
    path.write_text(path.read_text().replace('epsilon = "none"', 'epsilon = "nought"'))
    with pytest.raises(InputError):
        Study.read(path)


@pytest.mark.parametrize("kind", ["receipt", "share", "list", "bundle"])
def test_files_that_are_cut_or_changed_anywhere_are_refused(folder: Path, kind: str) -> None:
    given = make_sum_study(folder, p=3, n_colluders=1)
    through(given, range(3), combiners=[0])
    paths = {"list": given.work / "closing.list", "receipt": None, "share": given.inbox / "p0.share"}
    path = given.check_boxes(1) if kind == "receipt" else paths.get(kind) or given.inbox / "p1.bundle"
    read: dict[str, Callable[[Path, Study], object]] = {
        "receipt": read_receipt,
        "share": read_combined_share,
        "list": lambda item, study: combine_shares(
            given.vaults[2], study, given.inbox, item, output=folder / "x.share"
        ),
        "bundle": verify_sum_bundle,
    }
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [*range(0, 40, 9), *rng.integers(len(whole), size=12).tolist()]:
        bent = bytearray(whole)
        bent[at] ^= 1 << int(rng.integers(8))
        for content in (bytes(bent), whole[:at]):
            path.write_bytes(content)
            with pytest.raises(MooringError) as caught:
                read[kind](path, given.study)
            assert isinstance(caught.value, RefusedError | StorageError | InputError)
    path.write_bytes(whole)
    read[kind](path, given.study)


def test_a_receipt_says_yes_or_no_and_is_its_combiners(folder: Path) -> None:
    given, path = make_sum_study(folder, p=3, n_colluders=1), folder / "p1.receipt"
    key, passed = given.vaults[1].signing_key, {"ab" * 32: True, "cd" * 32: False}
    write_receipt(path, given.study, passed, combiner=2, signer=key)
    assert read_receipt(path, given.study).passed == passed
    for entries in ([b"\xab" * 32 + b"\x02"], [b"\xab" * 32 + b"\x01", b"\xab" * 32 + b"\x00"]):
        rows = np.frombuffer(b"".join(entries), dtype=np.uint8).reshape(len(entries), 33)
        fields = {"study": given.study.digest, "combiner": 2, "count": len(entries)}
        write_signed(path, kind="receipt", fields=fields, arrays={"entries": rows}, signer=key)
        with raising(RefusedError, "the receipt"):
            read_receipt(path, given.study)
    write_receipt(path, given.study, passed, combiner=3, signer=key)
    with raising(RefusedError, "the receipt", reason="that it speaks for"):
        read_receipt(path, given.study)


def test_files_of_another_study_are_refused_though_the_same_keys_signed_them(folder: Path) -> None:
    given = make_sum_study(folder, p=3)
    through(given, range(3), combiners=[0])
    receipt = given.check_boxes(1)
    readers: dict[Path, Callable[[Path, Study], object]] = {
        given.inbox / "p0.bundle": verify_sum_bundle,
        receipt: read_receipt,
        given.inbox / "p0.share": read_combined_share,
        given.work / "closing.list": read_closing_list,
    }
    for path, read in readers.items():
        read(path, given.study)
        with raising(RefusedError, reason="made for another study"):
            read(path, replace(given.study, nonce="f" * 32))


def test_the_analyst_and_a_colluding_combiner_hold_nothing_of_a_single_contribution(folder: Path) -> None:
    given = make_sum_study(folder)
    noisy: list[np.ndarray] = []
    actual = contribution.write_sum_bundle

    def seen(path: Path, study: Study, sums: np.ndarray, signer: Any) -> str:
        noisy.append(sums)
        return actual(path, study, sums, signer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contribution, "write_sum_bundle", seen)
        for i in range(6):
            given.share(i)
    for i in range(6):
        given.check_boxes(i)
    given.close(receipts=given.inbox)
    for i in range(6):
        given.combine(i)
    train_sums(given.study, given.work, given.inbox)
    deliver(given.study, given.work, folder / "results", given.analyst.signing_key)
    places = [given.inbox, given.work, folder / "results", given.vaults[0].folder, given.analyst.folder]
    files = (path for place in places for path in place.rglob("*") if path.is_file())
    held = b"".join(path.read_bytes() for path in files if path.name != "share.json")  # which counts its own rows
    exact = [exact_sums(given, [i]) for i in range(6)]
    for vector in itertools.chain(noisy[1:], exact[1:]):
        for start in range(0, vector.size - 2, 2):
            for form in ("<u8", "<i8", "<f8"):
                assert vector[start : start + 2].astype(form).tobytes() not in held
    counts = [f'"rows": {n}' for n in (30,)]
    assert not any(word.encode() in held for word in counts)


def test_a_combiner_that_is_killed_half_way_answers_the_same_list_afterwards(
    folder: Path, exit_code: Callable[[Callable[[], object]], int]
) -> None:
    given = make_sum_study(folder, p=4)
    for i in range(4):
        given.share(i)
    given.close()
    expected = given.combine(1, vault=given.copy_vault(1)).read_bytes()
    for name in ("open_box", "write_combined_share", "copy_atomically"):

        def action(name: str = name) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(combination, name, lambda *_, **__: os._exit(77))
                given.combine(1)

        assert exit_code(action) == 77
    assert given.combine(1).read_bytes() == expected
    assert given.vaults[1].combining_key(given.study.member("p1").combining_key) is None


@pytest.mark.parametrize(("epsilon", "limit", "within"), [(1.0, 3, True), (1.0, 2, False), (None, 99, False)])
def test_a_model_of_sums_has_the_risk_that_its_noise_allows(
    folder: Path, epsilon: float | None, limit: int, within: bool
) -> None:
    given = make_sum_study(folder, epsilon=epsilon, least_rows=25, model_limit=f"membership at most {limit} %")
    through(given, range(6))
    train_sums(given.study, given.work, given.inbox)
    results = folder / "results"
    if not within:
        cure = "smaller epsilon" if epsilon else "with noise"  # no learner changes the bound
        with raising(RefusedError, "the delivery", cure=cure):
            deliver(given.study, given.work, results, given.analyst.signing_key)
        deliver(given.study, given.work, results, given.analyst.signing_key, override="board: a trial")
    else:
        deliver(given.study, given.work, results, given.analyst.signing_key)
    predicted = predict_rows(given.vaults[1], given.study, given.table(1), result=results / "p1")
    release, shown = predicted.release, predicted._repr_html_()
    assert release is not None
    assert f"{release.risk:.1%}" in shown
    assert ("board: a trial" in shown) == (not within)
    assert release.override == ("" if within else "board: a trial")
    assert release.risk == (1.0 if epsilon is None else pytest.approx(math.e * 0.01 + 1e-5))
    if not within:  # an analyst that signs another risk than the study's noise has
        source = read_list(given.study, given.work).digest
        model, _ = read_training(given.work, TrainingRecord, given.study, specifier_of(given.study), made_from=source)
        key = given.analyst.signing_key
        write_delivered_model(results / "p1" / MODEL_FILE, given.study, model, source, key, Release(0.0))
        with raising(RefusedError, "the result"):
            predict_rows(given.vaults[1], given.study, given.table(1), result=results / "p1")
