"""What a report says first: the decision, what joining gives, what is disclosed, and what to look at before signing."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from mooring import AuditResult, Plan, __version__
from mooring.audit import PointResult
from mooring.audit.results.decision import Decision, Reason, Remark, decide_upload, weigh_total
from mooring.audit.results.statements import state_only_class
from mooring.protocol.forecast import StudyForecast, weigh_forecast
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Contribution, Finding
from mooring.report.charts import Comparison
from mooring.report.joining import JoiningFact, NamedScore, list_joining, list_scores
from mooring.report.records import AttackedStudy, StudyRecords, list_audits
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
    "No operating point of the audit is known to have this study's settings. The figures of the audit show what to "
    "expect, not what happened."
)


@dataclass(frozen=True)
class Participant(Record):
    """What the records say about one participant."""

    name: str
    contribution: Contribution
    role: str = ""
    delivered: bool | None = None
    """Whether a result was delivered to the participant; None if this is not known."""
    digest: str = ""
    """SHA-256 of the participant's upload; empty if the digest is not known."""


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
        """Forecasts of the check: one by the study's declaration alone, one as if all rows were like this participant's."""
        check = self.records.check
        return (
            () if check is None else tuple(entry for entry in (check.forecast, check.own_forecast) if entry is not None)
        )

    @property
    def comparisons(self) -> list[Comparison]:
        """Scores alone and together: on this participant's rows, in simulations, and for each participant's upload."""
        predict, training = self.records.predict, self.records.training
        comparisons = []
        if predict is not None:
            rows = "own rows, some shared" if predict.n_shared else "new rows"
            comparisons.append(Comparison(rows, predict.local_only, predict.score))
        for attacked in self.audits:
            result = attacked.study_result
            point, references = result.headline_point, result.references
            if point is not None:
                name = "simulated, own rows" if attacked.is_self_attack else "simulated"
                comparisons.append(Comparison(name, result.find_alone(point), point.deployed, references.pooled_raw))
        if training is not None:
            alone_by_name = dict(training.alone)
            comparisons += [Comparison(name, alone_by_name.get(name), score) for name, score in training.participants]
        return comparisons

    @property
    def check_verdict(self) -> str:
        """The conclusion of the check, without sentences that the page already has."""
        words = "" if self.records.check is None else self.records.check.verdict
        for sentence in self.summary.leakage:
            words = words.replace(sentence, "").strip()
        return words


def summarise(study: Study | None, records: StudyRecords, audit: AuditResult | Plan | None = None) -> Report:
    """Return the report of a role's records and of an audit. Without a study, the page says that the study is not known."""
    description = None if study is None else exchange_of(study).describe(study)
    audits = tuple(list_audits(study, records, audit))
    scores = tuple(list_scores(records, audits, is_noisy=description is not None and description.has_noisy_rows))
    joining = tuple(list_joining(description, records, audits, scores))
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


def _weigh(study: Study | None, description: Description | None, audits: Sequence[AttackedStudy]) -> list[Reason]:
    limits = () if study is None else study.upload_limits
    if description is not None and not description.shares_rows:
        # A decision that depends on figures from one's own rows discloses something about these rows. Where it must not
        # do so, the figures are shown, but do not count.
        assert study is not None
        is_blind = exchange_of(study).adapts_rows(study)
        deciding = [attacked for attacked in audits if not (is_blind and attacked.is_self_attack)]
        points: list[PointResult | None] = [
            attacked.study_point for attacked in deciding if attacked.study_point is not None
        ]
        return [reason for point in points or [None] for reason in weigh_total(point, description.promise, limits)]
    relevant = [attacked for attacked in audits if attacked.study_point is not None or attacked.is_self_attack]
    if audits and not relevant:
        return [Remark("cannot tell", "No operating point of the audit is known to have the study's settings")]
    return [reason for attacked in relevant for reason in attacked.study_result.weigh(limits)]


def _state_leakage(attacked: AttackedStudy) -> list[str]:
    sentences = attacked.study_result.sentences
    if not attacked.is_self_attack:
        sentences = [f"The audit: {sentences[0]}", *sentences[1:]]
        if attacked.study_point is None and attacked.result.trustworthy:
            sentences.append(_OTHER_SETTINGS)
    return sentences if attacked.plan is None else [*sentences, attacked.plan.verdict]


def _list_participants(
    study: Study | None, description: Description | None, records: StudyRecords
) -> list[Participant]:
    """Return all participants on the roster or with an upload; an empty list if this role has no record of uploads."""
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
        contribution = states.get(name, Contribution("on the roster; no upload is recorded"))
        if name in left_out:
            words = (
                f"{contribution.state}; left out of the training: models of the other uploads do not predict its labels"
            )
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
    """Return findings on unconfirmed ranges, on answers that are forecast to be useless, and on models of one class only."""
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
        )  # a part of one's rows does not show what joining gives
        if point is not None and (words := state_only_class(point)):
            findings.append(Finding("one class", f"In the simulation of {attacked.title}: {words}"))
    return findings


def _list_limits(records: StudyRecords) -> list[Finding]:
    """Return findings on limits that are not kept, on overrides, and on rows that a model may disclose."""
    check, share, findings = records.check, records.share, []
    limits = tuple(dict.fromkeys(limit for record in (share, check) if record is not None for limit in record.exceeded))
    if limits:
        words = f"No check shows that this participant's rows keep to these limits of the study: {'; '.join(limits)}."
        findings.append(Finding("limits", words, limits))
    if share is not None and share.override:
        exceeded = "' and '".join(share.exceeded)
        words = (
            f"Rows were shared by decision of {share.override}, although no check shows that they keep to '{exceeded}'."
        )
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
