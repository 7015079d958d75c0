"""The analyst's way: what is taken, what is set aside, who does not fit, what is trained and delivered."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest

from mooring import RigidMap, atomic_io, make_anchor
from mooring.errors import InputError, RefusedError, StorageError
from mooring.learners import train_learner
from mooring.learners.onnx_export import to_onnx
from mooring.protocol.analyst import collaboration_matrix as collaboration_file
from mooring.protocol.analyst.alignment import align_bundles
from mooring.protocol.analyst.alignment_state import read_space
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import collect
from mooring.protocol.analyst.outliers import Fits, measure_fits
from mooring.protocol.analyst.role import Analyst
from mooring.protocol.analyst.training import train
from mooring.protocol.crypto.keys import SealingKey, SigningKey
from mooring.protocol.messages.bundle import Bundle, verify_bundle, write_bundle
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.result import MAP_FILE, read_result
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.messages.study import Study
from mooring.tables.schema import Column, Label
from mooring.theory import transition_scale

ANALYST = SigningKey.generate()
KEYS = [SigningKey.generate() for _ in range(12)]
SEALING = [SealingKey.generate().public for _ in range(12)]


def make(
    p: int = 4, h: int = 6, r: int = 24, v: float = 0.05, kind: str = "classes", method: str = "aa-i-gdp-anchor-noise"
) -> Study:
    labels = {
        "classes": Label("y", "classes", ("well", "ill")),
        "number": Label("y", "number", low=-50.0, high=50.0),
        "none": Label(),
    }
    return Study(
        name="trial",
        nonce="0" * 32,
        columns=tuple(Column(f"x{k}", "number", low=-1, high=1) for k in range(h)),
        label=labels[kind],
        method=method,
        n_components=h,
        n_anchor_rows=r,
        anchor_noise_scale=v if "anchor" in method else 0.0,
        participants=tuple(Member(f"site-{k}", KEYS[k].public, SEALING[k]) for k in range(p)),
        analyst=Member("analyst", ANALYST.public),
    )


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
    h, v = study.n_components, study.anchor_noise_scale
    anchor = make_anchor(study.n_anchor_rows, h, rng=rng)
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


def bundles_of(study: Study, folder: Path) -> list[Bundle]:
    return [verify_bundle(path, study) for path in sorted(folder.glob("*.bundle"))]


def garbage(study: Study, seed: int = 0) -> np.ndarray:
    """As large as an honest anchor representation, and nothing else in common with it."""
    r, h, v = study.n_anchor_rows, study.n_components, study.anchor_noise_scale
    drawn = np.random.default_rng([seed, 99]).standard_normal((r, h))
    drawn -= drawn.mean(axis=0)
    return drawn * math.sqrt(h * (1 + v**2 * (r - 1))) / np.linalg.norm(drawn)


def spread_of(space: Any, sites: Sequence[Site], whom: Sequence[int]) -> float:
    """How far the effective maps of honest participants are from each other, entry by entry."""
    effective = [
        np.asarray(sites[who].secret.orthogonal) @ space.orthogonals[space.names.index(f"site-{who}")] for who in whom
    ]
    return float(np.abs(np.array(effective) - effective[0]).max())


# what is taken, and what is not


def test_what_holds_up_is_taken_and_everything_else_is_set_aside_with_its_reason(tmp_path: Path) -> None:
    study = make(p=5)
    inbox = tmp_path / "inbox"
    sites = sent(study, inbox, [0, 1])
    torn = send(study, sites[2], 2, inbox)
    torn.write_bytes(torn.read_bytes()[:-1])
    send(study, replace(sites[3], anchor_representation=1000 * sites[3].anchor_representation), 3, inbox)
    send(make(p=5, v=0.06), sites[4], 4, inbox)
    send(study, sites[4], 7, inbox, "stranger.bundle")
    (inbox / "folder.bundle").mkdir()
    (inbox / "nowhere.bundle").symlink_to(inbox / "nothing")
    (inbox / "letter.txt").write_text("not looked at")
    (inbox / "new\nline\x1b[31m.bundle").write_text("no bundle")
    intake = collect(study, inbox, tmp_path / "work")
    assert [bundle.member.name for bundle in intake.bundles] == ["site-0", "site-1"]
    assert intake.missing == ("site-2", "site-3", "site-4")
    reasons = {entry.file: entry.reason for entry in intake.set_aside}
    assert "length" in reasons["site-2.bundle"]
    assert "times as large" in reasons["site-3.bundle"]
    assert "another study" in reasons["site-4.bundle"]
    assert "roster" in reasons["stranger.bundle"]
    assert reasons["folder.bundle"] == "it is a folder"
    assert "not there" in reasons["nowhere.bundle"]
    assert "new?line?[31m.bundle" in reasons
    assert len(reasons) == 7
    record = json.loads((tmp_path / "work" / "intake.json").read_text())
    assert record["missing"] == ["site-2", "site-3", "site-4"]
    assert record["accepted"][0]["name"] == "site-0"


def test_a_copy_counts_once_and_of_two_different_bundles_none(tmp_path: Path) -> None:
    study, inbox = make(), tmp_path / "inbox"
    sites = sent(study, inbox)
    send(study, sites[0], 0, inbox, "copy.bundle")
    send(study, replace(sites[1], rows=sites[1].rows[::-1]), 1, inbox, "again.bundle")
    intake = collect(study, inbox, tmp_path / "work")
    assert [bundle.member.name for bundle in intake.bundles] == ["site-0", "site-2", "site-3"]
    assert sorted(entry.file for entry in intake.set_aside) == ["again.bundle", "site-0.bundle", "site-1.bundle"]
    assert intake.missing == ("site-1",)


def test_the_first_bundle_that_was_accepted_stays(tmp_path: Path) -> None:
    study, inbox, work = make(), tmp_path / "inbox", tmp_path / "work"
    sites = sent(study, inbox, [0, 1])
    first = collect(study, inbox, work).bundles[0].digest
    send(study, replace(sites[0], rows=-sites[0].rows), 0, inbox, "a-second.bundle")
    again = collect(study, inbox, work)
    assert again.bundles[0].digest == first
    assert [entry.file for entry in again.set_aside] == ["a-second.bundle"]
    (inbox / "site-0.bundle").unlink()
    gone = collect(study, inbox, work)
    assert [bundle.member.name for bundle in gone.bundles] == ["site-1"]
    assert gone.gone == ("site-0",)
    assert gone.missing == ("site-0", "site-2", "site-3")
    send(study, sites[0], 0, inbox)
    assert collect(study, inbox, work).bundles[0].digest == first


def test_bundles_come_from_any_address_and_too_large_ones_stay_there(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    study, inbox = make(), tmp_path / "inbox"
    sent(study, inbox, [0, 1])
    memory = fsspec.filesystem("memory")
    for path in inbox.iterdir():
        memory.pipe(f"/mooring-test/{path.name}", path.read_bytes())
    memory.pipe("/mooring-test/site-9.bundle", bytes(200_000))
    memory.pipe("/mooring-test/deeper/site-2.bundle", b"not looked at")
    intake = collect(study, "memory://mooring-test", tmp_path / "work", most_bytes=100_000)
    assert [bundle.member.name for bundle in intake.bundles] == ["site-0", "site-1"]
    assert [(entry.file, entry.reason) for entry in intake.set_aside] == [
        ("site-9.bundle", "it is larger than any bundle may be")
    ]
    assert len(list((tmp_path / "work" / "received").iterdir())) == 2
    with pytest.raises(StorageError, match="cannot be listed"):
        collect(study, "memory://nothing-here", tmp_path / "work")


def test_a_stream_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/mooring-endless/site-0.bundle", bytes(10))

    class Endless:
        def __enter__(self) -> "Endless":
            return self

        def __exit__(self, *_: object) -> None: ...

        def read(self, size: int) -> bytes:
            return bytes(size)

    monkeypatch.setattr(type(memory), "open", lambda *_: Endless())
    intake = collect(make(), "memory://mooring-endless", tmp_path / "work", most_bytes=10_000_000)
    assert "larger" in intake.set_aside[0].reason
    assert list((tmp_path / "work" / "received").iterdir()) == []


def test_an_inbox_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not there"):
        collect(make(), tmp_path / "nothing", tmp_path / "work")


# alignment


@pytest.mark.parametrize("method", ["aa-i-gdp-anchor-noise", "aa-i-gdp"])
def test_everybodys_rows_meet_in_one_space(method: str, tmp_path: Path) -> None:
    study, inbox, work = make(method=method, v=0.001), tmp_path / "inbox", tmp_path / "work"
    sites = sent(study, inbox)
    aligned = align_bundles(study, bundles_of(study, inbox), work)
    assert aligned.set_aside == ()
    assert spread_of(aligned.space, sites, range(4)) < 0.02
    table = pq.read_table(work / "collaboration.parquet")
    assert table.column_names == ["participant", "label", *(f"z{k + 1}" for k in range(6))]
    assert str(table.schema.field("z1").type) == "float"
    rows = np.column_stack([table[f"z{k + 1}"].to_numpy() for k in range(6)]).astype(np.float64)
    raw = np.concatenate([site.rows for site in sites])
    distances = np.linalg.norm(rows[::17, None] - rows[None, ::17], axis=2)
    assert np.allclose(distances, np.linalg.norm(raw[::17, None] - raw[None, ::17], axis=2), atol=0.05)
    words = [study.label.classes[label] for site in sites for label in site.labels]
    assert table["label"].to_pylist() == words
    assert table["participant"].to_pylist() == [f"site-{who}" for who in range(4) for _ in range(60)]
    record = json.loads((work / "alignment.json").read_text())
    assert (record["certificate"] is None) == (method == "aa-i-gdp")
    assert [entry["name"] for entry in record["participants"]] == [f"site-{k}" for k in range(4)]
    assert min(entry["fit"] for entry in record["participants"]) > 0.99


def test_one_bundle_cannot_be_aligned(tmp_path: Path) -> None:
    study = make()
    sent(study, tmp_path / "inbox", [2])
    with pytest.raises(InputError, match="wait for a second"):
        align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work")


def test_newcomers_are_admitted_and_nobody_else_moves(tmp_path: Path) -> None:
    study, inbox, work = make(p=5, v=0.01), tmp_path / "inbox", tmp_path / "work"
    sites = sent(study, inbox, [0, 1, 3])
    align_bundles(study, bundles_of(study, inbox), work)
    deliver(study, work, tmp_path / "before", ANALYST)
    before = read_space(work, study)
    (inbox / "site-0.bundle").unlink()
    send(study, sites[4], 4, inbox)
    send(study, replace(sites[2], anchor_representation=garbage(study)), 2, inbox)
    aligned = align_bundles(study, bundles_of(study, inbox), work, late=True)
    assert (aligned.newcomers, aligned.set_aside) == (("site-4",), ("site-2",))
    after = read_space(work, study)
    assert after.names == ("site-0", "site-1", "site-3", "site-4")
    assert after.orthogonals[:3].tobytes() == before.orthogonals.tobytes()
    assert spread_of(after, sites, [0, 1, 3, 4]) < 0.1
    deliver(study, work, tmp_path / "after", ANALYST)
    for who in (0, 1, 3):
        kept = [(tmp_path / when / f"site-{who}" / MAP_FILE).read_bytes() for when in ("before", "after")]
        assert kept[0] == kept[1]
    counts = pq.read_table(work / "collaboration.parquet")["participant"].to_pylist()
    assert [counts.count(f"site-{who}") for who in range(5)] == [60, 60, 0, 60, 60]
    assert align_bundles(study, bundles_of(study, inbox), work, late=True).newcomers == ()


def test_late_needs_an_alignment_to_join(tmp_path: Path) -> None:
    study = make()
    sent(study, tmp_path / "inbox")
    with pytest.raises(StorageError, match="mooring align"):
        align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", late=True)


def test_a_bundle_that_changes_while_it_is_read_stops_the_alignment(tmp_path: Path) -> None:
    study, inbox = make(), tmp_path / "inbox"
    sites = sent(study, inbox)
    bundles = bundles_of(study, inbox)
    send(study, replace(sites[1], rows=-sites[1].rows), 1, inbox)
    with pytest.raises(RefusedError, match="site-1 changed while it was read"):
        align_bundles(study, bundles, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


# threat 11: planted attackers


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize(("p", "h", "r"), [(5, 13, 52), (10, 20, 80), (6, 30, 31)])
def test_garbage_as_large_as_an_honest_upload_is_flagged(p: int, h: int, r: int, share: float, tmp_path: Path) -> None:
    study = make(p=p, h=h, r=r, v=share * transition_scale(p, h, r))
    for seed in range(3):
        inbox, work = tmp_path / f"inbox{seed}", tmp_path / f"work{seed}"
        sites = sent(study, inbox, seed=seed, n=20)
        send(study, replace(sites[0], anchor_representation=garbage(study, seed)), 0, inbox)
        aligned = align_bundles(study, bundles_of(study, inbox), work, certify=False)
        assert aligned.set_aside == ("site-0",)
        assert aligned.as_dict()["set_aside"][0]["flagged"] is True
        assert aligned.as_dict()["note"] == ""
        without = align_bundles(study, bundles_of(study, inbox)[1:], tmp_path / "clean", certify=False)
        assert spread_of(aligned.space, sites, range(1, p)) == pytest.approx(
            spread_of(without.space, sites, range(1, p))
        )
        if seed == 0:
            assert without.set_aside == ()


def test_honest_participants_are_never_flagged_up_to_the_transition() -> None:
    for p, h, r in ((4, 13, 52), (8, 6, 24), (5, 20, 21)):
        transition = transition_scale(p, h, r)
        for seed in range(50):
            study = make(p=p, h=h, r=r, v=(0.05, 0.3, 0.6, 0.9, 0.999)[seed % 5] * transition)
            assert _flagged(study, sites_of(study, n=1, seed=seed)) == []


def test_above_the_transition_nobody_is_flagged_and_that_is_said(tmp_path: Path) -> None:
    study = make(p=4, h=13, r=52, v=2 * transition_scale(4, 13, 52))
    sites = sent(study, tmp_path / "inbox", n=5)
    send(study, replace(sites[0], anchor_representation=garbage(study)), 0, tmp_path / "inbox")
    aligned = align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", certify=False)
    assert aligned.set_aside == ()
    assert "hardly better than garbage" in aligned.as_dict()["note"]


def test_a_rank_poor_upload_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    study, inbox = make(), tmp_path / "inbox"
    sites = sent(study, inbox)
    flat = np.repeat(sites[0].anchor_representation[:, :1], 6, axis=1)
    flat *= np.sqrt(6 * (1 + 0.05**2 * 23)) / np.linalg.norm(flat - flat.mean(axis=0))
    send(study, replace(sites[0], anchor_representation=flat), 0, inbox)
    assert align_bundles(study, bundles_of(study, inbox), tmp_path / "work").set_aside == ("site-0",)


def test_a_fit_is_one_without_noise_and_garbage_is_far_below() -> None:
    anchor = make_anchor(40, 10, rng=np.random.default_rng(5))
    fits = measure_fits([anchor, anchor, anchor])
    assert fits.values == pytest.approx(1)
    assert 0.2 < fits.garbage < 0.6
    assert fits.can_tell


def _flagged(study: Study, sites: Sequence[Site]) -> list[int]:
    from mooring.protocol.analyst.alignment import _set_outliers_aside
    from mooring.protocol.analyst.anchor_source import LocalAnchors

    here = LocalAnchors()
    bundles = [
        Bundle(member, "", 1, "", site.anchor_representation, Path(), {}, study.n_components, "none")
        for member, site in zip(study.participants, sites, strict=True)
    ]
    left, _ = _set_outliers_aside(study, bundles, here.solve(study, bundles).fits, here)
    return [index for index, bundle in enumerate(bundles) if bundle not in left]


# training, export, delivery


def prepared(study: Study, tmp_path: Path, **settings: Any) -> tuple[Path, list[Site]]:
    sites = sent(study, tmp_path / "inbox", **settings)
    align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", certify=False)
    return tmp_path / "work", sites


@pytest.mark.parametrize("learner", ["auto", "linear"])
@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_model_is_scored_across_participants_and_goes_home(kind: str, learner: str, tmp_path: Path) -> None:
    study = make(kind=kind, v=0.005)
    work, sites = prepared(study, tmp_path)
    seen: list[tuple[float, float]] = []
    found = train(study, work, learner=learner, progress=lambda done, total: seen.append((done, total)))
    assert found.score.value > 0.75
    assert [name for name, _ in found.participants] == [f"site-{k}" for k in range(4)]
    assert len(found.alone) == 4
    assert found.score.n == found.rows == found.rows_used == 240
    assert seen[-1] == (9, 9)
    record = json.loads((work / "training.json").read_text())
    assert record["learner"] == "linear"
    assert record["score"]["n"] == 240
    delivered = deliver(study, work, tmp_path / "results", ANALYST)
    assert delivered.delivered == ("site-0", "site-1", "site-2", "site-3")
    assert delivered.model_digest == record["model_digest"]
    for who, site in enumerate(sites):
        result = read_result(tmp_path / "results" / f"site-{who}", study, study.participants[who])
        assert result.model is not None
        expected_mean = site.anchor_representation.astype(np.float32).astype(np.float64).mean(axis=0)
        assert result.mean.tobytes() == expected_mean.tobytes()
        brought = result.apply(site.representation)
        assert np.allclose(brought, (site.representation - result.mean) @ result.orthogonal + result.origin)
        predicted = result.model.predict(brought)
        if kind == "classes":
            assert np.mean(predicted == site.labels) > 0.8
        else:
            assert np.corrcoef(predicted, site.labels)[0, 1] > 0.9


def test_more_than_ten_participants_are_left_out_in_ten_groups(tmp_path: Path) -> None:
    study = make(p=12)
    work, _ = prepared(study, tmp_path, n=12)
    seen: list[tuple[float, float]] = []
    found = train(study, work, learner="linear", progress=lambda done, total: seen.append((done, total)))
    assert len(found.participants) == 12
    assert seen[-1] == (10 + 12 + 1,) * 2


def test_of_too_many_rows_each_gives_its_share(tmp_path: Path) -> None:
    study = make()
    work, _ = prepared(study, tmp_path)
    found = train(study, work, learner="linear", most_rows=100)
    assert (found.rows, found.rows_used) == (240, 100)
    assert [own.n for _, own in found.participants] == [25, 25, 25, 25]


def test_a_study_without_labels_has_nothing_to_train_but_can_be_exported_and_delivered(tmp_path: Path) -> None:
    study = make(kind="none")
    work, _ = prepared(study, tmp_path)
    with pytest.raises(InputError, match="mooring export"):
        train(study, work)
    analyst = Analyst(study, work, ANALYST)
    table = pq.read_table(analyst.export(tmp_path / "matrix.parquet"))
    assert table.column_names == ["participant", *(f"z{k + 1}" for k in range(6))]
    with pytest.raises(InputError, match="--force"):
        analyst.export(tmp_path / "matrix.parquet")
    analyst.export(tmp_path / "matrix.parquet", force=True)
    assert analyst.deliver(tmp_path / "results").model_digest == ""
    assert read_result(tmp_path / "results" / "site-1", study, study.participants[1]).model is None


def test_an_engine_is_asked_for_every_long_step(tmp_path: Path) -> None:
    """And told everything; what it says is what the analyst gets."""
    study, told = make(), Notes()
    analyst = Analyst(study, tmp_path, ANALYST, told)
    assert analyst.collect("inbox", progress=print) == "collected"
    assert analyst.align(["bundle"], late=True, certify=False, progress=print) == "aligned"  # type: ignore[list-item]
    assert analyst.train("linear", seed=3, progress=print) == "trained"
    assert told.steps == [
        ("collect", study, "inbox", tmp_path, {"progress": print}),
        ("align", study, ["bundle"], tmp_path, {"late": True, "certify": False, "progress": print}),
        ("train", study, tmp_path, {"learner": "linear", "seed": 3, "progress": print}),
    ]


class Notes:
    """An engine that does nothing but write down what it is asked for."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []

    def collect(self, *given: Any, **options: Any) -> Any:
        self.steps.append(("collect", *given, options))
        return "collected"

    def align(self, *given: Any, **options: Any) -> Any:
        self.steps.append(("align", *given, options))
        return "aligned"

    def train(self, *given: Any, **options: Any) -> Any:
        self.steps.append(("train", *given, options))
        return "trained"


def test_a_model_of_an_earlier_alignment_is_not_delivered(tmp_path: Path) -> None:
    study = make()
    work, _ = prepared(study, tmp_path)
    train(study, work, learner="linear")
    align_bundles(study, bundles_of(study, tmp_path / "inbox")[1:], work)
    with pytest.raises(InputError, match="mooring train"):
        deliver(study, work, tmp_path / "results", ANALYST)
    train(study, work, learner="linear")
    deliver(study, work, tmp_path / "results", ANALYST)


def test_an_interrupted_alignment_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make()
    work, _ = prepared(study, tmp_path)
    kept = (work / "alignment.safetensors").read_bytes()
    align_bundles(study, bundles_of(study, tmp_path / "inbox")[1:], work)
    (work / "alignment.safetensors").write_bytes(kept)
    with pytest.raises(StorageError, match="interrupted"):
        train(study, work)


def test_a_kill_at_every_write_leaves_what_was_or_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make(v=0.01)
    work, _ = prepared(study, tmp_path)
    sites = sites_of(study)
    (tmp_path / "inbox" / "site-3.bundle").unlink()
    align_bundles(study, bundles_of(study, tmp_path / "inbox"), work, certify=False)
    send(study, sites[3], 3, tmp_path / "inbox")
    before = read_space(work, study).orthogonals.tobytes()
    bundles = bundles_of(study, tmp_path / "inbox")
    replaced, calls = os.replace, 0
    for kill_at in range(4):
        calls = 0

        def failing(*paths: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > kill_at:  # noqa: B023
                raise KeyboardInterrupt
            replaced(*paths)

        monkeypatch.setattr(atomic_io.os, "replace", failing)
        if kill_at < 3:
            with pytest.raises(KeyboardInterrupt):
                align_bundles(study, bundles, work, late=True)
        monkeypatch.setattr(atomic_io.os, "replace", replaced)
        assert read_space(work, study).orthogonals[:3].tobytes() == before
        if read_space(work, study).names[-1] == "site-3":
            break
    align_bundles(study, bundles, work, late=True)
    assert read_space(work, study).orthogonals[:3].tobytes() == before
    assert sum(len(rows) for _, rows, _ in collaboration_file.read_blocks(work, study, read_space(work, study))) == 240


def test_only_the_studys_analyst_can_deliver(tmp_path: Path) -> None:
    study = make()
    work, _ = prepared(study, tmp_path)
    with pytest.raises(RefusedError, match="not that of the study's analyst"):
        deliver(study, work, tmp_path / "results", KEYS[0])
    with pytest.raises(InputError, match="signing_key"):
        Analyst(study, work).deliver(tmp_path / "results")


# what a participant refuses (threat 13)


def crafted(
    study: Study, folder: Path, *, signer: SigningKey = ANALYST, fields: dict[str, str] | None = None, **arrays: Any
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    h = study.n_components
    member = study.participants[0]
    own = {
        "study": study.digest,
        "participant": member.name,
        "key": member.signing_key,
        "bundle": "0" * 64,
        "model": "",
    }
    plain = {"orthogonal": np.eye(h), "mean": np.zeros(h), "origin": np.zeros(h)}
    write_signed(
        folder / MAP_FILE, kind="map", fields={**own, **(fields or {})}, arrays={**plain, **arrays}, signer=signer
    )
    return folder


def test_a_plain_map_is_accepted(tmp_path: Path) -> None:
    study = make()
    assert read_result(crafted(study, tmp_path / "r"), study, study.participants[0]).model is None


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("somebody else", {"signer": KEYS[1]}),
        ("another study", {"fields": {"study": "0" * 64}}),
        ("another participant's", {"fields": {"participant": "site-1"}}),
        ("another participant's", {"fields": {"key": KEYS[1].public}}),
        ("not orthogonal", {"orthogonal": 1.001 * np.eye(6)}),
        ("not orthogonal", {"orthogonal": np.zeros((6, 6))}),
        ("not orthogonal", {"orthogonal": np.eye(6) + 1e-7}),
        ("further than", {"origin": np.full(6, 1e9)}),
        ("further than", {"mean": np.full(6, -1e300)}),
        ("not finite", {"origin": np.full(6, np.nan)}),
        ("not finite", {"orthogonal": np.full((6, 6), np.inf)}),
        ("type and shape", {"orthogonal": np.eye(7)}),
        ("type and shape", {"mean": np.zeros(6, dtype=np.float32)}),
        ("type and shape", {"more": np.zeros(6)}),
        ("nothing else", {"fields": {"extra": "word"}}),
    ],
)
def test_a_crafted_map_is_refused(reason: str, settings: dict[str, Any], tmp_path: Path) -> None:
    study = make()
    with pytest.raises(RefusedError, match=reason):
        read_result(crafted(study, tmp_path / "r", **settings), study, study.participants[0])


@pytest.mark.parametrize(
    "tamper", [lambda data: data[:-1], lambda data: data + b"\x00", lambda _: b"", lambda _: b"pickle"]
)
def test_a_model_other_than_the_signed_one_is_refused(tamper: Callable[[bytes], bytes], tmp_path: Path) -> None:
    study = make()
    work, _ = prepared(study, tmp_path)
    train(study, work, learner="linear")
    deliver(study, work, tmp_path / "results", ANALYST)
    path = tmp_path / "results" / "site-0" / "model.onnx"
    path.write_bytes(tamper(path.read_bytes()))
    with pytest.raises(RefusedError, match="not the one that the analyst signed"):
        read_result(path.parent, study, study.participants[0])


def test_a_hostile_model_is_refused_even_if_the_analyst_signed_it(tmp_path: Path) -> None:
    import hashlib

    study, evil = make(), b"\x80\x04cos\nsystem\n"
    folder = crafted(study, tmp_path / "r", fields={"model": hashlib.sha256(evil).hexdigest()})
    with pytest.raises(StorageError):
        read_result(folder, study, study.participants[0])
    (folder / "model.onnx").write_bytes(evil)
    with pytest.raises(RefusedError, match="the model is refused"):
        read_result(folder, study, study.participants[0])


def test_where_most_look_like_garbage_nobody_is_flagged() -> None:
    near = Fits(np.array([0.50, 0.52, 0.51, 0.1]), garbage=0.45, spread=0.05)
    assert not near.can_tell
    assert not near.near_garbage.any()
    far = Fits(np.array([0.80, 0.82, 0.81, 0.5]), garbage=0.45, spread=0.05)
    assert far.near_garbage.tolist() == [False, False, False, True]


def test_from_the_transition_on_the_note_is_there_even_if_most_still_fit(tmp_path: Path) -> None:
    study = make(p=10, h=10, r=40, v=1.05 * transition_scale(10, 10, 40))
    sent(study, tmp_path / "inbox", n=5)
    aligned = align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", certify=False)
    assert "nobody was checked" in aligned.as_dict()["note"]


def test_labels_that_follow_from_nothing_score_as_chance(tmp_path: Path) -> None:
    """A score on rows that the learner was trained on would be near one."""
    study, inbox = make(p=3), tmp_path / "inbox"
    for who, site in enumerate(sites_of(study)):
        labels = np.random.default_rng([who, 4]).integers(0, 2, len(site.rows))
        send(study, replace(site, labels=labels), who, inbox)
    align_bundles(study, bundles_of(study, inbox), tmp_path / "work", certify=False)
    found = train(study, tmp_path / "work")
    assert found.score.value < 0.62
    assert all(own.value < 0.72 for _, own in found.alone)


def rows_inside(model: bytes, rows: np.ndarray) -> int:
    """How many of the rows lie in one of the model's arrays, as a row or a column, up to one shift and scale."""
    wanted = (rows - rows.mean(axis=0)).astype(np.float64)
    wanted /= np.sqrt(np.mean(wanted**2))
    found = np.zeros(len(rows), dtype=bool)
    for tensor in onnx.load_from_string(model).graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        for held in (array, array.T):
            if held.ndim == 2 and held.shape[1] == rows.shape[1]:
                found |= (np.abs(wanted[:, None] - held[None]).max(axis=2) < 1e-3).any(axis=1)
    return int(found.sum())


def test_a_delivered_model_holds_nobodys_rows(tmp_path: Path) -> None:
    """Whoever knows its own secret and map could turn rows in the model back into the others' raw rows."""
    study = make()
    work, _ = prepared(study, tmp_path)
    table = pq.read_table(work / "collaboration.parquet")
    rows = np.column_stack([table[f"z{k + 1}"].to_numpy() for k in range(6)])
    assert train(study, work, learner="svm").holds_rows
    assert rows_inside((work / "model.onnx").read_bytes(), rows) > 20
    with pytest.raises(RefusedError, match="holds rows of the participants"):
        deliver(study, work, tmp_path / "results", ANALYST)
    assert not (tmp_path / "results").exists()
    deliver(study, work, tmp_path / "results", ANALYST, allow_rows=True)
    for learner in ("random-fourier", "linear", "forest"):
        if learner == "forest":
            data = to_onnx(train_learner("forest", rows.astype(np.float64), np.arange(240) % 2, kind="classes", seed=0))
        else:
            assert not train(study, work, learner=learner).holds_rows
            data = (work / "model.onnx").read_bytes()
        assert rows_inside(data, rows) == 0
    deliver(study, work, tmp_path / "results", ANALYST)
