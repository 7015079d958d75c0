"""The analyst's steps as a person runs them: collect, align, train, deliver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.errors import InputError, RefusedError
from mooring.protocol.workspace import Outcome, Workspace
from mooring.serialization import count_noun
from mooring.typing import Progress

if TYPE_CHECKING:
    from mooring.protocol.analyst.intake import Intake
    from mooring.protocol.analyst.role import Engine
    from mooring.protocol.exchange_types import AlignMode


def choose_engine(workspace: Workspace) -> Engine:
    """Return the engine that was chosen for a folder, by default this process."""
    from mooring.protocol.analyst.role import LocalEngine

    engine: Engine = workspace.engine or LocalEngine()
    return engine


def collect(
    workspace: Workspace, *, bundles: str | Path, command: str = "", progress: Progress | None = None
) -> Outcome:
    """Check every bundle at an address."""
    study = workspace.study
    study.require_roster()
    refused = _open_bundles(workspace, bundles)
    intake = choose_engine(workspace).collect(study, bundles, workspace.analysis, command=command, progress=progress)
    return replace(describe_intake(intake), notes=refused)


def _open_bundles(workspace: Workspace, bundles: str | Path) -> tuple[str, ...]:
    """Open the envelopes of bundles in a local folder, and return a sentence on each envelope that is refused."""
    from mooring.protocol.messages.bundle import SUFFIX
    from mooring.protocol.messages.envelope import SUFFIX as SEALED
    from mooring.protocol.messages.envelope import open_beside
    from mooring.protocol.transport.addresses import is_url
    from mooring.protocol.transport.inbox import list_files

    study, refused = workspace.study, list[str]()
    for sealed in () if is_url(bundles) else list_files(bundles, f"{SUFFIX}{SEALED}"):
        path = sealed.with_name(sealed.name.removesuffix(SEALED))
        sender = next((member for member in study.participants if path.name == f"{member.name}{SUFFIX}"), None)
        try:
            if sender is None:
                raise RefusedError("it", reason="no participant has its name", cure="Rename it.")
            open_beside(path, study=study, reader=workspace.vault, senders={sender.signing_key})
        except RefusedError as problem:
            refused.append(f"Not opened: {sealed.name}: {problem.reason}.")
    return tuple(refused)


def describe_intake(intake: Intake) -> Outcome:
    """Return the outcome of an intake, in words for a person."""
    rows = [(bundle.member.name, "accepted") for bundle in intake.bundles]
    rows += [(entry.file, f"set aside: {entry.reason}") for entry in intake.set_aside]
    rows += [
        (name, "accepted before, but not found again" if name in intake.gone else "missing") for name in intake.missing
    ]
    accepted = count_noun(len(intake.bundles), "bundle")
    return Outcome(
        intake,
        {} if intake.record is None else intake.record.as_dict(),
        (f"Accepted {accepted}; set aside {len(intake.set_aside)}; missing: {', '.join(intake.missing) or 'none'}.",),
        tables=(("", [("bundle", "state"), *rows]),),
        standing="in part" if intake.set_aside else "whole",
    )


def align(
    workspace: Workspace,
    *,
    bundles: str | Path,
    mode: AlignMode = "first",
    certify: bool = True,
    receipts: str | Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Check every bundle at an address, and combine the accepted ones, so that a model can be trained on them."""
    from mooring.protocol.exchange_types import GatherOptions
    from mooring.protocol.registry import exchange_of

    study, engine = workspace.study, choose_engine(workspace)
    study.require_roster()
    exchange = exchange_of(study)
    refused = _open_bundles(workspace, bundles)
    intake = engine.collect(study, bundles, workspace.analysis, command=command, progress=progress)
    key = workspace.vault.signing_key if exchange.gathers_signed else None
    options = GatherOptions(mode, certify, receipts, key, command, progress)
    gathered = engine.gather(study, intake.bundles, workspace.analysis, options)
    came = describe_intake(intake)
    is_whole = gathered.is_whole and not intake.set_aside
    return Outcome(
        gathered,
        {"intake": came.record, exchange.gather_record: gathered.as_dict()},
        (*came.lines, *gathered.describe()),
        tuple(gathered.state_hand_off()),
        notes=(*refused, *(f"Set aside {entry.file}: {entry.reason}." for entry in intake.set_aside)),
        tables=(("", gathered.list_contributions()),),
        standing="whole" if is_whole else "in part",
    )


def list_learners(workspace: Workspace) -> Sequence[str]:
    """Return the learners that the mechanism of a study offers."""
    from mooring.protocol.registry import exchange_of

    return exchange_of(workspace.study).list_learners(workspace.study)


def train(
    workspace: Workspace,
    *,
    learner: str = "auto",
    seed: float | None = None,
    shares: str | Path | None = None,
    outcome: str = "",
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Train the joint model of an outcome, by default of the label, on what was gathered."""
    from mooring.protocol.exchange_types import TrainOptions
    from mooring.protocol.registry import exchange_of

    options = TrainOptions(learner, _read_seed(seed), shares, command, progress, outcome)
    exchange_of(workspace.study).require_outcome(workspace.study, outcome)
    trained = choose_engine(workspace).train(workspace.study, workspace.analysis, options)
    return Outcome(
        trained,
        trained.as_dict(),
        (str(trained), *trained.state_scores()),
        notes=tuple(trained.state_warnings()),
        tables=tuple(trained.list_tables().items()),
        standing="whole" if trained.is_whole else "in part",
    )


def _read_seed(seed: float | None) -> int:
    """Return the whole number that a form or a command gives as random seed; 0 if none is given."""
    if seed is None:
        return 0
    if not (seed >= 0 and float(seed).is_integer()):
        raise InputError(
            "seed", problem=f"The random seed {seed:g} is not a whole number, 0 or more.", cure="Use 1, for example."
        )
    return int(seed)


def _seal_results(workspace: Workspace, output: Path, names: Sequence[str]) -> bool:
    """Write an envelope beside each file of the results; return False, and write none, if somebody has no key for it."""
    from mooring.protocol.messages.envelope import envelope_of, seal_file
    from mooring.protocol.registry import exchange_of

    study, signer = workspace.study, workspace.vault.signing_key
    recipients = [study.member(name) for name in names]
    if not all(member.holds_sealing_key for member in recipients):
        return False
    for member in recipients:
        for file in exchange_of(study).result_files(study):
            if (path := output / member.name / file).is_file():
                seal_file(path, envelope_of(path), study=study, recipient=member, signer=signer)
    return True


def deliver(
    workspace: Workspace,
    *,
    output: str | Path,
    override: str | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write each participant's result, and seal it where that is possible."""
    from mooring.protocol.analyst.delivery import deliver as deliver_results
    from mooring.protocol.transport.addresses import is_url, redact_address

    study = workspace.study
    release: dict[str, Any] = {"override": override or "", "command": command, "progress": progress}
    result = deliver_results(study, workspace.analysis, output, workspace.vault.signing_key, **release)
    are_sealed = not is_url(output) and _seal_results(workspace, Path(output), result.delivered)
    where = workspace.show(output) if isinstance(output, Path) else redact_address(output).rstrip("/")
    lines = [f"Delivered to {count_noun(len(result.delivered), 'participant')}: {', '.join(result.delivered)}."]
    hand_off = (
        f"Let each participant read {where}/<its name>, and no other's."
        if is_url(output)
        else f"Send each participant the files {where}/<its name>/*.sealed: they are sealed, so any carrier will do."
        if are_sealed
        else f"Send each participant the folder {where}/<its name>, and nobody another participant's."
    )
    notes = () if result.model_digest else ("The results hold no model, since none was trained.",)
    return Outcome(result, result.as_dict(), tuple(lines), (hand_off,), notes=notes)
