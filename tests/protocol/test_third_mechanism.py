"""A mechanism from outside, in one file: each participant uploads plain totals, and least squares are fitted to their sum.

It protects nobody. A study, its commands, an audit and a page work with it, although mooring does not know it: nothing but
`register_exchange` tells mooring about it.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from mooring.atomic_io import write_atomically
from mooring.audit import AuditResult, OperatingPoint, PointResult, SumPoint
from mooring.audit.results.decision import decide_upload, weigh_total
from mooring.errors import InputError, RefusedError
from mooring.learners import Gain, Score
from mooring.learners.models import FeatureMap, ModelSpec
from mooring.learners.registry import SUM_LEARNERS
from mooring.learners.sums import Sums
from mooring.mechanisms.settings import MechanismSettings
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.sums import Outcome, SumAccumulator, SumLayout
from mooring.protocol import registry
from mooring.protocol.analyst.trained_model import TRAINED_FILE, keep_training, read_training
from mooring.protocol.description import Description, Terms
from mooring.protocol.exchange import Assessment, Exchange
from mooring.protocol.exchange_types import (
    AuditMaps,
    AuditRequest,
    Deliverable,
    GatherOptions,
    SendableFile,
    TrainOptions,
)
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.model import write_model
from mooring.protocol.messages.result import DeliveredModel, read_delivered_model
from mooring.protocol.messages.signed_file import TensorSpec, read_signed, write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.contrast import drafted_features, drafted_projection
from mooring.protocol.participant.local_model import measure_local_only
from mooring.protocol.participant.membership import find_membership, hand_out
from mooring.protocol.registry import register_exchange
from mooring.protocol.results import Consent, Contribution, GatherRecord, ShareResult, TrainingRecord
from mooring.protocol.step import Addition
from mooring.protocol.steps import explain_command
from mooring.protocol.storage.fingerprints import RowCollector
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Floors, Vault
from mooring.tables import Partition, Schema, encoded_batches
from tests import commands

NAME = "plain-totals"


@dataclass(frozen=True)
class TotalsSettings(MechanismSettings):
    """What a study of plain totals declares."""

    name: ClassVar[str] = NAME
    remark: ClassVar[str] = "# Plain totals protect nobody.\n"
    shows_labels: ClassVar[bool] = False

    least_rows: int = 5


@dataclass(frozen=True, eq=False)
class TotalsBundle:
    """One participant's totals."""

    member: Member
    digest: str
    path: Path
    totals: np.ndarray
    n_rows: None = None


@dataclass(frozen=True)
class TotalsGathered(GatherRecord):
    """The sum of everybody's totals."""

    mechanism: ClassVar[str] = NAME

    participants: tuple[str, ...]
    total: tuple[float, ...]
    command: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the total."""
        return hashlib.sha256(json.dumps(self.total).encode()).hexdigest()

    def list_states(self) -> Mapping[str, Contribution]:
        """All are in."""
        return dict.fromkeys(self.participants, Contribution("in the total"))


@dataclass(frozen=True)
class TotalsTraining(TrainingRecord):
    """What was trained on the total."""

    mechanism: ClassVar[str] = NAME

    learner: str
    rows: int
    model_digest: str
    study: str
    made_from: str
    command: str = ""
    score: Score | None = None
    participants: tuple[tuple[str, Score], ...] = ()
    alone: tuple[tuple[str, Score], ...] = ()
    gain: Gain | None = None

    def __str__(self) -> str:
        return f"Trained {self.learner!r} on {self.rows} rows."


@dataclass(frozen=True, eq=False)
class TotalsModel:
    """The delivered model."""

    delivered: DeliveredModel
    schema: Schema

    @property
    def release(self) -> None:
        """The study has no limit."""

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model."""
        return self.delivered.digest

    def predict(self, rows: np.ndarray) -> Any:
        """Values and probabilities."""
        return self.delivered.model.predict_with_probabilities(rows)


def layout_of(study: Study) -> tuple[FeatureMap, SumLayout]:
    """Features and layout of the totals."""
    features = TableFeatures(study.schema, frozenset(), 0)
    return features, SumLayout(features.n_features, Outcome(len(study.label.classes)))


class TotalsExchange(Exchange):
    """What the protocol asks of a mechanism."""

    name: ClassVar[str] = NAME
    sendable: ClassVar[tuple[SendableFile, ...]] = (SendableFile(NAME, ("study",), SUFFIX, is_sealed=False),)
    gather_record: ClassVar[str] = "totals"
    additions: ClassVar[tuple[Addition, ...]] = (
        Addition("align", title="Add up", explanation="Add up everybody's totals."),
    )

    def describe(self, study: Study) -> Description:
        no = "nothing"
        terms = Terms(("Totals.",), (("the analyst", "totals"),), no, (no,), (no,), (), (), no, no, no, no)
        return Description(
            "totals", ("Plain totals.",), "Locally.", "that totals protect nobody", terms, shares_rows=False
        )

    @property
    def assessment(self) -> Assessment:
        return self

    def find_point(self, study: Study, result: AuditResult) -> PointResult | None:
        return next(iter(result.points), None)

    def list_audit_points(self, study: Study, parts: Partition, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
        return (SumPoint(None, quorum=2), *(SumPoint(epsilon) for epsilon in asked.epsilons))

    def make_audit_maps(self, study: Study) -> AuditMaps:
        return AuditMaps(drafted_projection(study), drafted_features(study))

    def describe_study(self, study: Study) -> list[tuple[str, str]]:
        return [("Shares", "plain totals")]

    def require_floors(self, study: Study, floors: Floors) -> None:
        if not floors.without_noise:
            raise RefusedError("the study", reason="its totals carry no noise", cure="Stay out.")

    def list_refusals(self, study: Study, n_rows: int, class_counts: Any) -> list[Any]:
        assert isinstance(study.mechanism, TotalsSettings)
        few = n_rows < study.mechanism.least_rows
        return [InputError("rows", expected="more", got=str(n_rows), cure="Gather more.")] if few else []

    def inspect(
        self, study: Study, encoded: Any, *, n_rows: int, class_counts: Any, seed: int, progress: Any
    ) -> Inspection:
        local = measure_local_only(study, encoded.rows, encoded.labels, seed)
        return Inspection(n_rows, class_counts, (), ("Plain totals protect nobody.",), local, "They tell everything.")

    def conclude(self, study: Study, inspection: Inspection) -> Inspection:
        reasons = weigh_total(None, None, study.upload_limits)
        return replace(inspection, decision=decide_upload("totals", reasons, check=inspection))

    def share(
        self,
        vault: Vault,
        study: Study,
        data: Any,
        *,
        output: Path,
        consent: Consent,
        anchor: Path | None,
        ignore: Collection[str],
        progress: Any,
    ) -> ShareResult:
        member, (features, layout) = find_membership(vault, study), layout_of(study)
        sums, collector = SumAccumulator(layout), RowCollector(vault.ledger_key, study.schema)
        for block in encoded_batches(study.schema, data, ignore=tuple(ignore)):
            sums.add(features.apply(block.rows), block.labels)
            collector.add(block)
        rows, ledger = collector.finish()[0], Ledger(vault.folder)
        kept = vault.study_folder(study.folder_name) / f"upload{SUFFIX}"
        entry = ledger.record_intent(study.digest, study.name, rows, owner=member.name, decided=("", ()))
        arrays = {"totals": sums.vector.astype(np.float64)}
        digest = write_signed(kept, kind=NAME, fields={"study": study.digest}, arrays=arrays, signer=vault.signing_key)
        ledger.record_bundle(study.digest, digest)
        entry = ledger.entry(study.digest) or entry
        return hand_out(ShareResult.of(entry, reissued=False), kept, output, consent.command)

    def describe_share(self, study: Study, shared: ShareResult) -> tuple[str, str]:
        return "plain totals", "Send it to the analyst."

    def verify_bundle(self, path: Path, study: Study) -> TotalsBundle:
        keys = {member.signing_key for member in study.participants}
        spec = {"totals": TensorSpec("F64", (layout_of(study)[1].size,))}
        signed_file = read_signed(path, kind=NAME, signed_by=keys, fields=("study",), tensors=lambda _: spec)
        member = study.require_signer(signed_file.fields, what="the bundle")
        return TotalsBundle(member, signed_file.digest, path, signed_file.arrays["totals"])

    def most_bundle_bytes(self, study: Study) -> int:
        return 2**20

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> TotalsGathered:
        given = [bundle for bundle in bundles if isinstance(bundle, TotalsBundle)]
        total = tuple(sum(bundle.totals for bundle in given).tolist())  # type: ignore[union-attr]
        gathered = TotalsGathered(tuple(bundle.member.name for bundle in given), total, options.command)
        write_atomically(folder / "totals.json", gathered.to_json().encode(), what="the total")
        return gathered

    def list_learners(self, study: Study) -> tuple[str, ...]:
        return ("auto",)

    def train(self, study: Study, folder: Path, options: TrainOptions) -> TotalsTraining:
        gathered = TotalsGathered.from_json((folder / "totals.json").read_bytes())
        features, layout = layout_of(study)
        S, T = layout.unpack(np.array(gathered.total).astype(np.int64))
        sums = Sums(S, T, features.constant_share, layout.outcome.n_classes, (0.0, 0.0), features.unit_length)
        fitted = SUM_LEARNERS["least-squares"].fit(sums, shrink=True)
        digest = write_model(folder / TRAINED_FILE, fitted.to_model(self.specify_model(study)))
        made = (round(sums.n_rows), digest, study.digest, gathered.digest, options.command)
        keep_training(folder, training := TotalsTraining("least-squares", *made))
        return training

    def prepare_results(self, study: Study, folder: Path) -> Deliverable:
        model, training = read_training(folder, TotalsTraining, study, partial(self.specify_model, study))
        names = tuple(member.name for member in study.participants)
        return Deliverable(names, model, training.made_from, 1.0, "Add noise", lambda *_: None)

    def specify_model(self, study: Study, outcome: str = "") -> ModelSpec:
        return ModelSpec(study.n_features, len(study.label.classes), layout_of(study)[0], None)

    def open_result(self, vault: Vault, study: Study, folder: Path) -> TotalsModel:
        find_membership(vault, study)
        delivered = read_delivered_model(folder, study, partial(self.specify_model, study))
        return TotalsModel(delivered, study.schema)


@pytest.fixture
def registered() -> Iterator[None]:
    register_exchange(TotalsExchange())
    yield
    del registry._MECHANISMS[NAME]


def write_table(path: Path, seed: int) -> None:
    rows = np.random.default_rng(seed).uniform(-1, 1, size=(60, 3)).round(3)
    labels = np.where(rows @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    lines = [",".join([*map(str, row), label]) for row, label in zip(rows, labels, strict=True)]
    path.write_text("\n".join(["a,b,c,ill", *lines]) + "\n")


@pytest.mark.usefixtures("registered")
def test_a_mechanism_from_outside_goes_the_whole_way(tmp_path: Path) -> None:
    names = ("north", "south", "east")
    for k, name in enumerate((*names, "everybody")):
        (tmp_path / name).mkdir()
        write_table(tmp_path / name / "rows.csv", k)
    (tmp_path / "analyst" / "inbox").mkdir(parents=True)
    study = tmp_path / "study.toml"
    draft = ["study", "init", tmp_path / "north" / "rows.csv", "--mechanism", NAME, "--all-ranges", "-1:1"]
    commands.run(*draft, "--label", "ill", "--classes", "no,yes", "--output", study)
    assert Study.read(study).mechanism == TotalsSettings()
    for name in (*names, "analyst"):
        role = ["--role", "analyst"] if name == "analyst" else ["--accept-no-noise"]
        commands.run("join", "--name", name, *role, place=tmp_path / name)
    cards = [tmp_path / name / f"{name}.card.toml" for name in (*names, "analyst")]
    commands.run("study", "enrol", *cards, "--study", study)
    shown = commands.run("study", "show", "--study", study).output
    assert "plain totals" in shown

    agreed = ["--study", study]
    for name in names:
        commands.run("check", "rows.csv", *agreed, place=tmp_path / name, code=None)
        assert (tmp_path / name / "vault" / "studies").exists()
        bundle = tmp_path / "analyst" / "inbox" / f"{name}.bundle"
        commands.run("share", "rows.csv", *agreed, "--output", bundle, place=tmp_path / name)
    analyst = tmp_path / "analyst"
    commands.run("align", *agreed, "--bundles", "inbox", place=analyst)
    commands.run("train", *agreed, place=analyst)
    commands.run("deliver", *agreed, "--output", "results", place=analyst)
    write_table(tmp_path / "north" / "new.csv", 9)
    words = ["predict", "new.csv", *agreed, "--result", analyst / "results" / "north", "--format", "json"]
    predicted = json.loads(commands.run(*words, place=tmp_path / "north").stdout)
    assert predicted["score"]["value"] > 0.9
    commands.run("report", "analysis", *agreed, "--output", "report.html", place=analyst)
    assert "Plain totals." in (analyst / "report.html").read_text(encoding="utf-8")

    audit = ["audit", tmp_path / "everybody" / "rows.csv", *agreed, "--participants", "3"]
    commands.run(*audit, "--output", tmp_path / "audit")
    record = json.loads((tmp_path / "audit" / "audit.json").read_text(encoding="utf-8"))
    assert record["points"][0]["point"]["mechanism"] == "secure-sum"  # its own point: sums without noise
    assert (tmp_path / "audit" / "report.html").exists()


@pytest.mark.usefixtures("registered")
def test_help_texts_know_a_mechanism_from_outside() -> None:
    assert "add up everybody's totals" in explain_command("align")


@pytest.mark.usefixtures("registered")
def test_a_name_is_registered_once() -> None:
    with pytest.raises(InputError):
        register_exchange(TotalsExchange())


def test_a_study_of_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(InputError):
        MechanismSettings.get_kind("no such mechanism")
