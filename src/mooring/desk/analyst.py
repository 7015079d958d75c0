"""The analyst's steps: look at the inbox, align or close, train, deliver."""

from __future__ import annotations

from functools import partial
from typing import cast

from mooring.desk.jobs import Outcome
from mooring.desk.participant import reporting
from mooring.desk.steps import Desk, Field, Step, Values, spell_command
from mooring.learners import AUTO
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import Intake, collect
from mooring.protocol.exchange import AlignMode, GatherOptions, TrainOptions, exchange_of
from mooring.protocol.messages.study import Study
from mooring.serialization import count_noun
from mooring.typing import Progress

_RECORDS = ("intake", "alignment", "closing", "training", "delivery")
_MODES = {"everybody": "first", "newcomers only": "late", "everybody anew": "again"}


def list_analyst_steps(desk: Desk, study: Study) -> list[Step]:
    """The steps of the analyst of a complete study, in the order in which a study takes them."""
    place = desk.workspace
    done = {one: (place.analysis / f"{one}.json").exists() for one in _RECORDS}
    empty = "" if place.list_files((".bundle",), folder=place.inbox) else "Waits for bundles, in the folder 'inbox'."
    look = "Checks every bundle in the folder 'inbox', and says whose is there, whose is missing and whose does not hold up."
    steps = [Step("inbox", "Look at the inbox", look, partial(_look, desk, study), (), empty, done["intake"])]
    limit = (Field("override", "Deliver above the study's limit", is_optional=True, hint="NAME: REASON, signed"),)
    exchange = exchange_of(study)
    is_gathered = done[exchange.gather_record]
    told = "Makes what is trained on of all bundles that hold up: rows in one space, or a signed list of contributions."
    mode = (Field("mode", "Align", "choice", tuple(_MODES), next(iter(_MODES))),) if exchange.uses_anchor else ()
    steps.append(Step("align", "Gather", told, partial(_gather, desk, study), mode, empty, is_gathered))
    waits = "" if is_gathered else "Waits for the step before."
    if exchange.needs_shares and not place.list_files((".share",), folder=place.inbox):
        waits = "Waits for the combiners' shares, in the folder 'inbox'."
    chosen = Field("learner", "Learner", "choice", exchange.list_learners(study), AUTO)
    told = "Trains the joint model, and says how well it predicts as far as an analyst can know."
    if study.label.kind != "none":
        steps.append(Step("train", "Train", told, partial(_train, desk, study), (chosen,), waits, done["training"]))
    told = "Writes each participant's result, signed, to the folder 'results'. Give nobody another one's."
    waits = (
        ""
        if done[exchange.gather_record if study.label.kind == "none" else "training"]
        else "Waits for the step before."
    )
    fields = limit if study.model_limit else ()
    steps.append(Step("deliver", "Deliver", told, partial(_deliver, desk, study), fields, waits, done["delivery"]))
    return [*steps, reporting(desk, study, place.analysis)]


def _look(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    command = spell_command("align", "--bundles", "inbox")
    return _describe(collect(study, desk.workspace.inbox, desk.workspace.analysis, command=command, progress=progress))


def _describe(intake: Intake) -> Outcome:
    rows = [(one.member.name, "accepted") for one in intake.bundles]
    rows += [(entry.file, f"set aside: {entry.reason}") for entry in intake.set_aside]
    rows += [(name, "accepted before, gone now" if name in intake.gone else "not here") for name in intake.missing]
    accepted = count_noun(len(intake.bundles), "bundle")
    told = f"{accepted} accepted, {len(intake.set_aside)} set aside, {len(intake.missing)} missing."
    return Outcome((told,), ("bundle", "state"), tuple(rows), is_whole=not intake.set_aside)


def _gather(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    exchange, place = exchange_of(study), desk.workspace
    mode = cast(AlignMode, _MODES[values["mode"]] if "mode" in values else "first")
    words = ["align", "--bundles", "inbox", *([] if mode == "first" else [f"--{mode}"])]
    words += ["--confirmations", "inbox"] if exchange.needs_shares else []
    command = spell_command(*words)
    intake = collect(study, place.inbox, place.analysis, command=command, progress=progress)
    options = GatherOptions(mode, True, place.inbox, desk.vault.signing_key, command, progress)
    gathered = exchange.gather(study, intake.bundles, place.analysis, options)
    head, *rows = map(tuple, gathered.list_contributions())
    rows += [(entry.file, f"set aside: {entry.reason}", *[""] * (len(head) - 2)) for entry in intake.set_aside]
    lines = (*_describe(intake).lines, *gathered.describe())
    is_whole = gathered.is_whole and not intake.set_aside
    return Outcome(lines, head, tuple(rows), command=command, is_whole=is_whole)


def _train(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    exchange, learner = exchange_of(study), values["learner"]
    words = ["train", "--learner", learner, *(["--shares", "inbox"] if exchange.needs_shares else [])]
    command = spell_command(*words)
    options = TrainOptions(learner, shares=desk.workspace.inbox, command=command, progress=progress)
    trained = exchange.train(study, desk.workspace.analysis, options)
    lines = (str(trained), *trained.state_warnings(), *trained.state_scores())
    head, *rows = next(iter(trained.list_tables().values()), [()])
    return Outcome(lines, tuple(head), tuple(map(tuple, rows)), command=command, is_whole=trained.is_whole)


def _deliver(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    override, output = values.get("override", ""), desk.workspace.root / "results"
    command = spell_command("deliver", "--output", "results", *(["--override", override] if override else []))
    key = desk.vault.signing_key
    found = deliver(study, desk.workspace.analysis, output, key, override=override, command=command, progress=progress)
    rows = tuple((name, f"results/{name}") for name in found.delivered)
    told = "Send each participant its own folder, and nobody another one's."
    return Outcome((told,), ("participant", "folder"), rows, command=command)
