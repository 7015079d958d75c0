"""The analyst's steps: look at the inbox, align or close, train, deliver."""

from __future__ import annotations

from functools import partial
from typing import cast

from mooring.desk.jobs import Outcome
from mooring.desk.participant import reporting
from mooring.desk.steps import Desk, Field, Step, Values, spell_command
from mooring.learners import AUTO
from mooring.learners.registry import LEARNERS, SUM_LEARNERS
from mooring.protocol.analyst.alignment import Aligned, AlignMode, align_bundles
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import Intake, collect
from mooring.protocol.analyst.sum_total import close_list
from mooring.protocol.analyst.sum_training import train_sums
from mooring.protocol.analyst.training import Training, train
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.sums.answers import LIST_FILE
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
    if study.sums is None:
        mode = Field("mode", "Align", "choice", tuple(_MODES), next(iter(_MODES)))
        told = "Brings the rows of all bundles that hold up into one space."
        steps.append(Step("align", "Align", told, partial(_align, desk, study), (mode,), empty, done["alignment"]))
        learners = (AUTO, *(name for name, learner in LEARNERS.items() if learner.delivers))
        waits = "" if done["alignment"] else "Waits for the alignment."
    else:
        told = "Signs the list of contributions, for the combiners; a study is closed once."
        steps.append(Step("close", "Close the list", told, partial(_close, desk, study), (), empty, done["closing"]))
        learners = (AUTO, *(name for name, learner in SUM_LEARNERS.items() if study.label.kind in learner.kinds))
        shares = place.list_files((".share",), folder=place.inbox)
        waits = "" if done["closing"] and shares else "Waits for the combiners' shares, in the folder 'inbox'."
    chosen = Field("learner", "Learner", "choice", learners, AUTO)
    told = "Trains the joint model, and says how well it predicts as far as an analyst can know."
    if study.label.kind != "none":
        steps.append(Step("train", "Train", told, partial(_train, desk, study), (chosen,), waits, done["training"]))
    told = "Writes each participant's result, signed, to the folder 'results'. Give nobody another one's."
    waits = "" if done["alignment" if study.label.kind == "none" else "training"] else "Waits for the step before."
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


def _align(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    mode = cast(AlignMode, _MODES[values["mode"]])
    command = spell_command("align", "--bundles", "inbox", *([] if mode == "first" else [f"--{mode}"]))
    place = desk.workspace
    intake = collect(study, place.inbox, place.analysis, command=command, progress=progress)
    aligned: Aligned = align_bundles(
        study, intake.row_bundles, place.analysis, mode=mode, command=command, progress=progress
    )
    record = aligned.as_dict()
    lines = [*_describe(intake).lines, f"Aligned {len(record['participants'])} participants. {record['termination']}"]
    lines += [record["certificate"]["words"]] if record["certificate"] is not None else []
    lines += [record["note"]] if record["note"] else []
    rows = [(one["name"], f"{one['rows']:,}", f"{one['fit']:.2f}") for one in record["participants"]]
    rows += [(name, "set aside", "no better than random numbers") for name in aligned.set_aside]
    rows += [(entry.file, "set aside", entry.reason) for entry in intake.set_aside]
    head = ("participant", "rows", "correlation with the others' anchor")
    is_whole = not (intake.set_aside or aligned.set_aside)
    return Outcome(tuple(lines), head, tuple(rows), command=command, is_whole=is_whole)


def _close(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    place, command = desk.workspace, spell_command("align", "--bundles", "inbox", "--confirmations", "inbox")
    intake = collect(study, place.inbox, place.analysis, command=command, progress=progress)
    key = desk.vault.signing_key
    closing = close_list(study, intake.sum_bundles, place.analysis, key, confirmations=place.inbox, command=command)
    told = f"confirmed by {', '.join(closing.confirmed_by)}" if closing.confirmed_by else "not confirmed by combiners"
    scheme = study.sum_scheme
    lines = (
        f"Closed with {len(closing.participants)} contributions, {told}.",
        f"Send analysis/{LIST_FILE} and all bundles to the combiners ({', '.join(scheme.combiners)}), who combine; "
        f"{scheme.threshold.threshold} of them open the total.",
    )
    rows = [(name, "in the total") for name in closing.participants]
    rows += [(name, f"left out: {reason}") for name, reason in closing.left_out.items()]
    rows += [(name, "not heard as a combiner: contradicts the others") for name in closing.doubted]
    rows += [(entry.file, f"set aside: {entry.reason}") for entry in intake.set_aside]
    is_whole = not (intake.set_aside or closing.left_out or closing.doubted)
    return Outcome(lines, ("contribution", "state"), tuple(rows), command=command, is_whole=is_whole)


def _train(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    folder, learner = desk.workspace.analysis, values["learner"]
    words = ["train", "--learner", learner]
    if study.sums is not None:
        command = spell_command(*words, "--shares", "inbox")
        total = train_sums(study, folder, desk.workspace.inbox, learner=learner, command=command)
        lines = (f"{total} Each participant scores it at home.", *total.state_warnings())
        return Outcome(lines, command=command, is_whole=not (total.wrong or total.remarks))
    command = spell_command(*words)
    found: Training = train(study, folder, learner=learner, command=command, progress=progress)
    lines = (str(found), *found.state_warnings(), *found.state_scores())
    head, *rows = map(tuple, found.list_scores())
    return Outcome(lines, head, tuple(rows), command=command, is_whole=not found.left_out)


def _deliver(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    override, output = values.get("override", ""), desk.workspace.root / "results"
    command = spell_command("deliver", "--output", "results", *(["--override", override] if override else []))
    key = desk.vault.signing_key
    found = deliver(study, desk.workspace.analysis, output, key, override=override, command=command, progress=progress)
    rows = tuple((name, f"results/{name}") for name in found.delivered)
    told = "Send each participant its own folder, and nobody another one's."
    return Outcome((told,), ("participant", "folder"), rows, command=command)
