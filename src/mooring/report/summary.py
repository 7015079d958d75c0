"""What a report says first: the decision, what joining gives, what is disclosed, and what to look at before signing."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from mooring import AuditResult, Plan, __version__
from mooring.audit import PointResult
from mooring.audit.decision import Decision, Reason, Remark, decide_upload, weigh_total
from mooring.audit.statements import state_alone, state_only_class
from mooring.learners import Answer, Gain, Score
from mooring.protocol.forecast import StudyForecast, weigh_forecast
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Contribution, Finding
from mooring.report.charts import Comparison
from mooring.report.records import StudyRecords
from mooring.serialization import Record, count_noun

if TYPE_CHECKING:
    from mooring.protocol.description import Description
    from mooring.protocol.messages.study import Study

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "cryptography")
_NOT_MEASURED = (
    "What an upload discloses was not measured. Do not read anything on this page as evidence of safety. "
    "'mooring check' attacks a participant's own rows before they leave. 'mooring audit' attacks similar rows; "
    "'mooring report --audit' includes its result."
)
_OTHER_SETTINGS = (
    "No operating point of the audit is known to have this study's settings. Its figures are for other settings: they "
    "show what to expect, not what happened."
)
_NOT_SCORED = (
    "What joining gives was not measured here: 'mooring train' (analyst) or 'mooring predict' on labelled rows "
    "(participant) measures it."
)
Group = Literal["joint", "joint by participant", "alone", "local only", "pooled raw"]


@dataclass(frozen=True)
class NamedScore(Record):
    """A score that a role knows, and where it comes from."""

    group: Group
    name: str
    source: str
    score: Score

    @property
    def title(self) -> str:
        """The name, preceded by the group unless the name contains it."""
        return self.name if self.group in self.name else f"{self.group}: {self.name}"


@dataclass(frozen=True)
class JoiningFact(Record):
    """A fact about the benefit of joining."""

    kind: Literal["uploads", "new rows", "own rows", "simulation", "pooled raw not known", "not measured"]
    words: str
    """The fact in sentences."""
    gain: Gain | None = None
    """The joint model compared with training alone on the same rows."""

    @property
    def answer(self) -> Answer | None:
        """Whether joining pays, if models were compared on the same rows."""
        return None if self.gain is None else self.gain.answer


@dataclass(frozen=True)
class Participant(Record):
    """What is known of one participant."""

    name: str
    contribution: Contribution
    role: str = ""
    delivered: bool | None = None
    """Whether a result was delivered to it; None if this is not known."""
    digest: str = ""
    """SHA-256 of its upload; empty if it is not known."""


@dataclass(frozen=True)
class StudyIdentity(Record):
    """The name of a study, its fingerprint for people and its digest for files."""

    name: str
    fingerprint: str
    digest: str


@dataclass(frozen=True)
class Summary(Record):
    """What a report states first, and the sources of these statements."""

    role: str
    made: str
    study: StudyIdentity | None
    """None if the study is not available."""
    decision: Decision
    joining: tuple[JoiningFact, ...]
    leakage: tuple[str, ...]
    leakage_measured: bool
    attention: tuple[Finding, ...]
    scores: tuple[NamedScore, ...]
    participants: tuple[Participant, ...]
    commands: tuple[tuple[str, str], ...]
    """Each step's name, and the command that was given."""
    versions: dict[str, str]


@dataclass(frozen=True)
class AttackedStudy:
    """An audit of a study's rows, or of rows like them."""

    title: str
    result: AuditResult
    """The audit, in which a point with the study's settings is the chosen one."""
    is_self_attack: bool
    study_point: PointResult | None = None
    """The point that has the study's own settings."""
    plan: Plan | None = None

    @property
    def study_result(self) -> AuditResult:
        """The result at the point with the study's settings only, if there is one."""
        return self.result if self.study_point is None else replace(self.result, points=(self.study_point,), chosen=0)


@dataclass(frozen=True)
class Report:
    """Everything that the page of a study shows."""

    study: Study | None
    description: Description | None
    """The description of the study's mechanism; None if the study is not available."""
    records: StudyRecords
    audits: tuple[AttackedStudy, ...]
    summary: Summary
    title: str = "What joining gains, and what it discloses"
    is_signed: bool = True
    """Whether the page has a place for a signature."""

    @cached_property
    def hazards(self) -> tuple[str, ...]:
        """Properties of the rows that help attackers, and limitations of the audits, each once."""
        check = self.records.check
        of_rows = () if check is None else (*check.hazards, *check.warnings)
        return tuple(dict.fromkeys([*of_rows, *(words for audit in self.audits for words in audit.result.warnings)]))

    @property
    def forecasts(self) -> tuple[StudyForecast, ...]:
        """What the study was likely to give, as the check saw it: by its declaration, and by this participant's rows."""
        check = self.records.check
        return (
            () if check is None else tuple(entry for entry in (check.forecast, check.own_forecast) if entry is not None)
        )

    @property
    def comparisons(self) -> list[Comparison]:
        """Scores alone and together: on this participant's new rows, in simulations, and of each participant's upload."""
        predict, training = self.records.predict, self.records.training
        found = []
        if predict is not None:
            rows = "own rows, some shared" if predict.n_shared else "new rows"
            found.append(Comparison(rows, predict.local_only, predict.score))
        for attacked in self.audits:
            result = attacked.study_result
            point, references = result.headline_point, result.references
            if point is not None:
                name = "simulated, own rows" if attacked.is_self_attack else "simulated"
                found.append(Comparison(name, result.find_alone(point), point.deployed, references.pooled_raw))
        if training is not None:
            alone_by_name = dict(training.alone)
            found += [Comparison(name, alone_by_name.get(name), score) for name, score in training.participants]
        return found

    @property
    def check_verdict(self) -> str:
        """The conclusion of the check, without sentences that the page already has."""
        words = "" if self.records.check is None else self.records.check.verdict
        for sentence in self.summary.leakage:
            words = words.replace(sentence, "").strip()
        return words


def summarise(study: Study | None, records: StudyRecords, audit: AuditResult | Plan | None = None) -> Report:
    """Return the report of a role's records and of an audit. Without a study, its fingerprint is reported as unknown."""
    description = None if study is None else exchange_of(study).describe(study)
    audits = tuple(_list_audits(study, records, audit))
    scores = tuple(_list_scores(records, audits, is_noisy=description is not None and description.has_noisy_rows))
    joining = tuple(_list_joining(description, records, audits, scores))
    measured = [words for attacked in audits for words in _state_leakage(attacked)]
    headlines = () if description is None else description.headlines
    what = "these rows" if description is None else description.what_is_shared
    reasons, gains = _weigh(study, description, audits), [fact.gain for fact in joining]
    is_over = records.are_gathered
    if records.check is not None and records.share is None:
        reasons += weigh_forecast(records.check.forecast)
    decision = decide_upload(what, reasons, check=records.check, share=records.share, gains=gains, is_over=is_over)
    if audit is None and records.is_check_alone and records.check is not None:
        decision = records.check.decision or decision  # the one that the command printed
    summary = Summary(
        role=records.role,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        study=None if study is None else StudyIdentity(study.name, study.fingerprint, study.digest),
        decision=decision,
        joining=joining,
        leakage=tuple(headlines or measured or [_NOT_MEASURED]),
        leakage_measured=bool(headlines or measured),
        attention=(*_list_attention(records), *_list_doubts(study, records, audits)),
        scores=scores,
        participants=tuple(_list_participants(study, description, records)),
        commands=tuple(records.list_commands()),
        versions=_list_versions(),
    )
    return Report(study, description, records, audits, summary)


def _list_audits(study: Study | None, records: StudyRecords, audit: AuditResult | Plan | None) -> list[AttackedStudy]:
    attacked = []
    self_attack = None if records.check is None else records.check.self_attack
    if self_attack is not None:
        study_point = self_attack.points[0] if self_attack.points else None
        chosen = self_attack if study_point is None else replace(self_attack, chosen=0)
        attacked.append(AttackedStudy("the self-attack", chosen, is_self_attack=True, study_point=study_point))
    if audit is not None:
        plan = audit if isinstance(audit, Plan) else None
        result = audit.audit if isinstance(audit, Plan) else audit
        study_point = None if study is None else exchange_of(study).assessment.find_point(study, result)
        result = result if study_point is None else replace(result, chosen=result.points.index(study_point))
        attacked.append(AttackedStudy("the audit", result, is_self_attack=False, study_point=study_point, plan=plan))
    return attacked


def _weigh(study: Study | None, description: Description | None, audits: Sequence[AttackedStudy]) -> list[Reason]:
    limits = () if study is None else study.upload_limits
    if description is not None and not description.shares_rows:
        # Where rows must not decide, figures from one's own rows are shown only: a decision by them would disclose them.
        assert study is not None
        is_blind = exchange_of(study).adapts_rows(study)
        deciding = [attacked for attacked in audits if not (is_blind and attacked.is_self_attack)]
        points: list[PointResult | None] = [
            attacked.study_point for attacked in deciding if attacked.study_point is not None
        ]
        return [reason for point in points or [None] for reason in weigh_total(point, description.promise, limits)]
    relevant = [attacked for attacked in audits if attacked.study_point is not None or attacked.is_self_attack]
    if audits and not relevant:
        return [Remark("cannot tell", "The audit is of other settings than the study's")]
    return [reason for attacked in relevant for reason in attacked.study_result.weigh(limits)]


def _state_leakage(attacked: AttackedStudy) -> list[str]:
    sentences = attacked.study_result.sentences
    if not attacked.is_self_attack:
        sentences = [f"The audit: {sentences[0]}", *sentences[1:]]
        if attacked.study_point is None and attacked.result.trustworthy:
            sentences.append(_OTHER_SETTINGS)
    return sentences if attacked.plan is None else [*sentences, attacked.plan.verdict]


def _list_joining(
    description: Description | None,
    records: StudyRecords,
    audits: Sequence[AttackedStudy],
    scores: Sequence[NamedScore],
) -> list[JoiningFact]:
    """List what is known about joining: scores on uploads, on new rows (or else on own rows), and in simulations.

    Scores on uploads compare models of the other uploads with models of one upload alone. They do not show whether
    joining pays: the delivered model is also trained on the participant's own upload, and a participant alone would
    train on rows without noise.
    """
    facts = []
    if records.training is not None and records.training.score is not None:
        facts.append(_state_uploads(records, is_noisy=description is not None and description.has_noisy_rows))
    if records.predict is not None and records.predict.score is not None:
        facts.append(_state_new_rows(records))
    elif records.check is not None and records.check.local_only is not None:
        facts.append(JoiningFact("own rows", state_alone(records.check.local_only)))
    for attacked in audits:
        result = attacked.study_result
        point = result.headline_point
        if not attacked.is_self_attack and result.references.local_only is not None and point is not None:
            gain = None if attacked.study_point is None else point.gain
            facts.append(JoiningFact("simulation", f"In the audit's simulation: {result.joining}", gain))
    if not facts or all(fact.kind == "simulation" for fact in facts):
        facts.append(JoiningFact("not measured", _NOT_SCORED if description is None else description.scoring))
    if facts[0].kind != "not measured" and not any(score.group == "pooled raw" for score in scores):
        facts.append(
            JoiningFact("pooled raw not known", "What pooling all raw rows would score is not known to this role.")
        )
    return facts


def _state_uploads(records: StudyRecords, *, is_noisy: bool) -> JoiningFact:
    training = records.training
    assert training is not None
    assert training.score is not None
    score, gain = training.score, training.gain
    words = f"Models of the other uploads score {score.with_interval()} {score.metric} on the upload left out."
    words += " Uploaded rows carry the study's noise; new rows are scored without it." if is_noisy else ""
    if gain is not None:
        n_alone = count_noun(len(training.alone), "participant")
        words += (
            f" Compared with a model of each upload alone, the difference is {gain}, pooled over the {gain.n:,} rows of "
            f"{n_alone}."
        )
        if score.metric != "R²":
            words += (
                " A model of one upload also learns how common each class is there, so the difference may vary between "
                "participants."
            )
    return JoiningFact(
        "uploads",
        f"{words} The delivered model is trained on each participant's own rows as well, so this does not show whether "
        "joining pays. 'mooring predict --beside' shows that at each participant.",
    )


def _state_new_rows(records: StudyRecords) -> JoiningFact:
    predict = records.predict
    assert predict is not None
    assert predict.score is not None
    score, local, shared = predict.score, predict.local_only, predict.n_shared
    gain = None if shared else predict.gain
    rows = f"On {predict.n_rows} new rows of this participant"
    if shared:
        trained = count_noun(shared, "was", "were")
        rows = f"On {predict.n_rows} rows of this participant, of which {trained} shared and trained on,"
    words = f"{rows} the joint model scores {score.with_interval()} {score.metric}"
    if local is None:
        return JoiningFact("new rows", f"{words}; its own model was not measured on them.")
    words += f", a model of its raw rows alone {local.with_interval()}."
    if gain is not None:
        return JoiningFact("new rows", f"{words} {gain.sentence()}", gain)
    why = "The two were not compared row by row, so whether joining pays is not shown."
    if shared:
        why = "Neither is a score of new rows alone, so whether joining pays is not shown."
    return JoiningFact("new rows", f"{words} {why}")


def _list_scores(records: StudyRecords, audits: Sequence[AttackedStudy], *, is_noisy: bool) -> list[NamedScore]:
    """Return every score that this role knows, each with its source."""
    training, predict, check = records.training, records.predict, records.check
    scores: list[NamedScore] = []

    def add(group: Group, name: str, source: str, score: Score | None) -> None:
        if score is not None and not math.isnan(score.value):
            scores.append(NamedScore(group, name, source, score))

    if training is not None:
        name = "joint model, noisy uploads" if is_noisy else "joint model"
        add("joint", name, "mooring train: each participant's upload held out in turn", training.score)
        for name, score in training.participants:
            add("joint by participant", name, "mooring train: this participant held out", score)
        for name, score in training.alone:
            add("alone", name, "mooring train: a model on its upload only", score)
    if predict is not None:
        which = "rows, some of them trained on" if predict.n_shared else "new rows"
        source = f"mooring predict: {which} of this participant, labelled"
        add("joint", f"joint model, {which}", source, predict.score)
        add("local only", f"my rows alone, {which}", f"mooring predict: the same {which}", predict.local_only)
    if check is not None:
        add("local only", "my rows alone, held out", "mooring check: my rows, held out in turn", check.local_only)
    for attacked in audits:
        about, how = f"{attacked.title}, a simulation", "self-attack" if attacked.is_self_attack else "simulated"
        if attacked.study_point is not None:
            add("joint", f"joint model, {how}", f"{about}: {attacked.study_point.title}", attacked.study_point.deployed)
        add("local only", f"local only, {how}", about, attacked.result.references.local_only)
        add("pooled raw", f"pooled raw, {how}", about, attacked.result.references.pooled_raw)
    return scores


def _list_participants(
    study: Study | None, description: Description | None, records: StudyRecords
) -> list[Participant]:
    """Return all participants on the roster or with an upload; none if this role has no record of uploads."""
    intake, gathered, delivery = records.intake, records.gathered, records.delivery
    if intake is None and gathered is None:
        return []
    accepted = {} if intake is None else {bundle.name: bundle for bundle in intake.accepted}
    missing = () if intake is None else intake.missing
    states = {name: Contribution("missing: no valid upload") for name in missing}
    states |= {name: Contribution("accepted", bundle.rows) for name, bundle in accepted.items()}
    states |= {} if gathered is None else dict(gathered.list_states())
    left_out = set() if records.training is None else _list_left_out(records)
    roster = [] if study is None else [member.name for member in study.participants]
    roles = {} if description is None else description.terms.roles
    participants = []
    for name in dict.fromkeys([*roster, *states]):
        contribution = states.get(name, Contribution("on the roster; nothing is recorded of it"))
        if name in left_out:
            words = f"{contribution.state}; left out of the training: models of the others do not predict its labels"
            contribution = replace(contribution, state=words)
        delivered = None if delivery is None else name in delivery.delivered
        digest = accepted[name].digest if name in accepted else ""
        participants.append(Participant(name, contribution, roles.get(name, ""), delivered, digest))
    return participants


def _list_left_out(records: StudyRecords) -> set[str]:
    assert records.training is not None
    return {
        name for finding in records.training.list_findings() if finding.kind == "left out" for name in finding.about
    }


def _list_attention(records: StudyRecords) -> list[Finding]:
    """Return the findings that a signer must not overlook, whatever the scores are."""
    findings: list[Finding] = []
    if (intake := records.intake) is not None:
        if n := len(intake.set_aside):
            words = f"{count_noun(n, 'upload was', 'uploads were')} set aside."
            findings.append(Finding("set aside", words, tuple(entry.file for entry in intake.set_aside)))
        if n := len(intake.missing):
            findings.append(Finding("missing", f"{count_noun(n, 'participant')} sent no valid upload.", intake.missing))
    findings += [] if records.gathered is None else records.gathered.list_findings()
    findings += [] if records.training is None else records.training.list_findings()
    if records.predict is not None and (words := records.predict.state_only_class()):
        findings.append(Finding("one class", words, (records.predict.only_class,)))
    return [*findings, *_list_limits(records)]


def _list_doubts(study: Study | None, records: StudyRecords, audits: Sequence[AttackedStudy]) -> list[Finding]:
    """Return findings on ranges that nobody confirmed, on useless answers, and on simulated models of one class."""
    findings, check, is_over = [], records.check, records.share is not None
    if study is not None and not study.range_source.is_public:
        findings.append(Finding("ranges", str(study.range_source), study.range_source.from_rows))
    if check is not None and not is_over:
        for forecast in (check.forecast, check.own_forecast):
            useless = [] if forecast is None else [outlook for outlook in forecast.outlooks if not outlook.is_useful]
            like = " for rows like yours" if forecast is not None and forecast.from_rows else ""
            findings += [
                Finding("forecast", f"Forecast{like}: {outlook.words}.", (outlook.question,)) for outlook in useless
            ]
    for attacked in audits:
        point = (
            None if attacked.is_self_attack else attacked.study_point
        )  # a part of one's rows says nothing of joining
        if point is not None and (words := state_only_class(point)):
            findings.append(Finding("one class", f"In the simulation of {attacked.title}: {words}"))
    return findings


def _list_limits(records: StudyRecords) -> list[Finding]:
    """Return findings on limits that are not kept, on overrides, and on rows that a model may disclose."""
    check, share, findings = records.check, records.share, []
    limits = tuple(dict.fromkeys(limit for record in (share, check) if record is not None for limit in record.exceeded))
    if limits:
        words = f"This participant's rows do not keep to limits of the study: {'; '.join(limits)}."
        findings.append(Finding("limits", words, limits))
    if share is not None and share.override:
        exceeded = "' and '".join(share.exceeded)
        words = f"The check does not show that they keep to '{exceeded}'; shared by decision of {share.override}."
        findings.append(Finding("shared despite", words, share.exceeded))
    if records.checked_other_rows:
        words = "The last check was run on rows other than those that were shared, so it is not shown here."
        findings.append(Finding("other rows", words))
    delivered = None if records.delivery is None else records.delivery.release
    release = delivered or (None if records.predict is None else records.predict.release)
    if release is not None:
        share_of_rows = f"up to {release.risk:.1%}" if release.risk < 1 else "all"
        words = f"An attacker may recognise {share_of_rows} of the rows that the model was trained on."
        if release.override:
            words += (
                " The model is not shown to keep to the study's limit. "
                f"It was delivered by decision of {release.override}."
            )
        findings.append(Finding("release", words))
    return findings


def _list_versions() -> dict[str, str]:
    versions = {"mooring": __version__, "Python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
